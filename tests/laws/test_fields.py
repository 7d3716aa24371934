"""Two values of a field never lead to the same files and the same plan in silence."""

from __future__ import annotations

import pytest

from parc.backends.registry import default_targets, fields_without_effect
from parc.compiler.spec.fields_without_effect import LABELS, UNUSED_IN_SERVICES
from tests.laws.field_targets import (
    ALL_TARGETS,
    DEFAULT_TARGETS,
    FRAMEWORKS,
    Target,
    broken_fields,
    silent_without_context,
)
from tests.laws.field_walk import dropped_model_fields, silent_fields
from tests.samples import slow_cases

pytestmark = pytest.mark.usefixtures("few_requests")

QUICK = Target(("megatron",), below="launch.")
TARGETS = slow_cases(ALL_TARGETS, lambda one: one != QUICK)
"""All targets. Those with all fields take long, and the others are similar."""


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_every_field_has_an_effect_or_a_finding_or_a_reason_to_have_none(target: Target) -> None:
    answers, broken = broken_fields(target)
    assert broken == {}
    kinds = [answer.kind for answer in answers.values()]
    print(f"{target}: {len(kinds)} fields, {kinds.count('silent')} without effect")


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_field_that_needs_other_settings_is_reported_without_them(target: Target) -> None:
    assert silent_without_context(target) == []


@pytest.mark.conformance
@pytest.mark.parametrize("emit", [("megatron",), *FRAMEWORKS], ids="-".join)
def test_no_framework_trains_a_model_without_a_part_that_was_planned(emit: tuple[str, ...]) -> None:
    assert dropped_model_fields(emit) == []


@pytest.mark.parametrize("target", DEFAULT_TARGETS, ids=str)
def test_a_field_of_a_part_that_the_model_lacks_is_reported(target: Target) -> None:
    assert silent_fields(target.emit, target.serving, "", ("model.",)) == []


def test_the_default_targets_are_walked() -> None:
    assert {one.emit for one in DEFAULT_TARGETS} == {
        default_targets("train"),
        default_targets("serve"),
    }


def test_no_reason_for_having_no_effect_is_given_twice() -> None:
    for name in (
        *("megatron", "megatron-bridge", "deepspeed", "fsdp", "torchtitan", "accelerate"),
        *("sglang", "tensorrt-llm", "vllm"),
    ):
        unused = fields_without_effect(name)
        assert not unused.keys() & {*LABELS, *UNUSED_IN_SERVICES}
