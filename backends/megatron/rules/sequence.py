"""Family S: what the sequence length owes to sequence and context parallelism."""

from __future__ import annotations

from parc.backends.shared.plain_rules import SEQUENCE_SHARD, ZIGZAG
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule


def _alone_broken(problem: Problem, layout: Layout) -> bool:
    return layout.sequence_parallel and layout.tp == 1


def _alone(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="sequence parallelism needs tensor parallelism, but tp is 1",
        label="sequence_parallel true with tp=1: Megatron switches it off and says so in the log",
        help="legal: sequence_parallel false, or tp > 1",
        fix="layout.sequence_parallel: false",
        causes=(Cause("layout.tp", "tp 1"),),
    )


def _experts_broken(problem: Problem, layout: Layout) -> bool:
    return layout.tp > 1 and not layout.sequence_parallel


def _experts(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"a model with experts and tp={layout.tp} trains only with sequence parallelism",
        label=f"tp {layout.tp} > 1 and sequence_parallel false: the first forward pass stops",
        help="legal: sequence_parallel true, or tp 1",
        fix="layout.sequence_parallel: true",
        causes=(Cause("model", "the model routes to experts"),),
    )


SEQUENCE_RULES: tuple[Rule, ...] = (
    Rule(
        "S01",
        ("layout.sequence_parallel", "layout.tp"),
        _alone_broken,
        _alone,
        ("sequence_parallel", "tp"),
    ),
    ZIGZAG,
    SEQUENCE_SHARD,
)

EXPERT_SEQUENCE_RULE = Rule(
    "S03",
    ("layout.sequence_parallel", "layout.tp"),
    _experts_broken,
    _experts,
    ("tp", "sequence_parallel"),
)
