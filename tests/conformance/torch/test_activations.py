"""The memory model's activations per layer equal the bytes that autograd saves."""

from __future__ import annotations

from typing import Any

import pytest

from parc.backends.registry import framework
from parc.backends.shared.torch.traffic import TRANSFORMERS_ROUTED
from parc.compiler.cost.counts.adapters import adapter_params
from parc.compiler.cost.kernels.adapters import adapter_traffic_bytes
from parc.compiler.cost.kernels.layer_kernels import element_wise_bytes
from parc.compiler.cost.memory.activations import layer_activations
from parc.compiler.cost.memory.peak import memory_model_at_zero_stage
from parc.compiler.ir import DENSE, Plan
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.compiled import files_of, planned
from tests.conformance.tool_checkers import tool_verdicts

pytestmark = pytest.mark.conformance
BATCH, LENGTH = 2, 256
SIZES = {"hidden": 1024, "ffn": 3584, "heads": 16, "kv_heads": 4, "head_dim": 64, "vocab": 512}
PROGRAMS = {
    "fsdp": (["fsdp", "torchrun"], 3),
    "fsdp, DDP": (["fsdp", "torchrun"], 0),
    "accelerate": (["accelerate", "torchrun"], 3),
    "accelerate, DDP": (["accelerate", "torchrun"], 0),
    "accelerate, LoRA": (["accelerate", "torchrun"], 3),
    "accelerate, LoRA of attention": (["accelerate", "torchrun"], 3),
    "accelerate, LoRA, DDP": (["accelerate", "torchrun"], 0),
    "deepspeed": (["deepspeed", "torchrun"], 1),
    "torchtitan": (["torchtitan", "torchrun"], 3),
}
"""Program -> (targets, ZeRO stage)."""


def spec_of(name: str) -> dict[str, Any]:
    """Return a spec with two layers on one node, without recomputation."""
    emit, zero_stage = PROGRAMS[name]
    job: dict[str, Any] = {"gradient_precision": "bf16"} if name == "accelerate" else {}
    if "LoRA" in name:
        targets = "attention" if "attention" in name else "all-linear"
        job = {"kind": "finetune", "load_dir": "/base", "lora": {"rank": 16, "targets": targets}}
    return {
        "parc": 1,
        "name": "tiny",
        "model": {
            "name": "tiny",
            "layers": 2,
            **SIZES,
            "position": {"kind": "rope", "max_positions": LENGTH},
        },
        "cluster": {"node": "dgx-h100", "nodes": 1},
        "job": {"sequence_length": LENGTH, "global_batch": 16} | job,
        "layout": {
            **{"micro_batch": BATCH, "tp": 1, "pp": 1, "cp": 1, "recompute": "none"},
            "zero_stage": zero_stage,
        },
        "emit": emit,
    }


def plan_of(name: str) -> Plan:
    """Return the plan of a program."""
    plan, sink = planned(spec_of(name))
    assert isinstance(plan, Plan), sink.diagnostics
    return plan


@pytest.fixture(scope="module")
def verdicts() -> dict[str, dict[str, Any]]:
    """Measure the bytes that autograd saves in each of the programs."""
    cases = [
        {
            "name": name,
            "program": PROGRAMS[name][0][0],
            "files": files_of(spec_of(name)),
            "autocast": name.endswith("DDP"),
            "tokens": [BATCH, LENGTH],
            "hidden": SIZES["hidden"],
        }
        for name in PROGRAMS
    ]
    found = tool_verdicts("torch", "torch/activations_checker.py", cases)
    return {verdict["name"]: verdict for verdict in found}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_memory_model_counts_the_bytes_that_autograd_saves(
    name: str, verdicts: dict[str, dict[str, Any]]
) -> None:
    plan, verdict = plan_of(name), verdicts[name]
    cost_model = cost_model_for(plan.problem, framework(plan.problem.framework))
    program = memory_model_at_zero_stage(cost_model, plan.layout.zero_stage)
    batch = (BATCH * LENGTH, LENGTH)
    layer = layer_activations(plan.problem.model, plan.layout, DENSE, batch, program)
    assert verdict["accepted"], verdict
    tables = 4 * 4 * LENGTH * SIZES["head_dim"] // 2 if name == "deepspeed" else 0
    assert verdict["activations"] == layer.total + tables  # each layer builds its rotary tables
    lora = plan.problem.job.lora
    cast = adapter_params(plan.problem.model, DENSE, lora) if lora else LINEAR_PARAMETERS
    assert verdict["weights"] == program.state.cast * cast


HIDDEN, KEYS = SIZES["hidden"], SIZES["kv_heads"] * SIZES["head_dim"]
LINEAR_PARAMETERS = HIDDEN * (2 * HIDDEN + 2 * KEYS + 3 * SIZES["ffn"])


UNCOMPILED = [name for name in PROGRAMS if name != "torchtitan"]


@pytest.mark.parametrize("name", UNCOMPILED)
def test_the_cost_model_counts_the_bytes_that_element_wise_operators_move(
    name: str, verdicts: dict[str, dict[str, Any]]
) -> None:
    plan, verdict = plan_of(name), verdicts[name]
    cost_model = cost_model_for(plan.problem, framework(plan.problem.framework))
    traffic, model = cost_model.traffic(plan.layout), plan.problem.model
    moved = element_wise_bytes(model, plan.layout, DENSE, BATCH * LENGTH, traffic)
    weights = sum(cost_model.trained_layer_parameters(DENSE, plan.layout))
    lora, cast = plan.problem.job.lora, traffic.adapter_cast
    moved += adapter_traffic_bytes(model, lora, DENSE, BATCH * LENGTH, cast)
    forward, backward = verdict["traffic"]
    assert forward == pytest.approx(moved.forward + traffic.cast.forward * weights, rel=0.03)
    assert backward == pytest.approx(moved.backward + traffic.cast.backward * weights, rel=0.03)


def test_the_cost_model_counts_the_bytes_that_move_the_routed_tokens_of_transformers() -> None:
    cases = [{"name": "experts", "tokens": 512, "hidden": 1024, "experts": 16, "top_k": 8}]
    (verdict,) = tool_verdicts("torch", "torch/routing_checker.py", cases)
    assert verdict["accepted"], verdict
    forward, backward = verdict["traffic"]
    assert forward == pytest.approx(TRANSFORMERS_ROUTED.alone.forward, rel=0.03)
    assert backward == pytest.approx(TRANSFORMERS_ROUTED.alone.backward, rel=0.03)
