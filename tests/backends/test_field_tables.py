"""Tables of frameworks and engines map all plan fields, and refer to existing functions."""

from __future__ import annotations

import pytest

from parc.backends.accelerate import computed_settings as accelerate
from parc.backends.deepspeed import derived_config
from parc.backends.fsdp import computed_settings as fsdp
from parc.backends.megatron.arguments import (
    derived_launch,
    derived_layout,
    derived_model,
    derived_optimizer,
    derived_position,
    derived_stages,
)
from parc.backends.megatron.bridge import computed_settings as bridge
from parc.backends.sglang import computed_settings as sglang
from parc.backends.shared.field_table import FieldTable, field_table, flag_table, public_functions
from parc.backends.shared.torch import program as torch_program
from parc.backends.shared.versions import is_in_range
from parc.backends.tensorrt_llm import computed_settings as tensorrt_llm
from parc.backends.torchtitan import computed_settings as torchtitan
from parc.backends.vllm import computed_settings as vllm
from tests.backends.plan_fields import LATENT, SERVING, TRAINING

MEGATRON = (
    *(derived_launch, derived_layout, derived_model, derived_optimizer),
    *(derived_position, derived_stages),
)
FRAMEWORKS = {
    "accelerate": (accelerate,),
    "deepspeed": (derived_config,),
    "fsdp": (fsdp,),
    "megatron": MEGATRON,
    "megatron.bridge": (bridge,),
    "torchtitan": (torchtitan,),
}
MODULES = {**FRAMEWORKS, "sglang": (sglang,), "tensorrt_llm": (tensorrt_llm,), "vllm": (vllm,)}
GROUPED = ("deepspeed", "megatron", "sglang", "tensorrt_llm", "vllm")
TORCH = ("accelerate", "deepspeed", "fsdp", "torchtitan")
SHARED = {
    *("has_grouped_gemm", "is_yarn", "uses_deepspeed"),
    *("uses_fsdp2", "format_pattern", "uses_autotp"),
}
"""Public functions that other functions call and no row refers to."""
ENGINE_OUTSIDE = ("problem.pins.", "endpoint.", "launch.", "placement.")
"""Objects other than the plan that flags of an engine depend on."""


def table(name: str) -> FieldTable:
    return (flag_table if name in GROUPED else field_table)(f"parc.backends.{name}")


def mapped(name: str) -> set[str]:
    return {field for row in table(name).rows for field in row.fields}


def said(name: str) -> set[str]:
    return mapped(name) | set(table(name).ignored)


def used(name: str) -> set[str]:
    """Return the functions that rows of the table refer to."""
    return {row.derived for row in table(name).rows if row.derived}


@pytest.mark.parametrize("name", MODULES)
def test_every_field_of_the_plan_has_a_setting_or_a_reason_to_be_ignored(name: str) -> None:
    every = TRAINING if name in FRAMEWORKS else SERVING
    parents = {path for path in said(name) if any(one.startswith(f"{path}.") for one in every)}
    missing = [
        path
        for path in every
        if path not in said(name) and not any(path.startswith(f"{parent}.") for parent in parents)
    ]
    assert missing == []


@pytest.mark.parametrize("name", MODULES)
def test_no_field_is_both_mapped_and_ignored(name: str) -> None:
    assert not mapped(name) & set(table(name).ignored)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_field_of_the_table_is_a_field_of_the_plan(name: str) -> None:
    known = {*TRAINING, *LATENT}
    known |= {path.rsplit(".", depth)[0] for path in known for depth in (1, 2)}
    # Only launch scripts and programs of Megatron depend on the section launch.
    outside = {path for path in said(name) - known if path.startswith("launch.")}
    assert outside == said(name) - known
    assert outside == set() or name in ("megatron", "megatron.bridge")


@pytest.mark.parametrize("name", ["sglang", "tensorrt_llm", "vllm"])
def test_every_field_of_an_engine_table_exists_in_the_plan_or_its_context(name: str) -> None:
    outside = said(name) - set(SERVING)
    assert [path for path in outside if not path.startswith(ENGINE_OUTSIDE)] == []


@pytest.mark.parametrize("name", MODULES)
def test_every_function_of_the_table_exists_and_every_function_is_used(name: str) -> None:
    own, alike = public_functions(*MODULES[name]).keys(), public_functions(torch_program).keys()
    others = {"megatron.bridge": public_functions(*MEGATRON).keys()}
    assert used(name) <= (own | alike if name in TORCH else own | others.get(name, set()))
    assert own - used(name) <= SHARED
    assert not own & alike


def test_every_function_that_torch_frameworks_share_is_used() -> None:
    assert public_functions(torch_program).keys() <= set[str]().union(*map(used, TORCH))


@pytest.mark.parametrize("name", MODULES)
def test_no_setting_is_both_constant_and_computed(name: str) -> None:
    for row in table(name).rows:
        assert not (row.derived and row.constant is not None), row.setting
        assert row.derived or row.fields or row.constant is not None, row.setting


def test_versions_are_ranges_of_numbers_and_not_of_texts() -> None:
    assert is_in_range("0.19.8", "0.17", None)
    assert not is_in_range("0.16", "0.17", None)
    assert is_in_range("0.19.6", None, "0.19.6")
    assert not is_in_range("0.19.10", None, "0.19.6")
