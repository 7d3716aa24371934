"""Rules of Accelerate in addition to those that all torch backends share.

Source: accelerate 1.15.0, parallelism_config.py and utils/dataclasses.py.
"""

from __future__ import annotations

from parc.backends.accelerate.capabilities import missing_parts
from parc.backends.shared.common_rules import CONTEXT_CHUNKS
from parc.backends.shared.torch.adapter_rules import adapter_rules
from parc.backends.shared.torch.emitted_program import own_program, program_kind, program_rules
from parc.backends.shared.torch.rules import (
    MEGATRON_PINS,
    STAGE_PINS,
    interleaving_rule,
    recompute_blocks_rule,
    replicas_need_shards_rule,
    torch_rules,
    unsupported_pin_rules,
)
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule

NAME = "accelerate"


def accelerate_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return the rules that Accelerate's layouts for ``problem`` must satisfy."""
    found = [
        *torch_rules(problem, NAME),
        CONTEXT_CHUNKS,
        recompute_blocks_rule(NAME),
        interleaving_rule({}),
    ]
    found += [_TP_AND_CP_NEED_FSDP2, _SINGLE_RANK_SHARD, _GRADIENTS, _DDP_RECOMPUTE]
    found.append(
        replicas_need_shards_rule(NAME, "ParallelismConfig requires a dp_shard_size above 1")
    )
    found += unsupported_pin_rules(problem, NAME, (*MEGATRON_PINS, *STAGE_PINS))
    if not own_program(problem):
        found.append(_OWN_PROGRAM)
    found += adapter_rules(problem, NAME)
    return (*found, *program_rules(problem, NAME, missing_parts))


def _violates_tp_cp_without_fsdp2(problem: Problem, layout: Layout) -> bool:
    # ParallelismConfig supports cp only with FSDP2, and tp with replicas only if dp_shard is above
    # 1 (parallelism_config.py). DDP splits no parameters.
    return layout.zero_stage == 0 and (layout.tp > 1 or layout.cp > 1)


def _explain_tp_cp_without_fsdp2(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="Accelerate supports tp and cp only with FSDP2",
        label=f"zero_stage is 0, but tp is {layout.tp} and cp is {layout.cp}",
        help="valid: either zero_stage 2 or 3, or both tp 1 and cp 1",
        fix="layout.zero_stage: 3",
        targets=(NAME,),
    )


def _has_single_rank_shard(problem: Problem, layout: Layout) -> bool:
    return layout.zero_stage > 0 and layout.dp_shard * layout.cp == 1


def _explain_single_rank_shard(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="Accelerate's FSDP2 needs two or more ranks to shard the model",
        label=f"dp_shard {layout.dp_shard} x cp {layout.cp} = 1 rank, must be 2 or more",
        help="valid: dp_shard 2 or more, or zero_stage 0 with tp 1",
        fix="layout.dp_shard: auto" if layout.dp > 1 else "layout.zero_stage: 0",
        targets=(NAME,),
    )


def _required_gradient_precision(problem: Problem, layout: Layout) -> str | None:
    """Return the number format that gradients must have when they are reduced.

    Return None if the emitted program sets the format itself, so that every format is valid.
    """
    # DDP trains fp32 weights under autocast.
    if layout.zero_stage == 0:
        return "fp32"
    # Accelerate sets param_dtype and reduce_dtype of FSDP2 to the same format
    # (utils/dataclasses.py, set_mixed_precision); the emitted program then replaces reduce_dtype.
    return None if program_kind(problem, missing_parts) in ("decoder", "transformers") else "bf16"


def _violates_gradient_precision(problem: Problem, layout: Layout) -> bool:
    required = _required_gradient_precision(problem, layout)
    return required is not None and problem.job.gradient_precision != required


def _explain_gradient_precision(problem: Problem, layout: Layout) -> Finding:
    required = _required_gradient_precision(problem, layout)
    kind = "FSDP2 with mixed_precision bf16" if layout.zero_stage else "DDP"
    other = "for fp32 with FSDP2, use the emitted train.py (no launch.program)"
    return Finding(
        message=f"Accelerate's {kind} reduces gradients in {required}",
        label=f"gradient_precision {problem.job.gradient_precision}, must be {required}",
        help=f"valid gradient_precision: {required}{f'; {other}' if layout.zero_stage else ''}",
        fix=f"job.gradient_precision: {required}",
        targets=(NAME,),
    )


def _violates_ddp_recompute(problem: Problem, layout: Layout) -> bool:
    return layout.zero_stage == 0 and layout.recompute.granularity != "none"


def _explain_ddp_recompute(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="Accelerate supports recompute only with FSDP",
        label="with zero_stage 0, config.yaml has no fsdp_config, the section for recompute",
        help="valid: recompute none with zero_stage 0; any recompute with zero_stage 2 or 3",
        fix="layout.recompute: none",
        targets=(NAME,),
    )


def _needs_custom_program(problem: Problem, layout: Layout) -> bool:
    return layout.tp > 1 or layout.cp > 1


def _explain_custom_program(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="the emitted program supports neither tensor nor context parallelism",
        label=f"tp {layout.tp}, cp {layout.cp}, both must be 1",
        help="set tp and cp to 1, or set launch.program to your own program, which must load the "
        "model with a tp_plan and enter accelerator.maybe_context_parallel",
        fix="launch.program: train.py",
        targets=(NAME,),
    )


_TP_AND_CP_NEED_FSDP2 = Rule(
    "E11",
    ("layout.zero_stage",),
    _violates_tp_cp_without_fsdp2,
    _explain_tp_cp_without_fsdp2,
    ("zero_stage", "tp", "cp"),
)
_SINGLE_RANK_SHARD = Rule(
    "E11",
    ("layout.dp_shard", "layout.zero_stage", "layout.dp"),
    _has_single_rank_shard,
    _explain_single_rank_shard,
    ("zero_stage", "dp_shard", "cp"),
)
_GRADIENTS = Rule(
    "E11",
    ("job.gradient_precision",),
    _violates_gradient_precision,
    _explain_gradient_precision,
    ("zero_stage",),
)
_DDP_RECOMPUTE = Rule(
    "E11",
    ("layout.recompute",),
    _violates_ddp_recompute,
    _explain_ddp_recompute,
    ("zero_stage", "recompute"),
)
_OWN_PROGRAM = Rule(
    "E10", ("layout.tp", "layout.cp"), _needs_custom_program, _explain_custom_program, ("tp", "cp")
)
