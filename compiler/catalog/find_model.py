"""Look-up of a model in the catalog, or in a Hugging Face config.json of the user."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from parc.compiler.catalog.checkpoints import catalog_model_of
from parc.compiler.catalog.library import (
    TextReader,
    read_user_file,
    register_user_file_lines,
    unknown_entry_finding,
)
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.hub import HUB, hub_repository

if TYPE_CHECKING:
    from parc.compiler.catalog.huggingface.config import ConfigReading

KIND = "models"
# Far above the size of any config.json; it bounds the time that a wrong file costs.
_LARGEST_CHARACTERS = 4_000_000


class Library(TextReader, Protocol):
    """Interface to the entries of the catalog and the files of the user."""

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names of all catalog entries of ``kind``, sorted."""

    def entry(self, kind: str, name: str) -> dict[str, Any]:
        """Return the content of a catalog entry.

        Raises:
            KeyError: the catalog has no entry of this name.
        """


def find_model(name: str, library: Library, sink: Sink, at: str) -> dict[str, Any] | None:
    """Return the ``ModelSpec`` fields of the model ``name``; ``at`` is the spec path that names it.

    ``name`` is a catalog entry, the path of a config.json, or a model id of the Hugging Face hub,
    whose config.json is read from the cache of the hub; if it was not downloaded, the catalog may
    have the model. A path contains a slash or ``.json``. In the form ``config.json#KEY``, only the
    part of the file under KEY describes the model.

    Returns None after reporting a finding: K01 (no such catalog entry), K07 (file cannot be read),
    or an error in the config.
    """
    if name in library.names(KIND):
        return {"name": name} | library.entry(KIND, name)
    if _is_config(name):
        return _catalog_model_of_hub_id(name, library) or _read_config_file(name, library, sink, at)
    sink.report("K01", unknown_entry_finding(KIND, name, library.names(KIND), at), at=at)
    return None


def _catalog_model_of_hub_id(name: str, library: Library) -> dict[str, Any] | None:
    """Return the catalog entry whose source is the repository ``name`` of the hub.

    The result is None for other names, and if the config.json of the repository can be read.
    """
    from parc.compiler.catalog.huggingface.hub_cache import cached_config

    listed = catalog_model_of(name)
    if listed is None or _local_config(name, library)[1] or cached_config(name):
        return None
    entry = library.entry(KIND, listed)
    return {"name": listed} | entry if hub_repository(entry["source"]) == name else None


def find_checkpoint_precision(name: str, library: Library) -> str:
    """Return the precision of the weights that a config.json describes; empty if it is unknown.

    ``name`` is the same as for ``find_model``.
    """
    if name in library.names(KIND) or not _is_config(name):
        return ""
    from parc.compiler.catalog.huggingface.checkpoint_precision import checkpoint_precision

    found = _load_config(name, library, Sink(), "model")
    return checkpoint_precision(found.content) if found is not None else ""


def _is_config(name: str) -> bool:
    return "/" in name or "\\" in name or ".json#" in name or name.endswith(".json")


def _read_config_file(name: str, library: Library, sink: Sink, at: str) -> dict[str, Any] | None:
    """Return the ``ModelSpec`` fields read from the config.json that ``name`` refers to.

    Return None after reporting an error.
    """
    # Imported on first use: most specs name a catalog model.
    from parc.compiler.catalog.huggingface.config import model_name_of, model_spec_from_config

    found = _load_config(name, library, sink, at)
    if found is None:
        return None
    model = model_name_of(found.path, found.content)
    reading = model_spec_from_config(found.content, model, found.part)
    _report_notes((found.path, found.part), found.text, reading, sink)
    return None if reading.failed else reading.mapping | {"source": found.source}


@frozen
class _ConfigFile:
    """A config.json that was read."""

    path: str
    """Path for messages."""
    part: str
    """Key of the part that describes the model; empty for the whole file."""
    text: str
    content: dict[str, Any]
    source: str
    """Address of the model on the hub, or the path in the spec."""


