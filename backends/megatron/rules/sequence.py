"""Rules on sequence parallelism, and on the sequence length with context parallelism."""

from __future__ import annotations

from parc.backends.shared.common_rules import CONTEXT_CHUNKS, SEQUENCE_SHARD
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule


def _violates_tp_for_sequence_parallel(problem: Problem, layout: Layout) -> bool:
    # validate_args switches the flag off with a warning and continues. The search never sets it at
    # tp 1; `parc lint` checks the flags of others by this rule.
    return layout.sequence_parallel and layout.tp == 1


def _explain_tp_for_sequence_parallel(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="sequence parallelism has no effect, because tp is 1",
        label="Megatron turns sequence parallelism off at tp 1, and continues",
        help="use sequence_parallel false, or tp > 1",
        fix="layout.sequence_parallel: false",
        causes=(Cause("layout.tp", "tp 1"),),
    )


def _violates_sequence_parallel_experts(problem: Problem, layout: Layout) -> bool:
    # MoELayer.forward raises ValueError (moe_layer.py), long after the parser has accepted the
    # flags.
    return layout.tp > 1 and not layout.sequence_parallel


def _explain_sequence_parallel_experts(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"a model with experts and tp={layout.tp} requires sequence parallelism",
        label=f"tp {layout.tp} with sequence_parallel false fails in the first forward pass",
        help="use sequence_parallel true, or tp 1",
        fix="layout.sequence_parallel: true",
        causes=(Cause("model", f"{problem.model.name} has experts"),),
    )


def _violates_overlap_without_sequence_parallel(problem: Problem, layout: Layout) -> bool:
    return problem.job.tp_overlap and layout.tp > 1 and not layout.sequence_parallel


def _explain_overlap_without_sequence_parallel(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="tp_overlap overlaps the collectives of sequence parallelism, which is off",
        label=f"tp {layout.tp} with sequence_parallel false",
        help="use sequence_parallel true, or tp_overlap false",
        fix="layout.sequence_parallel: true",
        causes=(Cause("job.tp_overlap", "the overlap is set here"),),
    )


SEQUENCE_RULES: tuple[Rule, ...] = (
    Rule(
        "S01",
        ("layout.sequence_parallel", "layout.tp"),
        _violates_tp_for_sequence_parallel,
        _explain_tp_for_sequence_parallel,
        ("sequence_parallel", "tp"),
    ),
    CONTEXT_CHUNKS,
    SEQUENCE_SHARD,
    Rule(
        "S14",
        ("layout.sequence_parallel", "job.tp_overlap"),
        _violates_overlap_without_sequence_parallel,
        _explain_overlap_without_sequence_parallel,
        ("tp", "sequence_parallel"),
    ),
)

EXPERT_SEQUENCE_RULE = Rule(
    "S03",
    ("layout.sequence_parallel", "layout.tp"),
    _violates_sequence_parallel_experts,
    _explain_sequence_parallel_experts,
    ("tp", "sequence_parallel"),
)
