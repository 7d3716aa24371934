"""The search against the same search done plainly."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest

from parc.backends.base import Framework
from parc.compiler.cost.memory.peak import peak_bytes
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, Plan, Problem, Search
from parc.compiler.ir.rule import ALL_LAYOUT_FIELDS, DECIDED_BY
from parc.compiler.search.search_layouts import search_layouts
from parc.compiler.spec.job_spec import DEFAULT_TIE
from tests.compiled import planned
from tests.every_layout import enumerate_layouts
from tests.samples import slow_cases
from tests.search.search_reference import assert_plain, cost_model_of, search_without_placement
from tests.search.traced_layout import TracedLayout

MODELS = (
    "gpt2-xl",
    "llama-3-8b",
    "llama-2-13b",
    "gemma-2-9b",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "qwen3-30b-a3b",
)
PINS: tuple[dict[str, Any], ...] = (
    {},
    {"tp": 2},
    {"pp": 4},
    {"pp": 3},
    {"vpp": 3, "pp": 4},
    {"micro_batch": 2},
    {"recompute": "full"},
    {"recompute": {"granularity": "full", "method": "block", "layers": 2}},
    {"recompute": {"granularity": "selective", "modules": ["core_attn"]}},
    {"zero_stage": 0},
    {"sequence_parallel": False},
    {"cp": 2, "tp": 4},
)


def _case(number: int) -> dict[str, Any]:
    """A spec, the same for the same number."""
    draw = Random(number)
    job: dict[str, Any] = {
        "sequence_length": draw.choice((2048, 4096, 8192)),
        "global_batch": draw.choice((48, 96, 128, 480)),
    }
    if draw.random() < 0.3:
        job["precision"] = "fp8"
    if number % 4 == 1:
        job |= {"moe_dispatcher": "hybridep", "moe_overlap": True}
    goals: dict[str, Any] = {
        "maximize": draw.choice(("throughput", "throughput", "fewest-gpus", "latency"))
    }
    if number % 5 == 4:
        goals["limits"] = {"tp": {"max": 4}, "vpp": {"ban": [2, 3]}, "pp": {"only": [1, 2, 4]}}
    return {
        "parc": 1,
        "name": f"case-{number}",
        "model": MODELS[number % len(MODELS)],
        "cluster": {
            "node": draw.choice(("dgx-h100", "dgx-a100", "gb200-nvl72")),
            "nodes": draw.choice((1, 2, 3, 4, 6)),
        },
        "job": job,
        "layout": PINS[number % len(PINS)],
        "goals": goals,
    }


@cache
def _searched(number: int) -> tuple[CostModel, Search | None]:
    """Return the problem of a case and its search, which two tests use."""
    cost_model = cost_model_of(_case(number))
    return cost_model, search_without_placement(cost_model)


LARGE = (0, 6, 12, 13, 20, 21, 22, 25, 27, 32, 33, 34)
"""Cases whose plain search takes a quarter of a CPU second or more; with experts, up to 5."""


@pytest.mark.parametrize("number", slow_cases(range(36), LARGE.__contains__))
def test_the_search_equals_a_plain_one(number: int) -> None:
    assert_plain(*_searched(number))


@pytest.mark.parametrize(
    "model",
    ["llama-3.1-405b", "mixtral-8x22b", pytest.param("deepseek-v2", marks=pytest.mark.conformance)],
)
def test_the_smallest_layout_is_reported_if_none_fits(model: str) -> None:
    spec = _case(0) | {"model": model, "layout": {}}
    spec["cluster"] = {"node": "dgx-h100", "nodes": 1}
    cost_model = cost_model_of(spec)
    sink = Sink()
    assert search_layouts(cost_model, sink) is None
    problem, rules = cost_model.problem, all_rules(cost_model.problem, cost_model.framework)
    least = min(
        peak_bytes(cost_model, layout)
        for family in enumerate_layouts(problem, cost_model.framework)
        for layout in family
        if not any(rule.broken(problem, layout) for rule in rules)
    )
    (found,) = sink.diagnostics
    assert found.code == "PARC-R17"
    assert f"needs {least / 2**30:.1f} GiB" in found.finding.message


def test_gpus_that_the_goal_leaves_idle_are_no_mistake() -> None:
    spec = {
        **{"parc": 1, "name": "few", "model": "gpt2-small", "emit": ["megatron"]},
        "cluster": {"node": "hgx-h100", "nodes": 2},
        "job": {"sequence_length": 1024, "global_batch": 16},
    }
    few = {"goals": {"maximize": "fewest-gpus"}}
    found, sink = planned(spec | few)
    assert isinstance(found, Plan)
    assert found.layout.world < 16
    assert "PARC-T15" not in {one.code for one in sink.diagnostics}
    _, sink = planned(spec | few | {"layout": {"dp": 1, "tp": 1, "pp": 1}})
    assert "PARC-T15" in {one.code for one in sink.diagnostics}


@pytest.mark.parametrize(
    ("target", "layout", "remedy"),
    [
        (["accelerate"], {}, "use a shorter sequence_length or a target that splits the logits"),
        (["fsdp"], {}, "use a shorter sequence_length or a target that splits the logits"),
        (["megatron"], {"tp": 1, "cp": 1}, "use a larger tp, a larger cp or a shorter sequence"),
        (["megatron"], {"tp": 8}, "use a larger tp, more GPUs (about 8 hosts of this type"),
    ],
)
def test_a_remedy_for_too_little_memory_is_one_that_can_help(
    target: list[str], layout: dict[str, Any], remedy: str
) -> None:
    spec = _case(0) | {"model": "llama-3.1-8b", "layout": layout, "emit": target}
    spec["cluster"] = {"node": "hgx-h100", "nodes": 1}
    spec["job"] = {"sequence_length": 4_194_304 if "tp" in layout else 131_072, "global_batch": 16}
    sink = Sink()
    assert search_layouts(cost_model_of(spec), sink) is None
    assert (sink.diagnostics[0].finding.help or "").startswith(remedy)


def test_most_of_these_searches_find_something() -> None:
    found = [_searched(number)[1] for number in range(36) if number not in LARGE]
    assert sum(search is not None for search in found) >= 16


@pytest.mark.parametrize("goal", ["throughput", "fewest-gpus"])
def test_a_part_of_the_layers_is_recomputed_if_memory_is_short(goal: str) -> None:
    spec = _case(0) | {"model": "qwen3-30b-a3b", "cluster": {"node": "dgx-h100", "nodes": 2}}
    spec["layout"] = {"pp": 2, "tp": 1, "cuda_graphs": False}
    spec["job"] = {
        "sequence_length": 4096,
        "global_batch": 64,
        "gradient_precision": "bf16",
    }
    spec["goals"] = {"maximize": goal, "tie": "0%"}
    cost_model = cost_model_of(spec)
    found = search_without_placement(cost_model)
    assert_plain(cost_model, found)
    assert found is not None
    assert found.ranked[0].layout.recompute.method == "block"


@pytest.mark.parametrize("number", range(0, 36, 3))
def test_a_rule_reads_no_field_that_it_does_not_name(number: int) -> None:
    cost_model = cost_model_of(_case(number))
    problem = cost_model.problem
    families = list(enumerate_layouts(problem, cost_model.framework))
    for family in families[:: max(len(families) // 20, 1)]:
        for rule in all_rules(problem, cost_model.framework):
            for layout in family:
                traced = TracedLayout(layout)
                rule.broken(problem, traced)  # type: ignore[arg-type]
                assert traced.seen <= set(rule.reads), (rule.code, traced.seen)


LIMITS: dict[str, dict[str, Any]] = {
    "tp": {"max": 4, "ban": [1]},
    "pp": {"only": [2, 4]},
    "micro_batch": {"min": 2},
    "vpp": {"max": 3},
    "dp": {"ban": [8]},
}


def _limited(limits: dict[str, Any], **pins: int) -> dict[str, Any]:
    return {
        "parc": 1,
        "name": "limited",
        "model": "llama-3-8b",
        "cluster": {"node": "dgx-h100", "nodes": 4},
        "job": {"sequence_length": 4096, "global_batch": 256},
        "goals": {"limits": limits},
        "layout": pins,
    }


def test_no_layout_breaks_a_limit() -> None:
    cost_model = cost_model_of(_limited(LIMITS))
    layouts = [one for family in enumerate_layouts(*_open(cost_model)) for one in family]
    assert {layout.tp for layout in layouts} == {2, 4}
    assert {layout.pp for layout in layouts} == {2, 4}
    assert {layout.micro_batch for layout in layouts} == {2, 4, 8}
    assert {layout.vpp for layout in layouts} == {1, 2}
    assert 8 not in {layout.dp for layout in layouts}
    found = search_layouts(cost_model, Sink())
    assert found is not None
    # The search leaves out layouts with CUDA graphs unless some are faster, and ZeRO-2 and 3
    # if others fit.
    tried = [one for one in layouts if one.zero_stage == 1]
    assert found.enumerated in (len(tried), sum(not one.cuda_graphs for one in tried))


def test_limits_only_take_layouts_away() -> None:
    every = cost_model_of(_limited({}))
    some = cost_model_of(_limited(LIMITS))
    all_layouts = {one for family in enumerate_layouts(*_open(every)) for one in family}
    left = {one for family in enumerate_layouts(*_open(some)) for one in family}
    kept = {
        layout
        for layout in all_layouts
        if layout.tp in (2, 4)
        and layout.pp in (2, 4)
        and layout.micro_batch >= 2
        and layout.vpp <= 3
        and layout.dp != 8
    }
    assert left == kept


def test_a_pin_outside_its_limit_leaves_nothing_and_says_so() -> None:
    sink = Sink()
    assert search_layouts(cost_model_of(_limited({"tp": {"max": 4}}, tp=8)), sink) is None
    found = [(one.code, one.finding.message) for one in sink.diagnostics]
    message = "no layout of 32 GPUs satisfies the settings of layout and the limits"
    assert found == [("PARC-G01", f"{message}; goals.limits.tp excludes tp 8")]


def _open(cost_model: CostModel) -> tuple[Problem, Framework]:
    return cost_model.problem, cost_model.framework


def test_a_point_decides_every_field_of_a_layout() -> None:
    assert set(DECIDED_BY) == set(ALL_LAYOUT_FIELDS)


def test_a_layout_of_the_space_is_an_ordinary_layout() -> None:
    cost_model = cost_model_of(_case(0))
    layout = next(enumerate_layouts(cost_model.problem, cost_model.framework))[0]
    same = Layout(**{name: getattr(layout, name) for name in ALL_LAYOUT_FIELDS})
    assert layout == same
    assert hash(layout) == hash(same)
    assert (layout.dp, layout.world, layout.edp) == (same.dp, same.world, same.edp)


def test_stages_whose_layers_no_number_of_chunks_divides_get_uneven_chunks() -> None:
    """92 layers in 4 stages: without chunks, the pipeline waits 27 % longer for 8 sequences."""
    spec = {
        **{"parc": 1, "name": "chunks", "model": "glm-4.5", "emit": ["megatron"]},
        "cluster": {"node": "mi355x-8", "nodes": 4},
        "job": {"sequence_length": 8192, "global_batch": 8},
        "layout": {"pp": 4},
    }
    free = search_layouts(cost_model_of(spec), Sink())
    assert free is not None
    assert free.ranked[0].layout.vpp > 1
    for vpp in (1, 6, 12):
        pinned = {**spec, "layout": {"pp": 4, "vpp": vpp}}
        found = search_layouts(cost_model_of(pinned), Sink())
        assert found is not None
        assert free.ranked[0].step_seconds <= found.ranked[0].step_seconds * (1 + DEFAULT_TIE)
