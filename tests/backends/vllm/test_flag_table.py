"""The flag table speaks for every field of a serving plan, with flags that the parser knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from parc.backends.vllm import derived
from parc.backends.vllm.arguments import flag_table, rows
from parc.backends.vllm.extra_arguments import known_flags
from parc.compiler.ir import ServingLayout
from parc.compiler.ir.serving_plan import EngineLimits, Service


def leaves(kind: type, path: str) -> Iterator[str]:
    """Paths of all fields, nested nouns opened."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        inner, own = noun_in(hints[field.name]), f"{path}.{field.name}"
        yield from [own] if inner is None else leaves(inner, own)


def noun_in(hint: Any) -> type | None:
    """The dataclass that ``hint`` is, or is one of."""
    options = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    return next((option for option in options if is_dataclass(option)), None)


PLAN_FIELDS = [
    *leaves(ServingLayout, "layout"),
    *leaves(EngineLimits, "limits"),
    *leaves(Service, "service"),
]


def said() -> set[str]:
    """Fields of which the table says anything."""
    table = flag_table()
    told = {path for _, _, row in rows() for path in row["from"]}
    return told | set(table["elsewhere"]) | set(table["ignored"])


def test_every_field_of_the_plan_has_a_flag_or_a_reason_to_be_ignored() -> None:
    assert [path for path in PLAN_FIELDS if path not in said()] == []


def test_every_field_of_the_table_is_a_field_of_the_plan() -> None:
    outside = ("problem.pins.", "endpoint.", "launch.", "placement.")
    assert [p for p in said() - set(PLAN_FIELDS) if not p.startswith(outside)] == []


def test_every_flag_is_one_that_the_parser_knows() -> None:
    assert [flag for _, flag, _ in rows() if flag not in known_flags()] == []


def test_every_function_of_the_table_exists_and_every_function_is_used() -> None:
    used = {row["value"] for _, _, row in rows() if "value" in row}
    have = {
        name
        for name, value in vars(derived).items()
        if callable(value) and getattr(value, "__module__", "") == derived.__name__
    }
    assert used == have
