"""Rules that every training framework has: heads, ranks, batch, sequence, number of experts."""

from __future__ import annotations

from collections.abc import Callable

from parc.backends.shared.valid_degrees import valid_tp
from parc.backends.shared.valid_values import (
    divisors,
    format_pin,
    format_values,
    nearest,
    nearest_multiples,
    valid,
)
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Experts, Layout, Problem
from parc.compiler.ir.rule import WORLD, Rule


def experts_of(problem: Problem) -> Experts:
    """The experts; rules about them are only asked where there are some."""
    if problem.model.experts is None:
        raise ValueError("a rule about experts was asked about a dense model")
    return problem.model.experts


def _heads_broken(problem: Problem, layout: Layout) -> bool:
    return problem.model.attention.heads % layout.tp != 0


def _heads(problem: Problem, layout: Layout) -> Finding:
    heads, tp = problem.model.attention.heads, layout.tp
    good = valid_tp(problem)
    return Finding(
        message=f"{heads} attention heads cannot be split over tp={tp}",
        label=f"{heads} % {tp} = {heads % tp}, must be 0",
        help=f"legal tp within one NVLink domain: {format_values(good)}",
        fix=format_pin("layout.tp", nearest(good, tp)),
        causes=(Cause("model.heads", f"{heads} heads"),),
    )


def _tiling_broken(problem: Problem, layout: Layout) -> bool:
    gpus, world = problem.cluster.gpus, layout.world
    if world == gpus:
        return False
    free = problem.pins.dp is not None or problem.goals.maximize == "fewest-gpus"
    return world > gpus or not free


def tiling_rule(tensor_degrees: Callable[[Problem], list[int]]) -> Rule:
    """The degrees make up the cluster; ``tensor_degrees`` are what the help may offer."""

    def explain(problem: Problem, layout: Layout) -> Finding:
        return _tiling(problem, layout, tensor_degrees(problem))

    paths = ("layout.dp", "layout.pp", "layout.tp", "cluster")
    return Rule("D09", paths, _tiling_broken, explain, WORLD)


