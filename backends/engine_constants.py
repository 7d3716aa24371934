"""Reader of the table of constants that a serving engine declares, usually ``constants.yaml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib.resources import files
from typing import Any, get_args, get_type_hints

from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir.engine_constants import (
    EngineConstants,
    UndeclaredConstantsError,
    find_range_defect,
)
from parc.compiler.ir.serialize import from_json

TABLE = "constants.yaml"


# Cached, because every estimate of the search reads the constants.
@cache
def load_engine_constants(engine: str, package: str) -> EngineConstants:
    """Return the constants of ``engine``, read from ``constants.yaml`` in ``package``.

    Raises:
        UndeclaredConstantsError: the file is missing, lacks a key, or has a value of the wrong
            type.
    """
    file = f"{package.removeprefix('parc.').replace('.', '/')}/{TABLE}"
    try:
        text = files(package).joinpath(TABLE).read_text("utf-8")
    except FileNotFoundError:
        raise UndeclaredConstantsError(f"{file} does not exist") from None
    return build_engine_constants(engine, parse_table(text), file, text)


def build_engine_constants(
    engine: str, tree: Mapping[str, Any], file: str, text: str = ""
) -> EngineConstants:
    """Return the constants of ``engine``, converted from ``tree``, the parsed file ``file``.

    ``text`` is the text of the file, in which the line of an invalid value is looked up.

    Raises:
        UndeclaredConstantsError: ``tree`` lacks a key, has a value of the wrong type, or a number
            outside of its range.
    """
    named = {"name": engine, **tree}
    missing = list(_missing_constants(EngineConstants, named))
    if missing:
        raise UndeclaredConstantsError(f"{file} lacks {', '.join(missing)}")
    try:
        found: EngineConstants = from_json(EngineConstants, named)
    except ValueError as error:
        raise UndeclaredConstantsError(f"{file}: {error}") from None
    if defect := find_range_defect(found):
        key = defect.partition(" ")[0]
        raise UndeclaredConstantsError(f"{file}{_line_of_key(text, key)}: {defect}")
    return found


def _line_of_key(text: str, key: str) -> str:
    """Return the line of the dotted ``key`` in a YAML text, as ``:12``; empty if it is not found.

    The key of each section is searched after that of the section around it.
    """
    lines, start = text.split("\n"), 0
    for name in key.split("."):
        found = (
            number
            for number, line in enumerate(lines[start:], start=start + 1)
            if line.strip().partition(":")[0] == name
        )
        start = next(found, 0)
        if not start:
            return ""
    return f":{start}"


def _missing_constants(kind: type, tree: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the dotted path of every required field of the dataclass ``kind`` that ``tree`` lacks.

    Nested dataclasses are searched too; ``path`` is the prefix of their fields.
    """
    hints = get_type_hints(kind)
    for field in fields(kind):
        name, hint = f"{path}{field.name}", hints[field.name]
        # The hint may be ``Table | None``: the dataclass is the hint itself or one of its
        # alternatives.
        nested = next((one for one in (hint, *get_args(hint)) if is_dataclass(one)), None)
        value = tree.get(field.name)
        if field.name not in tree:
            if field.default is MISSING:
                yield name
        elif isinstance(nested, type) and isinstance(value, Mapping):
            yield from _missing_constants(nested, value, f"{name}.")
