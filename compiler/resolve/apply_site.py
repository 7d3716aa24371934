"""Complete the tree of a spec with the settings of its site file, before the spec is validated.

Each completed value has its position in the site file, so that findings of later passes point to
that file. The completed tree has no key ``site``: the digest of a spec covers the settings of the
site, but not the name of the file.
"""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from parc.compiler.catalog.library import (
    Library,
    is_user_file_path,
    look_up_entry,
    read_user_file,
    register_user_file_lines,
)
from parc.compiler.diagnostics import Finding, Sink, Span, SpecPositions
from parc.compiler.spec.override import copy_tree, is_path_below
from parc.compiler.spec.reading.tree_builder import join_path
from parc.compiler.spec.reading.yaml_tree import SpecTree, read_tree

Tree = dict[str, Any]
_MOST_FILES = 8
"""Maximum number of site files of a spec: the site file, its base, the base of that, and so on."""
_SECTIONS = ("cluster", "launch", "versions")
"""Sections that a site file shares with a spec."""
_FILES = (
    *("base", "cluster.gpu", "cluster.gpu.generation", "cluster.node", "cluster.fabric"),
    *("cluster.topology", "cluster.calibration"),
)
"""Keys of a site file whose values can be paths of files, relative to the site file."""
_HOSTS = ("nodes", "nodes_per_rack", "racks", "topology", "topology_format", "levels")
_FOLDER_USERS = ("data", "tokenizer_model", "checkpoint", "checkpoint_dir", "load_dir")
"""Keys of ``job`` whose paths can start with ``$data/``, ``$checkpoints/`` or ``$cache/``."""


def apply_site(tree: Tree, library: Library, sink: Sink) -> Tree | None:
    """Return ``tree`` completed with the settings of its site; None after reporting errors.

    ``sink.positions`` is extended by the positions of the completed values. A tree whose site is
    not a text is returned unchanged, because the validation of the spec reports it.
    """
    if not isinstance(tree.get("site"), str):
        return tree
    site = read_site(tree["site"], library, sink)
    if site is None:
        return None
    positions = sink.positions
    # The tree is copied, because YAML aliases share nodes.
    spec = SpecTree(copy_tree(tree), dict(positions.values), dict(positions.keys))
    del spec.value["site"]
    _complete_spec(spec, site, sink)
    sink.positions = replace(sink.positions, values=spec.values, keys=spec.keys)
    return None if sink.failed() else spec.value


def read_site(name: str, library: Library, sink: Sink) -> SpecTree | None:
    """Return the settings of a site, completed from its bases; None after an error.

    ``name`` is the name of a preset, or the path of a site file.
    """
    site = SpecTree({}, {}, {})
    at = sink.positions.values.get("site")
    next_name = name
    # A limit instead of a set of names, because one file can have many paths.
    for _ in range(_MOST_FILES):
        layer = _read_layer(next_name, library, sink, at)
        if layer is None:
            return None
        _fill_missing_keys(site.value, layer.value, "", site, layer)
        next_name, at = layer.value.get("base"), layer.values.get("base")
        if next_name is None:
            return site
    finding = Finding(
        f"the site has a chain of more than {_MOST_FILES} bases",
        label="a file may be its own base",
        help="remove the key base from a file of the chain",
    )
    sink.report("X26", finding, at="site", span=at)
    return None


def _read_layer(name: str, library: Library, sink: Sink, at: Span | None) -> SpecTree | None:
    """Return the content of one site file or preset; None after reporting errors."""
    if not is_user_file_path(name):
        entry = look_up_entry("sites", name, library, sink, "site")
        if entry is None:
            return None
        facts = copy_tree(entry.facts)
        # A preset has no lines to show, so its values are shown at the name of the preset.
        spans = dict.fromkeys(_paths_below(facts, ""), at or Span(sink.positions.file, 1, 1))
        return SpecTree(facts, spans, spans)
    text = read_user_file(name, library, sink, "site")
    found = None if text is None else read_tree(text, name, sink)
    if text is None or found is None:
        return None
    if not isinstance(found.value, dict):
        finding = Finding(
            f"the site file {name[:100]} is not a mapping of keys to values",
            help="`parc schema site` prints the keys of a site file",
        )
        sink.report("X26", finding, at="site")
        return None
    register_user_file_lines(name, text, sink)
    layer = SpecTree(copy_tree(found.value), found.values, found.keys)
    if not _is_valid(layer, name, sink):
        return None
    _resolve_file_paths(layer.value, posixpath.dirname(name))
    return layer


