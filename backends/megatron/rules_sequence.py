"""Family S: what the sequence length owes to sequence and context parallelism."""

from __future__ import annotations

from parc.backends.legal_values import around, legal, listed, pin
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


def _shard_broken(problem: Problem, layout: Layout) -> bool:
    return layout.sequence_parallel and (problem.job.sequence_length // layout.cp) % layout.tp != 0


def _shard(problem: Problem, layout: Layout) -> Finding:
    length, cp, tp = problem.job.sequence_length, layout.cp, layout.tp
    below, above = around(length, cp * tp * (2 if cp > 1 else 1))
    return Finding(
        message=f"{length // cp} tokens a context rank cannot be split over tp={tp}",
        label=f"({length} / {cp}) % {tp} = {length // cp % tp}, must be 0",
        help=f"nearest legal sequence lengths: {listed(sorted({below, above}))}",
        fix=pin("job.sequence_length", above),
        causes=(Cause("job.sequence_length", f"{length} tokens"),),
    )


def _zigzag_broken(problem: Problem, layout: Layout) -> bool:
    return layout.cp > 1 and problem.job.sequence_length % (2 * layout.cp) != 0


def _zigzag(problem: Problem, layout: Layout) -> Finding:
    length, cp = problem.job.sequence_length, layout.cp
    below, above = around(length, 2 * cp)
    good = legal(range(1, 65), lambda value: value == 1 or length % (2 * value) == 0)
    return Finding(
        message=f"a sequence of {length} tokens cannot be split over cp={cp}",
        label=f"{length} % (2 * {cp}) = {length % (2 * cp)}, must be 0",
        help=f"legal cp: {listed(good)}; nearest legal lengths: {below}, {above}",
        fix=pin("job.sequence_length", above),
        causes=(Cause("job.sequence_length", f"{length} tokens"),),
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
    Rule("S04", ("layout.cp", "job.sequence_length"), _zigzag_broken, _zigzag, ("cp",)),
    Rule(
        "S02",
        ("layout.tp", "layout.cp", "job.sequence_length"),
        _shard_broken,
        _shard,
        ("sequence_parallel", "cp", "tp"),
    ),
)

EXPERT_SEQUENCE_RULE = Rule(
    "S03",
    ("layout.sequence_parallel", "layout.tp"),
    _experts_broken,
    _experts,
    ("tp", "sequence_parallel"),
)
