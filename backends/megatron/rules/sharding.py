"""Rule on settings that Megatron-FSDP excludes (R22)."""

from __future__ import annotations

from parc.backends.megatron.sharding import fsdp_conflict
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule


def _violates_fsdp(problem: Problem, layout: Layout) -> bool:
    return bool(fsdp_conflict(problem, layout)[0])


def _explain_fsdp(problem: Problem, layout: Layout) -> Finding:
    conflict, valid_settings, fix = fsdp_conflict(problem, layout)
    return Finding(
        message=f"Megatron-FSDP (ZeRO-{layout.zero_stage}) does not support {conflict}",
        label="stage 2 or 3 needs Megatron-FSDP, which excludes this setting",
        help=f"valid with Megatron-FSDP: {valid_settings}; or zero_stage 1",
        fix=fix,
        causes=(Cause("layout.zero_stage", f"zero_stage is {layout.zero_stage}"),),
    )


SHARDING_RULES = (
    Rule(
        "R22",
        (
            *("layout.zero_stage", "layout.cuda_graphs", "layout.order", "job.moe_overlap"),
            "job.moment_precision",
        ),
        _violates_fsdp,
        _explain_fsdp,
        ("zero_stage", "cuda_graphs", "order", "ep", "vpp"),
    ),
)
