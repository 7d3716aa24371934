"""Check those parts of an invalid spec that can be read, so that one run reports all mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from parc.compiler.catalog.find_hardware import find_gpus, node_for_gpu
from parc.compiler.catalog.library import Library, look_up_entry
from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.flow_yaml import flow_text
from parc.compiler.ir.frozen import frozen
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.resolve.resolve_targets import check_emit, find_framework
from parc.compiler.spec.job_spec import JobSpec
from parc.compiler.spec.key_mistakes import GPU_COUNTS
from parc.compiler.spec.load import salvage_sections

_NAMES = {"base": "clusters", "node": "nodes", "gpu": "gpus", "fabric": "fabrics"}
"""Key of section ``cluster`` that may name a catalog entry -> kind of the entry."""
_HOSTS = ("base", "racks", "topology")
"""Keys that list hosts in another form than ``cluster.nodes``."""
_EXAMPLE_NODE = "dgx-h100"
_MOST_GPUS = 131_072
_KINDS: tuple[str, ...] = get_args(JobSpec.model_fields["kind"].annotation)
"""Values of ``job.kind``, the default first."""


def check_invalid_spec(tree: dict[str, Any], library: Library, sink: Sink) -> None:
    """Report mistakes in ``model``, ``cluster`` and ``emit`` that only catalog and backends show.

    The reader of the spec has reported its own mistakes in ``tree``. Its findings about a number of
    GPUs get a fix here, because the catalog knows the number of GPUs per host.
    """
    sections = salvage_sections(tree)
    if "model" in sections:
        resolve_model(sections["model"], library, sink)
    if "cluster" in sections:
        resolve_cluster(sections["cluster"], library, sink)
    elif isinstance(tree.get("cluster"), dict):
        _check_names(tree["cluster"], library, sink)
    emit = tree.get("emit")
    if isinstance(emit, list) and emit and all(isinstance(name, str) for name in emit):
        check_emit(tuple(emit), (), sink)
        _check_job_kind(tree.get("job"), tuple(emit), sink)
    _fix_gpu_counts(tree, library, sink)


def _check_job_kind(job: object, emit: tuple[str, ...], sink: Sink) -> None:
    """Report targets for another kind of job, unless a finding might change the kind."""
    kind = job.get("kind", _KINDS[0]) if isinstance(job, dict) else None
    unknown = any(
        one.code == "PARC-X01" and one.path.startswith("job.") for one in sink.diagnostics
    )
    if kind in _KINDS and not unknown:
        find_framework(kind != "serve", emit, sink)


def _check_names(cluster: Mapping[str, Any], library: Library, sink: Sink) -> None:
    """Report the names of catalog entries in an invalid section ``cluster`` that do not exist."""
    reported = {one.path for one in sink.diagnostics}
    for key, kind in _NAMES.items():
        value, at = cluster.get(key), f"cluster.{key}"
        if isinstance(value, dict):
            value, at = value.get("base"), f"{at}.base"
        if isinstance(value, str) and at not in reported:
            look_up_entry(kind, value, library, sink, at)


@frozen
class _HostChange:
    """Edit of section ``cluster`` that gives a number of GPUs."""

    help: str
    settings: tuple[str, ...] = ()
    """Settings of the fix: ``cluster.nodes: 2``."""


def _fix_gpu_counts(tree: Mapping[str, Any], library: Library, sink: Sink) -> None:
    """Replace the fixes of unknown keys such as ``gpus`` by hosts with this number of GPUs."""
    for found in sink.diagnostics:
        parent, _, key = found.path.rpartition(".")
        cluster = tree.get("cluster")
        if found.code != "PARC-X01" or parent not in ("", "cluster") or key not in GPU_COUNTS:
            continue
        value = (cluster if parent and isinstance(cluster, dict) else tree).get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MOST_GPUS:
            continue
        if cluster is None:
            _set_example_of_missing_cluster(value, library, sink)
            continue
        change = _hosts_with_gpus(value, cluster, library) if isinstance(cluster, dict) else None
        if change is None:
            continue
        added = "".join(f", and set {setting}" for setting in change.settings)
        fix = f"remove {found.path}{added}"
        sink.replace_finding(found, replace(found.finding, help=change.help, fix=fix))


def _hosts_with_gpus(
    count: int, cluster: Mapping[str, Any], library: Library
) -> _HostChange | None:
    """Return the edit that gives the cluster ``count`` GPUs; None if none is certain."""
    node = cluster.get("node")
    chosen = _node_of_gpu(cluster.get("gpu")) if node is None else ""
    node = node if chosen == "" else chosen
    base = node.get("base") if isinstance(node, dict) else node
    size = _gpus_per_host(node, base, library)
    if size is None or any(key in cluster for key in _HOSTS):
        return None
    hosts, per_host = _even_split(count, size, cluster.get("nodes"))
    if hosts == 0 or (per_host != size and not isinstance(base, str)):
        return None
    settings = []
    if per_host != size:
        facts = {**(node if isinstance(node, dict) else {"base": node}), "gpus_per_node": per_host}
        settings.append(f"cluster.node: {flow_text(facts)}")
    elif chosen:
        settings.append(f"cluster.node: {chosen}")
    if cluster.get("nodes") != hosts:
        settings.append(f"cluster.nodes: {hosts}")
    return _HostChange(
        f"cluster.nodes is a number of hosts; a host of {base or 'this node type'} has {size} GPUs",
        tuple(settings),
    )


def _node_of_gpu(gpu: object) -> str:
    """Return the usual node type for ``gpu``; empty if the name is not that of one GPU."""
    gpus = find_gpus(gpu) if isinstance(gpu, str) else ()
    return node_for_gpu(gpus[0])[0] if len(gpus) == 1 else ""


def _gpus_per_host(node: object, base: object, library: Library) -> int | None:
    """Return the number of GPUs per host of a node type as in the spec; None if it is unknown."""
    size = node.get("gpus_per_node") if isinstance(node, dict) else None
    if size is None and base in library.names("nodes"):
        size = library.entry("nodes", str(base))["gpus_per_node"]
    return size if isinstance(size, int) and size > 0 else None


def _even_split(count: int, size: int, nodes: object) -> tuple[int, int]:
    """Return (hosts, GPUs per host) for ``count`` GPUs on hosts with at most ``size`` GPUs.

    ``nodes`` is the number of hosts if the spec sets it. Returns (0, 0) if there is no split.
    """
    if nodes is not None:  # otherwise, the number might be that of each host
        return (nodes, size) if isinstance(nodes, int) and nodes * size == count else (0, 0)
    per_host = next(one for one in range(min(count, size), 0, -1) if count % one == 0)
    return count // per_host, per_host


def _set_example_of_missing_cluster(count: int, library: Library, sink: Sink) -> None:
    """Change the example for a missing section ``cluster`` to one with ``count`` GPUs."""
    size = library.entry("nodes", _EXAMPLE_NODE)["gpus_per_node"]
    hosts, per_host = _even_split(count, size, None)
    changed = {"base": _EXAMPLE_NODE, "gpus_per_node": per_host}
    cluster = {"node": _EXAMPLE_NODE if per_host == size else changed, "nodes": hosts}
    fix = f"set cluster, for example cluster: {flow_text(cluster)}"
    for found in sink.diagnostics:
        if found.code == "PARC-X08" and found.path == "cluster":
            sink.replace_finding(found, replace(found.finding, fix=fix))
