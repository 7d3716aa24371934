"""The search for DeepSpeed against the same search done plainly, offload and ZeRO++ included."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Search
from parc.compiler.search.search_layouts import search_layouts
from tests.every_layout import enumerate_layouts
from tests.samples import slow_cases
from tests.search.search_reference import assert_plain, cost_model_of, search_without_placement
from tests.search.traced_layout import TracedLayout

MODELS = ("gpt2-xl", "llama-3-8b", "llama-2-13b", "mixtral-8x7b", "llama-3-70b", "llama-65b")
NVME = {"optimizer": "nvme", "parameters": "nvme", "nvme_path": "/local"}
PINS: tuple[dict[str, Any], ...] = (
    {},
    {"zero_stage": 3},
    {"zero_stage": 3, "zero_plus": {"hpz": 8, "quantized_weights": True}},
    {"offload": "cpu"},
    {"zero_stage": 3, "offload": NVME},
    {"pp": 2},
    {"zero_stage": 2, "recompute": "full"},
    {"zero_stage": 3, "zero_plus": {"quantized_gradients": True}},
    {"tp": 2},
    {"cp": 2},
    {"pp": 4, "recompute": {"granularity": "full", "method": "uniform", "layers": 2}},
    {"zero_stage": 3, "offload": {"parameters": "cpu", "optimizer": "cpu"}},
)
CASES = 36


def _case(number: int) -> dict[str, Any]:
    """A spec, the same for the same number."""
    draw = Random(f"deepspeed {number}")
    job: dict[str, Any] = {
        "sequence_length": draw.choice((2048, 4096, 8192)),
        "global_batch": draw.choice((48, 96, 128, 480)),
    }
    if draw.random() < 0.3:
        job["gradient_precision"] = "bf16"
    return {
        "parc": 1,
        "name": f"case-{number}",
        "model": MODELS[number % len(MODELS)],
        "cluster": {
            "node": draw.choice(("dgx-h100", "dgx-a100", "dgx-1-v100")),
            "nodes": draw.choice((1, 2, 3, 4, 6)),
        },
        "job": job | ({"precision": "fp16"} if draw.random() < 0.3 else {}),
        "layout": PINS[(number + number // len(PINS)) % len(PINS)],
        "goals": {"maximize": draw.choice(("throughput", "throughput", "fewest-gpus"))},
        "launch": {"program": "train.py"},
        "emit": ["deepspeed"],
    }


def _legal(number: int) -> dict[str, Any]:
    """The case with a precision that its GPU has, and gradients that go with it."""
    spec = _case(number)
    if spec["cluster"]["node"] == "dgx-1-v100":
        spec["job"]["precision"] = "fp16"
    if spec["job"].get("precision") == "fp16":
        spec["job"].pop("gradient_precision", None)
    return spec


LARGE = (9, 15, 23, 33, 34)
"""Cases whose plain search takes a quarter of a CPU second or more."""


@cache
def _searched(number: int) -> tuple[CostModel, Search | None]:
    """Return the problem of a case and its search, which two tests use."""
    cost_model = cost_model_of(_legal(number))
    return cost_model, search_without_placement(cost_model)


@pytest.mark.parametrize("number", slow_cases(range(CASES), LARGE.__contains__))
def test_the_search_equals_a_plain_one(number: int) -> None:
    assert_plain(*_searched(number))


def test_most_of_these_searches_find_something() -> None:
    found = [_searched(number)[1] for number in range(CASES)]
    assert sum(search is not None for search in found) >= 24


def _offloaded(spec: dict[str, Any]) -> str:
    found = search_layouts(cost_model_of(spec), Sink())
    assert found is not None
    return found.ranked[0].layout.offload.optimizer


def test_the_host_is_a_last_resort() -> None:
    spec = _case(0) | {"model": "llama-3-70b", "layout": {}, "goals": {}}
    spec["job"] = {"sequence_length": 4096, "global_batch": 64}
    spec["cluster"] = {"node": "dgx-a100", "nodes": 2}
    assert _offloaded(spec) == "cpu"
    assert _offloaded(spec | {"cluster": {"node": "dgx-a100", "nodes": 8}}) == "none"
    assert _offloaded(spec | {"model": "llama-3-8b", "layout": {"offload": "cpu"}}) == "cpu"


@pytest.mark.parametrize("number", range(0, CASES, 3))
def test_a_rule_reads_no_field_that_it_does_not_name(number: int) -> None:
    cost_model = cost_model_of(_legal(number))
    families = list(enumerate_layouts(cost_model.problem, cost_model.framework))
    layouts = [layout for family in families[:: max(len(families) // 20, 1)] for layout in family]
    for rule in all_rules(cost_model.problem, cost_model.framework):
        for layout in layouts:
            traced = TracedLayout(layout)
            rule.broken(cost_model.problem, traced)  # type: ignore[arg-type]
            assert traced.seen <= set(rule.reads), rule.code