def _load_config(name: str, library: Library, sink: Sink, at: str) -> _ConfigFile | None:
    """Return the config.json that ``name`` refers to; None after reporting an error."""
    from parc.compiler.catalog.huggingface.config import split_config_path
    from parc.compiler.catalog.huggingface.hub_cache import (
        cached_config,
        missing_config_finding,
        split_hub_id,
    )

    hub, source = split_hub_id(name), name
    if hub is None:
        path, part = split_config_path(name)
        text = read_user_file(path, library, sink, at)
    else:
        part, (path, text) = hub[1], _local_config(hub[0], library)
        if text is None:
            path, text, source = f"{hub[0]}/config.json", cached_config(hub[0]), f"{HUB}{name}"
        if text is None:
            listed = catalog_model_of(hub[0])
            sink.report("K07", missing_config_finding(name, hub[0], listed), at=at)
    content = None if text is None else _parse_json(path, text, sink, at)
    if text is None or content is None:
        return None
    return _ConfigFile(path, part, text, content, source)


def _local_config(hub_id: str, library: Library) -> tuple[str, str | None]:
    """Return (path, text) of a config.json next to the spec in a folder named as the hub id.

    The text is None if there is no such file.
    """
    for path in (f"{hub_id}/config.json", hub_id):
        with suppress(OSError):
            return path, library.text(path)
    return "", None


def _parse_json(path: str, text: str, sink: Sink, at: str) -> dict[str, Any] | None:
    """Return the JSON object in ``text``; None after reporting that the file is invalid (K07)."""
    span = None
    if len(text) > _LARGEST_CHARACTERS:
        reason = f"the file has {len(text)} characters; the limit is {_LARGEST_CHARACTERS}"
    else:
        try:
            tree = json.loads(text, object_pairs_hook=_dict_without_repeated_keys)
        except json.JSONDecodeError as error:
            span = Span(path, error.lineno, error.colno)
            reason = error.msg
        except RecursionError:
            reason = "the values are nested too deeply"
        except ValueError as error:
            reason = str(error)[:100]
        else:
            if isinstance(tree, dict):
                return tree
            reason = "the file must contain a JSON object"
    # The text is not shown, because the file may be any file of the machine.
    sink.report("K07", f"{path} is not a valid config.json: {reason}", at=at, span=span)
    return None


def _dict_without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the key-value pairs of a JSON object as a dict.

    Raises:
        ValueError: a key is repeated.
    """
    # json.loads would silently keep the last of two equal keys.
    tree = dict(pairs)
    if len(tree) != len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise ValueError(f"the key {twice[:60]!r} is repeated")
    return tree


def _report_notes(place: tuple[str, str], text: str, reading: ConfigReading, sink: Sink) -> None:
    """Report the notes on a config as findings that point to the keys in the file.

    ``place`` is (path of the file, dotted key of the part that was read).
    """
    path, part = place
    if reading.notes:
        register_user_file_lines(path, text, sink)
    for note in reading.notes:
        finding = Finding(message=f"{path}: {note.message}", help=note.help)
        keys = (*part.split("."), *note.path) if part else note.path
        sink.report(note.code, finding, at="model", span=_span_of_key(path, text, keys))


def _span_of_key(path: str, text: str, keys: tuple[str, ...]) -> Span:
    """Return the position of a nested key in JSON text, or the start of the file if it is missing.

    ``keys`` are the keys on the path to the nested key, outermost first.
    """
    # json.loads keeps no positions, so each key is searched in the text after the previous key.
    start, found = 0, None
    for key in keys:
        found = re.compile(rf'"{re.escape(key)}"\s*:').search(text, start)
        start = found.end() if found else start
    if found is None:
        return Span(path, 1, 1)
    line = text.count("\n", 0, found.start()) + 1
    column = found.start() - (text.rfind("\n", 0, found.start()) + 1) + 1
    return Span(path, line, column, len(keys[-1]) + 2)
