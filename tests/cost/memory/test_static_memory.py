"""Weights, gradients and optimizer state, byte for byte, against Megatron's own buffers.

The expected figures were measured with Megatron-Core's DistributedDataParallel and
DistributedOptimizer on the meta device (0.19.2 and its successor agree): bytes of 16-bit
parameters, of fp32 gradients, and of fp32 masters and moments, by pipeline rank.
"""

from __future__ import annotations

from typing import Any

import pytest

from parc.backends.registry import framework
from parc.compiler.cost.memory.peak import memory_of_all_stages
from parc.compiler.ir import Plan
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests import compiled

LATENTS_BYTES = 7168 * (1536 + 512 + 64)
"""Half of the latent down-projections of one DeepSeek-V3 layer, in 16 bit.

The measurement ran Megatron's local layers, which split them over tp 2; the TransformerEngine
layers that a GPU run uses keep them whole (multi_latent_attention.py, parallel_mode duplicated).
"""

Bytes = tuple[int, int, int]


def plan_of(**parts: Any) -> Plan:
    """Return the plan of a valid spec."""
    return compiled.plan_of({"parc": 1, "name": "memory", **parts})


def whole_latents(layers: int, measured: Bytes) -> Bytes:
    """Return ``measured`` with unsplit latent down-projections in ``layers`` layers."""
    more = layers * LATENTS_BYTES
    weights, gradients, optimizer = measured
    return weights + more, gradients + 2 * more, optimizer + 6 * more // 32


CASES: list[tuple[str, dict[str, Any], dict[int, Bytes]]] = [
    (
        "llama-3-70b tp8 pp4 cp2 dp4",
        {
            "model": "llama-3-70b",
            "cluster": {"node": "dgx-h100", "nodes": 32},
            "job": {"sequence_length": 8192, "global_batch": 128},
            "layout": {"tp": 8, "pp": 4, "cp": 2, "vpp": 5, "micro_batch": 1},
        },
        {
            0: (4543086592, 9086173184, 3407314944),
            1: (4278845440, 8557690880, 3209134080),
            2: (4278845440, 8557690880, 3209134080),
            3: (4543102976, 9086205952, 3407327232),
        },
    ),
    (
        "mixtral-8x7b tp2 pp4 ep8 etp1",
        {
            "model": "mixtral-8x7b",
            "cluster": {"node": "dgx-h100", "nodes": 8},
            "job": {"sequence_length": 4096, "global_batch": 256},
            "layout": {"tp": 2, "pp": 4, "cp": 1, "ep": 8, "etp": 1, "vpp": 1, "micro_batch": 1},
        },
        {
            0: (3285843968, 6571687936, 8806170624),
            1: (3154771968, 6309543936, 8707866624),
            2: (3154771968, 6309543936, 8707866624),
            3: (3285852160, 6571704320, 8806176768),
        },
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
            0: whole_latents(5, (3851517952, 7703035904, 4817897472)),
            **dict.fromkeys(range(1, 13), whole_latents(4, (2348679168, 4697358336, 8631853056))),
            13: whole_latents(4, (2348693504, 4697387008, 8631855744)),
            14: whole_latents(3, (2790991872, 5581983744, 6666917760)),
            15: whole_latents(2, (2101018624, 4202037248, 4489678848)),
        },
    ),
]


@pytest.mark.parametrize(
    ("parts", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_static_memory_equals_the_buffers_of_megatron_to_the_byte(
    parts: dict[str, Any], expected: dict[int, Bytes]
) -> None:
    plan = plan_of(**parts)
    stages = memory_of_all_stages(cost_model_for(plan.problem, framework("megatron")), plan.layout)
    assert len(stages) == len(expected)
    for stage in stages:
        found = (stage.weights_bytes, stage.gradients_bytes, stage.optimizer_bytes)
        assert found == expected[stage.stage], stage.stage