def _is_valid(layer: SpecTree, name: str, sink: Sink) -> bool:
    """Return False after reporting all mistakes of a site file at their positions."""
    from pydantic import ValidationError

    from parc.compiler.spec.launch_spec import SiteSpec
    from parc.compiler.spec.mistakes import report_mistakes

    try:
        SiteSpec.model_validate_json(json.dumps(layer.value))
    except ValidationError as invalid:
        positions = sink.positions
        sink.positions = SpecPositions(
            name, layer.values, layer.keys, positions.lines, positions.word_only
        )
        errors = invalid.errors(include_url=False, include_input=False)
        report_mistakes(SiteSpec, layer.value, errors, sink)
        sink.positions = positions
        return False
    return True


def _resolve_file_paths(site: Tree, folder: str) -> None:
    """Make the file paths of a site file in ``folder`` relative to the folder of the spec."""
    for path in _FILES:
        *parents, key = path.split(".")
        node: Any = site
        for parent in parents:
            node = node.get(parent) if isinstance(node, dict) else None
        value = node.get(key) if isinstance(node, dict) else None
        if isinstance(value, str) and (
            key in {"topology", "calibration"} or is_user_file_path(value)
        ):
            node[key] = posixpath.normpath(posixpath.join(folder, value))


def _complete_spec(spec: SpecTree, site: SpecTree, sink: Sink) -> None:
    """Add to ``spec`` each setting of ``site`` that the spec does not set itself."""
    tree, settings = spec.value, site.value
    _drop_other_hosts(tree, settings)
    _drop_unused_software(tree, settings)
    _prepend_setup(spec, site)
    for section in _SECTIONS:
        if section in settings:
            _fill_missing_keys(tree, {section: settings[section]}, "", spec, site)
    _use_folders(spec, site, sink)


def _drop_other_hosts(tree: Tree, site: Tree) -> None:
    """Remove keys of the site's cluster that describe hosts, if the spec describes other hosts."""
    own, cluster = tree.get("cluster"), site.get("cluster", {})
    if own is None:
        return
    if not isinstance(own, dict) or "base" in own:
        site.pop("cluster", None)
        return
    if not own.keys().isdisjoint(("nodes", "racks", "topology")):
        for key in _HOSTS:
            cluster.pop(key, None)
    if "node" in own:
        cluster.pop("gpu", None)


def _drop_unused_software(tree: Tree, site: Tree) -> None:
    """Remove modules if the job runs in a container; otherwise the settings of a container."""
    launch = tree.get("launch")
    own = launch.get("slurm") if isinstance(launch, dict) else None
    slurm = site.get("launch", {}).get("slurm", {})
    both = {**slurm, **own} if isinstance(own, dict) else slurm
    if both.get("container_image"):
        site.pop("modules", None)
    else:
        slurm.pop("container_mounts", None)
        slurm.pop("container_runtime", None)


def _prepend_setup(spec: SpecTree, site: SpecTree) -> None:
    """Put modules and set-up commands of the site before ``launch.setup`` of the spec."""
    launch = site.value.get("launch", {})
    own = spec.value.get("launch", {})
    if not isinstance(own, dict) or not isinstance(own.get("setup", []), list):
        return  # the validation of the spec reports this
    modules = enumerate(site.value.get("modules", ()))
    lines = [
        *((f"modules[{i}]", f"module load {shlex.quote(name)}") for i, name in modules),
        *((f"launch.setup[{i}]", line) for i, line in enumerate(launch.pop("setup", ()))),
    ]
    if not lines:
        return
    written = own.get("setup", [])
    spec.value.setdefault("launch", {})["setup"] = [text for _, text in lines] + written
    for table, table_of_site in ((spec.values, site.values), (spec.keys, site.keys)):
        # From the last entry to the first, so that no position is overwritten before it moves.
        for index in reversed(range(len(written))):
            if f"launch.setup[{index}]" in table:
                table[f"launch.setup[{index + len(lines)}]"] = table[f"launch.setup[{index}]"]
        for index, (path, _) in enumerate(lines):
            if path in table_of_site:
                table[f"launch.setup[{index}]"] = table_of_site[path]
                table.setdefault("launch.setup", table_of_site[path])


