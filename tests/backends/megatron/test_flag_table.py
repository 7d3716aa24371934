"""The flag table speaks for every field of the plan, with flags that the parsers know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from parc.backends.megatron import derived_layout, derived_model, derived_position
from parc.backends.megatron.arguments import flag_table, ignored_fields
from parc.backends.megatron.derived_model import spell_pattern
from parc.backends.megatron.extra_arguments import flags_of, known_flags
from parc.backends.megatron.versions import VERSIONS, as_number
from parc.compiler.ir import Job, Layout, Model

WHOLE = ("layout.split.chunks", "layout.offload", "layout.zero_plus", "model.attention.latent")
"""Nouns inside the plan that one flag or a group of flags speaks for as a whole."""


def leaves(kind: type, path: str) -> Iterator[str]:
    """Paths of all fields, nested nouns opened."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        inner, own = noun_in(hints[field.name]), f"{path}.{field.name}"
        if inner is None or own in WHOLE:
            yield own
        else:
            yield from leaves(inner, own)


def noun_in(hint: Any) -> type | None:
    """The dataclass that ``hint`` is, or is one of."""
    options = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    return next((option for option in options if is_dataclass(option)), None)


PLAN_FIELDS = [
    *leaves(Model, "model"),
    *leaves(Layout, "layout"),
    *leaves(Job, "job"),
]


def test_every_field_of_the_plan_has_a_flag_or_a_reason_to_be_ignored() -> None:
    said = {field for row in flag_table() for field in row.fields}
    missing = [path for path in PLAN_FIELDS if path not in said and path not in ignored_fields()]
    assert missing == []


def test_every_field_of_the_table_is_a_field_of_the_plan() -> None:
    known = {*PLAN_FIELDS, *(f"{path}.{name}" for path, name in LATENT)}
    said = {field for row in flag_table() for field in row.fields} | set(ignored_fields())
    assert said - known == set()


LATENT = [
    ("model.attention.latent", name)
    for name in ("q_lora_rank", "kv_lora_rank", "qk_nope_dim", "qk_rope_dim", "v_dim")
]


def test_every_flag_is_emitted_for_exactly_the_versions_that_know_it() -> None:
    for row in flag_table():
        for version in VERSIONS:
            early = row.since is not None and as_number(version) < as_number(row.since)
            late = row.until is not None and as_number(version) > as_number(row.until)
            assert (row.flag in flags_of(version)) == (not early and not late), (row.flag, version)


def test_every_function_of_the_table_exists_and_every_function_is_used() -> None:
    used = {row.derived for row in flag_table() if row.derived}
    modules = (derived_layout, derived_model, derived_position)
    have = {
        name
        for module in modules
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__
    }
    assert used <= have
    spare = {"spell_pattern", "has_grouped_gemm", "is_yarn", "_of"}
    assert have - used == spare


def test_every_known_flag_has_a_spelling_and_a_range_of_versions() -> None:
    assert len(known_flags()) > 800
    for flag, row in known_flags().items():
        assert flag.startswith("-")
        assert row.get("since", VERSIONS[0]) in VERSIONS
        assert row.get("until", VERSIONS[-1]) in VERSIONS


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ((False,) * 3 + (True,) * 58, "([0]*3+[1]*58)"),
        ((False, True) * 12, "([0]*1+[1]*1)*12"),
        ((False,) + (True,) * 26, "([0]*1+[1]*26)"),
    ],
)
def test_a_pattern_of_routed_layers_is_spelt_as_a_list_expression(
    pattern: tuple[bool, ...], text: str
) -> None:
    assert spell_pattern(pattern) == text
    assert tuple(bool(entry) for entry in eval(text)) == pattern
