"""A cost model that has evaluated other layouts gives the same results as a new one.

A cost model keeps intermediate results. If the key of one of them lacked a quantity, the estimate
of a layout would depend on the layouts that were evaluated before it.
"""

from __future__ import annotations

import random
from itertools import chain, islice
from typing import Any

import pytest

from parc.backends.registry import framework_of_problem
from parc.compiler.cost.memory.peak import peak_stage
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, Problem
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.compiled import changed, resolved
from tests.every_layout import enumerate_layouts

BASE: dict[str, Any] = {
    "parc": 1,
    "name": "shared",
    "model": "qwen3-30b-a3b",
    "cluster": {"node": "hgx-h100", "nodes": 2},
    "job": {"sequence_length": 8192, "global_batch": 64},
}
CASES: dict[str, dict[str, Any]] = {
    "megatron": {"emit": ["megatron"], "layout": {"gtp": "auto", "egtp": "auto"}},
    "torchtitan": {"emit": ["torchtitan"]},
    "deepspeed": {"emit": ["deepspeed"]},
    "fsdp": {"emit": ["fsdp"], "model": "llama-3-8b"},
    "dense": {"emit": ["megatron"], "model": "llama-3-8b", "job.sequence_length": 32_768},
    "latent": {"emit": ["megatron"], "model": "moonlight-16b-a3b"},
    "hybrid": {"emit": ["megatron"], "model": "nemotron-h-8b"},
    "offload": {"emit": ["megatron"], "layout": {"offload": {"activations": ["attention"]}}},
}
SAMPLES = [30, pytest.param(100, marks=pytest.mark.conformance)]
"""Numbers of layouts per case: a few in all runs, more in ``make conformance``."""


def _sampled(problem: Problem, count: int) -> list[Layout]:
    """Return random layouts of ``problem`` that violate no rule, whether or not they fit."""
    framework = framework_of_problem(problem)
    rules = all_rules(problem, framework)
    layouts = list(islice(chain.from_iterable(enumerate_layouts(problem, framework)), 100_000))
    random.Random(7).shuffle(layouts)
    valid = (one for one in layouts if not any(rule.broken(problem, one) for rule in rules))
    return list(islice(valid, count))


@pytest.mark.parametrize("count", SAMPLES)
@pytest.mark.parametrize("case", CASES)
def test_estimates_do_not_depend_on_earlier_layouts(case: str, count: int) -> None:
    problem, sink = resolved(changed(BASE, CASES[case]))
    assert isinstance(problem, Problem), sink.diagnostics
    framework = framework_of_problem(problem)
    shared = cost_model_for(problem, framework)
    layouts = _sampled(problem, count)
    assert len(layouts) > min(count, 80) / 2
    for layout in layouts:
        alone = cost_model_for(problem, framework)
        assert peak_stage(shared, layout) == peak_stage(alone, layout), layout
        assert step_time(shared, layout) == step_time(alone, layout), layout
