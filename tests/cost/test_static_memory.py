"""Weights, gradients and optimizer state against Megatron's own buffers.

The expected figures were measured with Megatron-Core's DistributedDataParallel and
DistributedOptimizer on the meta device (0.19.2 and its successor agree), GiB a rank.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.backends.registry import framework
from parc.compiler.cost.memory import all_stages
from parc.compiler.cost.pricing import Pricing
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Plan
from parc.compiler.pipeline import plan_spec
from parc.compiler.spec.source import Source

GIB = 2**30
DUPLICATED_GIB = 7168 * (1536 + 512 + 64) / 2 * (6 + 12 / 32) / GIB
"""Half of the latent down-projections of one DeepSeek-V3 layer.

The measurement ran Megatron's local layers, which split them over tp 2; the TransformerEngine
layers that a GPU run uses keep them whole (multi_latent_attention.py, parallel_mode duplicated).
"""


def plan_of(**parts: Any) -> Plan:
    """Compile a mapping that must be fine."""
    sink = Sink()
    spec = {"parc": 1, "name": "memory", **parts}
    plan = plan_spec(Source("memory.yaml", json.dumps(spec), None), (), sink)
    assert plan is not None, [found.finding.message for found in sink.diagnostics]
    return plan


CASES: list[tuple[str, dict[str, Any], dict[int, float]]] = [
    (
        "llama-3-70b tp8 pp4 cp2 dp4",
        {
            "model": "llama-3-70b",
            "cluster": {"node": "dgx-h100", "nodes": 32},
            "job": {"sequence_length": 8192, "global_batch": 128},
            "layout": {"tp": 8, "pp": 4, "cp": 2, "vpp": 5, "micro_batch": 1},
        },
        {0: 15.867, 1: 14.944},
    ),
    (
        "mixtral-8x7b tp2 pp4 ep8 etp1",
        {
            "model": "mixtral-8x7b",
            "cluster": {"node": "dgx-h100", "nodes": 8},
            "job": {"sequence_length": 4096, "global_batch": 256},
            "layout": {"tp": 2, "pp": 4, "cp": 1, "ep": 8, "etp": 1, "vpp": 1, "micro_batch": 1},
        },
        {0: 17.382},
    ),
    (
        "deepseek-v3 tp2 pp16 vpp2 ep64 with its published layout",
        {
            "model": {"base": "deepseek-v3", "mtp_layers": 1},
            "cluster": {"node": "hgx-h800", "nodes": 128},
            "job": {"sequence_length": 4096, "global_batch": 8192},
            "layout": {
                "tp": 2,
                "pp": 16,
                "cp": 1,
                "ep": 64,
                "etp": 1,
                "vpp": 2,
                "micro_batch": 1,
                "pipeline_layout": "Et*3|(tt|)*29,m|L",
            },
        },
        {
            0: 15.248 + 5 * DUPLICATED_GIB,
            1: 14.601 + 4 * DUPLICATED_GIB,
            14: 14.007 + 3 * DUPLICATED_GIB,
            15: 10.052 + 2 * DUPLICATED_GIB,
        },
    ),
]


@pytest.mark.parametrize(
    ("parts", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_static_memory_equals_the_buffers_of_megatron(
    parts: dict[str, Any], expected: dict[int, float]
) -> None:
    plan = plan_of(**parts)
    stages = all_stages(Pricing(plan.problem, framework("megatron")), plan.layout)
    for stage, gib in expected.items():
        assert stages[stage].static_bytes / GIB == pytest.approx(gib, abs=6e-4), stage
