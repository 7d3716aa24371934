"""The emitted FSDP program needs the memory that the plan predicts, counted on CPU ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parc.backends.registry import framework
from parc.compiler.cost.memory.peak import memory_model_at_zero_stage, stage_memory
from parc.compiler.cost.setup.stages import stage_contents
from parc.compiler.ir import Plan
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.compiled import files_of, planned
from tests.conformance.real_runs import run_script

pytestmark = pytest.mark.conformance
PROGRAM = Path(__file__).with_name("peak_ranks.py")
LEAST, MOST = 0.99, 1.07
"""Limits of the prediction divided by the measured peak. It is a few percent higher where gathered
weights and logits, which the memory model adds, do not exist together."""
LAYOUTS: dict[str, dict[str, Any]] = {
    "DDP": {"zero_stage": 0, "recompute": "none"},
    "FSDP2, weights stay gathered": {"zero_stage": 2, "recompute": "none"},
    "FSDP2": {"zero_stage": 3, "recompute": "none"},
    "TP 2, recompute": {"zero_stage": 3, "tp": 2, "recompute": "full"},
}
LORA: dict[str, dict[str, Any]] = {
    "LoRA, DDP": {"zero_stage": 0, "recompute": "none"},
    "LoRA, weights stay gathered": {"zero_stage": 2, "recompute": "none"},
    "LoRA, FSDP2": {"zero_stage": 3, "recompute": "none"},
    "LoRA, FSDP2, recompute": {"zero_stage": 3, "recompute": "full"},
}
"""The same for programs that train adapters of the model of transformers."""


def spec_of(layout: dict[str, Any]) -> dict[str, Any]:
    """Return a spec with several micro-batches per step on two GPUs."""
    return {
        "parc": 1,
        "name": "tiny",
        "model": {
            "name": "tiny",
            **{"layers": 4, "hidden": 256, "ffn": 704, "heads": 8, "kv_heads": 4, "head_dim": 32},
            **{"vocab": 2048, "position": {"kind": "rope", "max_positions": 512}},
        },
        "cluster": {
            "node": {"base": "dgx-h100", "gpus_per_node": 2, "nvlink_domain": 2},
            "nodes": 1,
        },
        "job": {"sequence_length": 512, "global_batch": 8, "steps": 2},
        "layout": {"micro_batch": 2, "tp": 1, "pp": 1, "cp": 1} | layout,
        "emit": ["fsdp", "torchrun"],
    }


def predicted_bytes(plan: Plan) -> float:
    """Return the predicted peak without the workspaces of GPU libraries."""
    cost_model = cost_model_for(plan.problem, framework("fsdp"))
    program = memory_model_at_zero_stage(cost_model, plan.layout.zero_stage)
    load = stage_contents(plan.problem.model, plan.layout.split, 0)
    stage = stage_memory(cost_model, plan.layout, load, 0, program)
    return stage.allocated_bytes - stage.workspace_bytes


@pytest.mark.parametrize("kind", LAYOUTS)
def test_the_emitted_program_has_the_predicted_peak(kind: str, tmp_path: Path) -> None:
    spec = spec_of(LAYOUTS[kind])
    plan, sink = planned(spec)
    assert isinstance(plan, Plan), sink.diagnostics
    for path, text in files_of(spec).items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    script = tmp_path / "peaks.sh"
    script.write_text(
        'exec torchrun --nproc-per-node 2 --master-port "$MASTER_PORT" '
        f"{PROGRAM} {tmp_path}/fsdp/train.py --device cpu --dtype bf16\n"
    )
    run_script(script, PEAKS=str(tmp_path / "peaks"))
    for rank in range(2):
        lines = (tmp_path / f"peaks.{rank}").read_text().splitlines()
        assert len(lines) == 2
        assert LEAST < predicted_bytes(plan) / int(lines[-1]) < MOST, (kind, lines)
