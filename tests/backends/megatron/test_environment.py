"""The verifier derives the same environment as the launch scripts, for every kind of layout."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest

from parc.backends.megatron.arguments.environment import variables_for_layout
from parc.backends.megatron.verify import VERIFIER
from parc.compiler.ir import Plan
from parc.compiler.ir.serialize import as_json
from tests.compiled import emitted, plan_of

SPEC: dict[str, Any] = {
    **{"parc": 1, "name": "x", "model": "llama-3-8b", "emit": ["megatron", "torchrun"]},
    "job": {"sequence_length": 2048, "global_batch": 64},
    "layout": {"tp": 2, "pp": 1, "cp": 1},
}
NODES = ("dgx-a100", "dgx-h100", "dgx-b200", "mi300x-8")


@cache
def base_plan(node: str, **layout: Any) -> Plan:
    cluster = {"node": node, "nodes": 2}
    return plan_of({**SPEC, "cluster": cluster, "layout": {**SPEC["layout"], **layout}})


@pytest.mark.parametrize("node", NODES)
def test_the_verifier_expects_the_variables_that_launch_scripts_set(node: str) -> None:
    plan = base_plan(node)
    gpu = plan.problem.cluster.gpu
    offloads = (plan.layout.offload, replace(plan.layout.offload, activations=("attention",)))
    seen: set[str] = set()
    for tp, cp, zero, gtp, egtp, graphs, offload in product(
        *((1, 2), (1, 2), (1, 2), (1, 2), (1, 2), (False, True, "full_iteration"), offloads)
    ):
        layout = replace(
            plan.layout,
            **{"tp": tp, "cp": cp, "zero_stage": zero, "gtp": gtp, "egtp": egtp},
            **{"cuda_graphs": graphs, "offload": offload},
        )
        written = dict(variables_for_layout(gpu, layout))
        seen |= written.keys()
        document = {"layout": as_json(layout), "problem": as_json(plan.problem)}
        start = VERIFIER.program_start(document, {})
        assert start is not None
        assert dict(start.environment) == written, layout
    assert len(seen) == 3


def test_shared_weights_in_graphs_on_blackwell_compile() -> None:
    files = emitted(base_plan("dgx-b200", gtp=2, cuda_graphs=True))
    assert "CUDA_GRAPHS_USE_NODE_PRIORITY=1" in files["torchrun/launch.sh"]
