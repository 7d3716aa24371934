"""Rule on settings that Megatron-FSDP excludes (R22).

Source: Megatron-LM, megatron/core/distributed/fsdp/mcore_fsdp_adapter.py and
src/megatron_fsdp/param_and_grad_buffer.py of Megatron-Core 0.17 to 0.19; validate_args in
megatron/training/arguments.py.
"""

from __future__ import annotations

from parc.backends.megatron.capabilities import BRIDGE, core_version, uses_fsdp
from parc.backends.shared.common_rules import Conflict, conflict_rule
from parc.backends.shared.expert_mesh import DEFAULT_ORDER
from parc.backends.shared.versions import is_in_range
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem


def _fsdp_conflict(problem: Problem, layout: Layout) -> Conflict | None:
    """Return the setting that excludes Megatron-FSDP; None if nothing does or it is not used."""
    if not uses_fsdp(layout):
        return None
    version = core_version(problem)
    if layout.cuda_graphs:
        # A graph reads weights at the addresses of its capture. Megatron-FSDP frees gathered
        # weights, and the emitted arguments allocate no persistent buffers for them.
        return Conflict("CUDA graphs", "cuda_graphs false", "layout.cuda_graphs: false")
    if problem.framework == BRIDGE and layout.order != DEFAULT_ORDER:
        # Megatron-Bridge, training/config.py: use_tp_pp_dp_mapping is not supported.
        text = f"rank order {layout.order} in {BRIDGE}"
        return Conflict(text, f"order {DEFAULT_ORDER}", f"layout.order: {DEFAULT_ORDER}")
    if problem.job.moe_overlap and layout.ep > 1:
        # combined_1f1b.py: hooks for Megatron-FSDP since 0.18, and only without model chunks.
        if is_in_range(version, None, "0.17"):
            text = f"moe_overlap in version {version}"
            return Conflict(text, "moe_overlap false", "job.moe_overlap: false")
        if layout.vpp > 1:
            return Conflict(
                "moe_overlap in a pipeline", "moe_overlap false, or pp 1", "layout.pp: 1"
            )
    if problem.job.moment_precision != "fp32" and is_in_range(version, None, "0.17"):
        # Only since 0.18 are gradients given to the precision-aware optimizer (decoupled_grad).
        text = f"{problem.job.moment_precision} moments in version {version}"
        return Conflict(text, "moment_precision fp32", "job.moment_precision: fp32")
    recurrent = any(kind.mixer == "mamba" for kind in problem.model.kinds)
    if recurrent and layout.zero_stage == 3 and is_in_range(version, None, "0.18"):
        # Before 0.19, only a TransformerLayer frees its gathered weights, a MambaLayer does not.
        text = f"Mamba layers in version {version}"
        return Conflict(text, "zero_stage 2 or less", "layout.zero_stage: 2")
    return None


def _explain_fsdp(problem: Problem, layout: Layout, conflict: Conflict) -> Finding:
    return Finding(
        message=f"Megatron-FSDP (ZeRO-{layout.zero_stage}) does not support {conflict.found}",
        label="stage 2 or 3 needs Megatron-FSDP, which excludes this setting",
        help=f"valid with Megatron-FSDP: {conflict.valid}; or zero_stage 1",
        fix=conflict.fix,
        causes=(Cause("layout.zero_stage", f"zero_stage is {layout.zero_stage}"),),
    )


SHARDING_RULES = (
    conflict_rule(
        "R22",
        (
            *("layout.zero_stage", "layout.cuda_graphs", "layout.order", "job.moe_overlap"),
            "job.moment_precision",
        ),
        _fsdp_conflict,
        _explain_fsdp,
        ("zero_stage", "cuda_graphs", "order", "ep", "vpp"),
    ),
)