def _use_folders(spec: SpecTree, site: SpecTree, sink: Sink) -> None:
    """Replace ``$data/`` and similar beginnings of paths, and set the defaults of the folders."""
    folders = {name: path for name, path in site.value.get("folders", {}).items() if path}
    job, launch = spec.value.get("job"), spec.value.setdefault("launch", {})
    if "cache" in folders and isinstance(launch, dict):
        defaults: Tree = {"env": {"HF_HOME": posixpath.join(folders["cache"], "huggingface")}}
        _fill_missing_keys(
            launch, defaults, "launch", spec, _at_folder("cache", "launch.env.HF_HOME", site)
        )
    if not isinstance(job, dict):
        return
    name = spec.value.get("name")
    if "checkpoints" in folders and job.get("kind") != "serve" and isinstance(name, str):
        defaults = {"checkpoint_dir": posixpath.join(folders["checkpoints"], name)}
        _fill_missing_keys(
            job, defaults, "job", spec, _at_folder("checkpoints", "job.checkpoint_dir", site)
        )
    for key in _FOLDER_USERS:
        value = job.get(key)
        if isinstance(value, str):
            job[key] = _below_folder(value, f"job.{key}", folders, sink)
        elif isinstance(value, list):
            job[key] = [
                _below_folder(text, f"job.{key}[{index}]", folders, sink)
                for index, text in enumerate(value)
            ]


def _at_folder(folder: str, path: str, site: SpecTree) -> SpecTree:
    """Return the position of a folder in the site file as the position of spec path ``path``."""
    at = f"folders.{folder}"
    return SpecTree(
        None,
        {path: site.values[at]} if at in site.values else {},
        {path: site.keys[at]} if at in site.keys else {},
    )


def _below_folder(value: Any, at: str, folders: Mapping[str, str], sink: Sink) -> Any:
    """Return the path ``value`` with the folder of the site instead of ``$data`` or similar."""
    head, slash, rest = value.partition("/") if isinstance(value, str) else ("", "", "")
    name = head.removeprefix("$")
    if not slash or head == name or name not in ("cache", "checkpoints", "data"):
        return value
    if name not in folders:
        finding = Finding(
            f"{at} starts with ${name}/, but the site has no folder {name}",
            label=f"folders.{name} of the site file is not set",
            help=f"set folders.{name} in the site file, or write the whole path",
        )
        sink.report("X26", finding, at=at)
        return value
    return posixpath.join(folders[name], rest)


def _fill_missing_keys(
    node: Tree, defaults: Tree, path: str, own: SpecTree, other: SpecTree
) -> None:
    """Add each key of ``defaults`` that ``node`` lacks, recursively, with its positions.

    ``path`` is the spec path of both mappings. ``own`` receives the positions from ``other``.
    """
    for key, value in defaults.items():
        below = join_path(path, key)
        if isinstance(node.get(key), dict) and isinstance(value, dict):
            _fill_missing_keys(node[key], value, below, own, other)
        elif key not in node:
            node[key] = value
            for mine, theirs in ((own.values, other.values), (own.keys, other.keys)):
                mine |= {
                    at: span
                    for at, span in theirs.items()
                    if at == below or is_path_below(at, below)
                }


def _paths_below(value: Any, path: str) -> Iterator[str]:
    """Yield the spec paths of all keys and list entries in ``value``."""
    children: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        children = [(join_path(path, key), inner) for key, inner in value.items()]
    elif isinstance(value, list):
        children = [(f"{path}[{index}]", inner) for index, inner in enumerate(value)]
    for below, inner in children:
        yield below
        yield from _paths_below(inner, below)
