"""Where a model's facts come from: an entry of the catalog, or a config.json of the user."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

from parc.compiler.diagnostics import Finding, Sink, Span

if TYPE_CHECKING:
    from parc.compiler.catalog.huggingface.config import ConfigReading

KIND = "models"
_LARGEST_CHARACTERS = 4_000_000


class Library(Protocol):
    """What this module asks of the catalog."""

    def names(self, kind: str) -> tuple[str, ...]:
        """All entries of ``kind``, sorted."""

    def entry(self, kind: str, name: str) -> dict[str, Any]:
        """One entry; KeyError where there is none."""

    def text(self, path: str) -> str:
        """A file of the user, relative to the spec; OSError where it cannot be read."""


def find_model(name: str, library: Library, sink: Sink, at: str) -> dict[str, Any] | None:
    """The ``ModelSpec`` mapping that ``name`` stands for; None where a finding says why not.

    A catalog name wins over a file of that name; a name with a slash or ``.json`` is a path, and
    what follows ``.json#`` is the part of the file that describes the model.
    """
    if name in library.names(KIND):
        return {"name": name} | library.entry(KIND, name)
    if "/" in name or "\\" in name or ".json#" in name or name.endswith(".json"):
        return _from_file(name, library, sink, at)
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), library.names(KIND), n=3, cutoff=0.5)
    sink.report(
        "K01",
        Finding(
            message=f"no model is called {name!r}",
            label="not in the catalog",
            help=f"did you mean {', '.join(near)}?" if near else "parc catalog models lists them",
            fix=f"{at}: {near[0]}" if near else "",
        ),
        at=at,
    )
    return None


def _from_file(name: str, library: Library, sink: Sink, at: str) -> dict[str, Any] | None:
    """The facts in the user's config.json; its readers are loaded for those who name one."""
    from parc.compiler.catalog.huggingface.config import model_spec_from_config
    from parc.compiler.catalog.huggingface.text_part import split_part

    path, part = split_part(name)

    try:
        text = library.text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        sink.report("K07", Finding(f"{path} cannot be read: {reason}", label="named here"), at=at)
        return None
    config = _parse(path, text, sink, at)
    if config is None:
        return None
    reading = model_spec_from_config(config, _stem(path), part)
    _report((path, part), text, reading, sink)
    return None if reading.failed else reading.mapping | {"source": name}


def _stem(path: str) -> str:
    """``qwen3-8b/config.json`` and ``qwen3-8b.json`` are both the model qwen3-8b."""
    pure = PurePath(path.replace("\\", "/"))
    folder = pure.parent.name
    return folder if pure.stem == "config" and folder not in ("", "..") else pure.stem


def _parse(path: str, text: str, sink: Sink, at: str) -> dict[str, Any] | None:
    """The JSON mapping in ``text``; K07 at the line that cannot be read."""
    span = None
    if len(text) > _LARGEST_CHARACTERS:
        reason = f"{len(text)} characters are more than any config has"
    else:
        try:
            tree = json.loads(text, object_pairs_hook=_unique)
        except json.JSONDecodeError as error:
            span = Span(path, error.lineno, error.colno)
            reason = error.msg
        except RecursionError:
            reason = "it is nested too deeply"
        except ValueError as error:
            reason = str(error)[:100]
        else:
            if isinstance(tree, dict):
                return tree
            reason = "it is not a mapping"
    _show_lines(path, text, sink)
    sink.report("K07", f"{path} is not a config: {reason}", at=at, span=span)
    return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping; ValueError for a key that is written twice."""
    tree = dict(pairs)
    if len(tree) != len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise ValueError(f"the key {twice[:60]!r} is written twice")
    return tree


def _report(where: tuple[str, str], text: str, reading: ConfigReading, sink: Sink) -> None:
    """Every note of the reading, at its line of the config; ``where``: path and part."""
    path, part = where
    if reading.notes:
        _show_lines(path, text, sink)
    for note in reading.notes:
        finding = Finding(message=f"{path}: {note.message}", help=note.help)
        keys = (*part.split("."), *note.path) if part else note.path
        sink.report(note.code, finding, at="model", span=_span_of(path, text, keys))


def _span_of(path: str, text: str, keys: tuple[str, ...]) -> Span:
    """Where the last of ``keys`` is written first behind the others; else the file's beginning."""
    start, found = 0, None
    for key in keys:
        found = re.compile(rf'"{re.escape(key)}"\s*:').search(text, start)
        start = found.end() if found else start
    if found is None:
        return Span(path, 1, 1)
    line = text.count("\n", 0, found.start()) + 1
    column = found.start() - (text.rfind("\n", 0, found.start()) + 1) + 1
    return Span(path, line, column, len(keys[-1]) + 2)


def _show_lines(path: str, text: str, sink: Sink) -> None:
    """Let a renderer print lines of this file."""
    lines = {**sink.positions.lines, path: tuple(text.splitlines())}
    sink.positions = replace(sink.positions, lines=lines)
