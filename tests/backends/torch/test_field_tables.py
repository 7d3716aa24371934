"""The tables of PyTorch's frameworks speak for every field of the plan, by functions that exist."""

from __future__ import annotations

from types import ModuleType

import pytest

from parc.backends import torch_program
from parc.backends.accelerate import derived as accelerate
from parc.backends.field_table import FieldTable, field_table, functions_of
from parc.backends.fsdp import derived as fsdp
from parc.backends.torchtitan import derived as torchtitan
from tests.backends.megatron.test_flag_table import LATENT, PLAN_FIELDS

MODULES: dict[str, ModuleType] = {
    "fsdp": fsdp,
    "torchtitan": torchtitan,
    "accelerate": accelerate,
}


def table(name: str) -> FieldTable:
    return field_table(f"parc.backends.{name}")


def said(name: str) -> set[str]:
    return {field for row in table(name).rows for field in row.fields} | set(table(name).ignored)


@pytest.mark.parametrize("name", MODULES)
def test_every_field_of_the_plan_has_a_setting_or_a_reason_to_be_ignored(name: str) -> None:
    nouns = {path for path in said(name) if any(one.startswith(f"{path}.") for one in PLAN_FIELDS)}
    missing = [
        path
        for path in PLAN_FIELDS
        if path not in said(name) and not any(path.startswith(f"{noun}.") for noun in nouns)
    ]
    assert missing == []


@pytest.mark.parametrize("name", MODULES)
def test_every_field_of_the_table_is_a_field_of_the_plan(name: str) -> None:
    known = {*PLAN_FIELDS, *(f"{path}.{last}" for path, last in LATENT)}
    known |= {path.rsplit(".", depth)[0] for path in known for depth in (1, 2)}
    assert said(name) - known == set()


@pytest.mark.parametrize("name", MODULES)
def test_every_function_of_the_table_exists_and_every_function_is_used(name: str) -> None:
    used = {row.derived for row in table(name).rows if row.derived}
    own, shared = functions_of(MODULES[name]).keys(), functions_of(torch_program).keys()
    assert used <= own | shared
    assert own - used <= {"sharded", "plugs_deepspeed"}
    assert not own & shared


@pytest.mark.parametrize("name", MODULES)
def test_no_setting_is_both_constant_and_computed(name: str) -> None:
    for row in table(name).rows:
        assert not (row.derived and row.constant is not None), row.setting
        assert row.derived or row.fields or row.constant is not None, row.setting