def _tiling(problem: Problem, layout: Layout, tensor_degrees: list[int]) -> Finding:
    gpus, block = problem.cluster.gpus, layout.tp * layout.cp * layout.pp
    degrees = f"tp {layout.tp} x cp {layout.cp} x pp {layout.pp}"
    if gpus % block:
        label = f"{gpus} % {block} = {gpus % block}, must be 0"
        message = f"{degrees} = {block} does not tile {gpus} GPUs"
    else:
        label = f"{block} x dp {layout.dp} = {layout.world}, must be {gpus}"
        message = f"{degrees} x dp {layout.dp} needs {layout.world} GPUs, the cluster has {gpus}"
    good, edit = _tiling_help(gpus, layout, tensor_degrees)
    if gpus % block == 0:
        edit = format_pin("layout.dp", gpus // block)
    return Finding(
        message=message,
        label=label,
        help=good,
        fix=edit,
        causes=(Cause("cluster", f"{gpus} usable GPUs"),),
    )


def _tiling_help(gpus: int, layout: Layout, tensor_degrees: list[int]) -> tuple[str, str]:
    """Legal values, and the edit, for the axis that is easiest to change."""
    tp, cp = layout.tp, layout.cp
    if gpus % (tp * cp):
        good = valid(tensor_degrees, lambda value: gpus % (value * cp) == 0)
        return f"legal tp with cp {cp}: {format_values(good)}", format_pin(
            "layout.tp", nearest(good, tp)
        )
    good = divisors(gpus // (tp * cp))
    return f"legal pp with tp {tp} and cp {cp}: {format_values(good)}", format_pin(
        "layout.pp", nearest(good, layout.pp)
    )


def _batch_broken(problem: Problem, layout: Layout) -> bool:
    step = layout.micro_batch * layout.dp
    return problem.job.global_batch % step != 0


def _batch(problem: Problem, layout: Layout) -> Finding:
    batch, micro, dp = problem.job.global_batch, layout.micro_batch, layout.dp
    step = micro * dp
    below, above = nearest_multiples(batch, step)
    good = valid(divisors(batch), lambda value: batch % (value * dp) == 0)
    free = not good and problem.pins.dp is None
    idle = f"; or pin a smaller dp that divides {batch}, and GPUs stay idle" if free else ""
    return Finding(
        message=f"a global batch of {batch} cannot be cut into {micro} sequences on {dp} replicas",
        label=f"{batch} % ({micro} * {dp}) = {batch % step}, must be 0",
        help=f"nearest legal global batches: {format_values(sorted({below, above}))}; "
        f"legal micro-batches at dp {dp}: {format_values(good)}{idle}",
        fix=format_pin("job.global_batch", above),
        causes=(Cause("job.global_batch", f"{batch} sequences"), Cause("layout.dp", f"dp {dp}")),
    )


def _shard_broken(problem: Problem, layout: Layout) -> bool:
    return layout.sequence_parallel and (problem.job.sequence_length // layout.cp) % layout.tp != 0


def _shard(problem: Problem, layout: Layout) -> Finding:
    length, cp, tp = problem.job.sequence_length, layout.cp, layout.tp
    below, above = nearest_multiples(length, cp * tp * (2 if cp > 1 else 1))
    return Finding(
        message=f"{length // cp} tokens a context rank cannot be split over tp={tp}",
        label=f"({length} / {cp}) % {tp} = {length // cp % tp}, must be 0",
        help=f"nearest legal sequence lengths: {format_values(sorted({below, above}))}",
        fix=format_pin("job.sequence_length", above),
        causes=(Cause("job.sequence_length", f"{length} tokens"),),
    )


def _zigzag_broken(problem: Problem, layout: Layout) -> bool:
    return layout.cp > 1 and problem.job.sequence_length % (2 * layout.cp) != 0


def _zigzag(problem: Problem, layout: Layout) -> Finding:
    length, cp = problem.job.sequence_length, layout.cp
    below, above = nearest_multiples(length, 2 * cp)
    good = valid(range(1, 65), lambda value: value == 1 or length % (2 * value) == 0)
    return Finding(
        message=f"a sequence of {length} tokens cannot be split over cp={cp}",
        label=f"{length} % (2 * {cp}) = {length % (2 * cp)}, must be 0",
        help=f"legal cp: {format_values(good)}; nearest legal lengths: {below}, {above}",
        fix=format_pin("job.sequence_length", above),
        causes=(Cause("job.sequence_length", f"{length} tokens"),),
    )


def _divide_broken(problem: Problem, layout: Layout) -> bool:
    return experts_of(problem).count % layout.ep != 0


def expert_count_rule(ranks: Callable[[Problem, Layout], int]) -> Rule:
    """The experts over ep; the help offers what divides ``ranks`` as well."""

    def explain(problem: Problem, layout: Layout) -> Finding:
        return _divide(problem, layout, ranks(problem, layout))

    return Rule("D08", ("layout.ep", "model.experts.count"), _divide_broken, explain, ("ep",))


def _divide(problem: Problem, layout: Layout, ranks: int) -> Finding:
    count, ep = experts_of(problem).count, layout.ep
    good = valid(divisors(count), lambda value: ranks % value == 0)
    return Finding(
        message=f"{count} experts cannot be split over ep={ep}",
        label=f"{count} % {ep} = {count % ep}, must be 0",
        help=f"legal ep: {format_values(good)}",
        fix=format_pin("layout.ep", nearest(good, ep)),
        causes=(Cause("model.experts.count", f"{count} experts"),),
    )


def _dense_ep_broken(problem: Problem, layout: Layout) -> bool:
    return layout.ep > 1


def _dense_ep(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"ep={layout.ep} splits experts, but the model has none",
        label=f"ep {layout.ep} with 0 experts, must be 1",
        help="legal ep: 1",
        fix="layout.ep: 1",
        causes=(Cause("model", f"{problem.model.name} is dense"),),
    )


DP = ("dp_replicate", "dp_shard")
"""What ``Layout.dp`` is made of."""

HEADS = Rule("D01", ("layout.tp", "model.heads"), _heads_broken, _heads, ("tp",))
TILING = tiling_rule(valid_tp)
BATCH = Rule(
    "B01",
    ("job.global_batch", "layout.micro_batch", "layout.dp"),
    _batch_broken,
    _batch,
    ("micro_batch", *DP),
)
ZIGZAG = Rule("S04", ("layout.cp", "job.sequence_length"), _zigzag_broken, _zigzag, ("cp",))
SEQUENCE_SHARD = Rule(
    "S02",
    ("layout.tp", "layout.cp", "job.sequence_length"),
    _shard_broken,
    _shard,
    ("sequence_parallel", "cp", "tp"),
)
EXPERT_COUNT = expert_count_rule(lambda problem, layout: problem.cluster.gpus)
NO_EXPERTS = Rule("M01", ("layout.ep", "model"), _dense_ep_broken, _dense_ep, ("ep",))


def decay_rule(framework: str, legal_decays: tuple[str, ...]) -> Rule:
    """E11: ``framework`` has schedules of the learning rate for ``legal_decays`` alone."""

    def broken(problem: Problem, layout: Layout) -> bool:
        return problem.job.lr_decay not in legal_decays

    def explain(problem: Problem, layout: Layout) -> Finding:
        return Finding(
            message=f"{framework} has no schedule with a decay {problem.job.lr_decay}",
            label=f"must be one of {', '.join(legal_decays)}",
            help=f"legal: {', '.join(legal_decays)}; megatron has all",
            fix=f"job.lr_decay: {legal_decays[0]}",
            targets=(framework,),
        )

    return Rule("E11", ("job.lr_decay",), broken, explain, ())
