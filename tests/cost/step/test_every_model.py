"""Times of every kind of layer of every catalog model, for every framework."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from math import isfinite
from random import Random

import pytest

from parc.backends.registry import framework
from parc.compiler.catalog.library import Library
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.gradients import largest_stage_parameters
from parc.compiler.cost.step.layer_time import layer_time
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Layout, Problem
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.resolve.resolve_model import resolve_model
from tests.compiled import plan_of
from tests.every_layout import enumerate_layouts
from tests.search.search_reference import cost_model_of

FRAMEWORKS = ("megatron", "fsdp", "torchtitan", "deepspeed")
NAMES = Library().names("models")


def cost_model_with(problem: Problem, name: str, target: str) -> CostModel:
    model = resolve_model(name, Library(), Sink())
    assert model is not None
    return cost_model_for(replace(problem, model=model, framework=target), framework(target))


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_every_kind_of_layer_has_a_time(target: str) -> None:
    spec = {
        **{"parc": 1, "name": "kinds", "model": "llama-3-8b"},
        "cluster": {"node": "dgx-h100", "nodes": 2},
        "job": {"sequence_length": 2048, "global_batch": 64},
        "layout": {"tp": 1, "pp": 1, "cp": 1, "micro_batch": 1},
    }
    plan = plan_of(spec)
    layout: Layout = plan.layout
    for name in NAMES:
        cost_model = cost_model_with(plan.problem, name, target)
        for kind in cost_model.problem.model.kinds:
            found = layer_time(cost_model, layout, kind)
            assert isfinite(found.forward), (name, kind)
            assert found.forward > 0, (name, kind)


def test_the_shapes_of_a_kind_are_their_own_shapes() -> None:
    varied = 0
    for name in NAMES:
        model = resolve_model(name, Library(), Sink())
        assert model is not None
        for kind in model.kinds:
            shaped = model.with_shapes_of(kind)
            assert shaped.with_shapes_of(kind) == shaped
            varied += kind.variant > 0
    assert varied > 1


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("node", ["dgx-h100", "dgx-a100"])
def test_results_that_layouts_share_are_those_of_each_layout(target: str, node: str) -> None:
    spec = {
        **{"parc": 1, "name": "shared", "model": "deepseek-v2-lite", "emit": [target]},
        "cluster": {"node": node, "nodes": 2},
        "job": {"sequence_length": 4096, "global_batch": 64},
    }
    shared = cost_model_of(spec)
    layouts = list(chain.from_iterable(enumerate_layouts(shared.problem, shared.framework)))
    for layout in Random(1).sample(layouts, min(len(layouts), 100)):
        fresh = cost_model_for(shared.problem, shared.framework)
        for kind in shared.problem.model.kinds:
            assert layer_time(shared, layout, kind) == layer_time(fresh, layout, kind)
        assert largest_stage_parameters(shared, layout) == largest_stage_parameters(fresh, layout)
