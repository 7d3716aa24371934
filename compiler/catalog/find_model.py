"""Look-up of a model in the catalog, or in a Hugging Face config.json of the user."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import PurePath
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
    from parc.compiler.catalog.huggingface.checkpoint_precision import StatedFormat
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
    if not _is_config(name):
        sink.report("K01", unknown_entry_finding(KIND, name, library.names(KIND), at), at=at)
        return None
    # Imported on first use: most specs name a catalog model.
    from parc.compiler.catalog.huggingface.hub_cache import missing_config_finding, split_hub_id

    hub = split_hub_id(name)
    if hub is None:
        found = _user_config(name, library, sink, at)
    elif (found := _hub_config(name, hub, library)) is None:
        listed = catalog_model_of(hub[0])
        entry = library.entry(KIND, listed) if listed is not None else {}
        if entry and hub_repository(entry["source"]) == name:
            return {"name": listed} | entry
        sink.report("K07", missing_config_finding(name, hub[0], listed), at=at)
    return None if found is None else _model_of_config(found, sink, at)


def find_checkpoint_precision(name: str, library: Library) -> StatedFormat | None:
    """Return the format of quantized weights that a config.json describes.

    The result is None without a config, or if neither it nor the file of ModelOpt next to it states
    that weights are quantized. ``name`` is the same as for ``find_model``.
    """
    if name in library.names(KIND) or not _is_config(name):
        return None
    from parc.compiler.catalog.huggingface.checkpoint_precision import checkpoint_precision
    from parc.compiler.catalog.huggingface.hub_cache import split_hub_id

    # ``find_model`` reports the errors.
    hub, sink, at = split_hub_id(name), Sink(), "model"
    found = _hub_config(name, hub, library) if hub else _user_config(name, library, sink, at)
    content = _parse_json(found, sink, at) if found is not None else None
    if found is None or content is None:
        return None
    return checkpoint_precision(content) or checkpoint_precision(
        _modelopt_config(found, hub, library)
    )


def _modelopt_config(
    config: _ConfigFile, hub: tuple[str, str] | None, library: Library
) -> dict[str, Any]:
    """Return ``quantization_config`` from the file of ModelOpt next to a config.json.

    The result is empty if there is no such file. ``hub`` is the same as for ``_hub_config``.
    """
    from parc.compiler.catalog.huggingface.checkpoint_precision import QUANTIZATION_FILE
    from parc.compiler.catalog.huggingface.hub_cache import cached_config

    path, text = PurePath(config.path), None
    if path.name != "config.json":  # other names say nothing about the files next to them
        return {}
    with suppress(OSError):
        text = library.text(path.with_name(QUANTIZATION_FILE).as_posix())
    if text is None and hub is not None:
        text = cached_config(hub[0], file=QUANTIZATION_FILE)
    file = _ConfigFile(config.path, "", text or "{}", "")
    tree = _parse_json(file, Sink(), "model") or {}
    return {"quantization_config": tree.get("quantization")}


def _is_config(name: str) -> bool:
    return "/" in name or "\\" in name or ".json#" in name or name.endswith(".json")


@frozen
class _ConfigFile:
    """A config.json."""

    path: str
    """Path for messages."""
    part: str
    """Key of the part that describes the model; empty for the whole file."""
    text: str
    source: str
    """Address of the model on the hub, or the path in the spec."""


def _user_config(name: str, library: Library, sink: Sink, at: str) -> _ConfigFile | None:
    """Return the file of the user that ``name`` refers to; None after reporting an error."""
    from parc.compiler.catalog.huggingface.config import split_config_path

    path, part = split_config_path(name)
    text = read_user_file(path, library, sink, at)
    return None if text is None else _ConfigFile(path, part, text, name)


def _hub_config(name: str, hub: tuple[str, str], library: Library) -> _ConfigFile | None:
    """Return the config.json of a model of the hub; None if it was not downloaded.

    ``hub`` is (model id, part) of ``name``.
    """
    from parc.compiler.catalog.huggingface.hub_cache import cached_config

    hub_id, part = hub
    path, text = _local_config(hub_id, library)
    if text is not None:
        return _ConfigFile(path, part, text, name)
    text = cached_config(hub_id)
    return (
        None if text is None else _ConfigFile(f"{hub_id}/config.json", part, text, f"{HUB}{name}")
    )


def _local_config(hub_id: str, library: Library) -> tuple[str, str | None]:
    """Return (path, text) of a config.json next to the spec in a folder named as the hub id.

    The text is None if there is no such file.
    """
    for path in (f"{hub_id}/config.json", hub_id):
        with suppress(OSError):
            return path, library.text(path)
    return "", None


def _model_of_config(config: _ConfigFile, sink: Sink, at: str) -> dict[str, Any] | None:
    """Return the ``ModelSpec`` fields of a config.json; None after reporting an error."""
    from parc.compiler.catalog.huggingface.config import model_name_of, model_spec_from_config

    content = _parse_json(config, sink, at)
    if content is None:
        return None
    reading = model_spec_from_config(content, model_name_of(config.path, content), config.part)
    _report_notes(config, reading, sink)
    return None if reading.failed else reading.mapping | {"source": config.source}


def _parse_json(config: _ConfigFile, sink: Sink, at: str) -> dict[str, Any] | None:
    """Return the JSON object in a file; None after reporting that the file is invalid (K07)."""
    path, text, span = config.path, config.text, None
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


def _report_notes(config: _ConfigFile, reading: ConfigReading, sink: Sink) -> None:
    """Report the notes on a config as findings that point to the keys in the file."""
    path, part, text = config.path, config.part, config.text
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
