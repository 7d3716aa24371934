"""Enumeration of the search space, and its points.

A point is a layout as nine numbers: a key that is cheap to build, compare and cache.

Choices that the pins leave open on each axis, valid or not.

Parallel sizes are divisors, not only powers of two. Pinned values are used unchanged, so that an
invalid pin reaches the rules and gets a diagnostic instead of an empty search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple

from parc.backends.base import Framework
from parc.compiler.ir import Chunk, Layout, Problem, Recompute, Split
from parc.compiler.ir.problem import allowed


class Degrees(NamedTuple):
    """Parallel sizes of one device mesh."""

    tp: int
    cp: int
    pp: int
    dp: int
    ep: int
    etp: int


class Point(NamedTuple):
    """Parallel sizes, virtual pipeline size, micro-batch, and index of the recompute level.

    The first six fields are those of ``Degrees``. All other fields of a layout follow from these
    nine, or are the same in the whole space.
    """

    tp: int
    cp: int
    pp: int
    dp: int
    ep: int
    etp: int
    vpp: int
    micro_batch: int
    level: int = 0
    """Index into ``LayoutSpace.levels``, 0 for the least recompute."""

    @property
    def degrees(self) -> Degrees:
        """Parallel sizes, which determine the process groups."""
        return Degrees(*self[:6])

    @property
    def world(self) -> int:
        """Number of GPUs."""
        return self.tp * self.cp * self.pp * self.dp

    def at_level(self, level: int) -> Point:
        """Return the point that differs only in its recompute level."""
        return Point(*self[:8], level)


BuildLayout = Callable[[Point], Layout]
"""Builds the layout of a point, for formulas and rules that read a whole layout."""


MAX_VPP = 12
"""No published model uses more virtual stages."""
MAX_MICRO_BATCH = 8
"""Sequences. Beyond it GEMMs are large enough, and only the pipeline bubble grows."""
MIN_CP_TOKENS = 2048
"""Fewest tokens per context-parallel rank, unless cp is pinned."""


@cache
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of ``number`` in ascending order."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return tuple(sorted({*small, *(number // n for n in small)}))


def degree_choices(problem: Problem) -> Iterator[Degrees]:
    """Yield parallel sizes: the pins, and divisors of the remaining ranks, within the limits."""
    for tp, cp, pp, dp in _dense_choices(problem):
        for ep, etp in _expert_choices(problem, tp, tp * cp * dp):
            degrees = Degrees(tp, cp, pp, dp, ep, etp)
            if not problem.goals.limits or _within(problem, degrees):
                yield degrees


def _within(problem: Problem, degrees: Degrees) -> bool:
    """Return True if all parallel sizes are within ``goals.limits``.

    The limits of ep and etp apply only to models with experts.
    """
    axes = Degrees._fields if problem.model.experts is not None else Degrees._fields[:4]
    return all(allowed(problem.goals.limits, axis, getattr(degrees, axis)) for axis in axes)


def _dense_choices(problem: Problem) -> Iterator[tuple[int, int, int, int]]:
    """Yield (tp, cp, pp, dp) of the dense mesh."""
    for tp, cp in _tp_cp_choices(problem):
        left = max(problem.cluster.gpus // (tp * cp), 1)
        for pp in _pp_choices(problem, left):
            for dp in _dp_choices(problem, problem.pins.dp or max(left // pp, 1)):
                yield tp, cp, pp, dp


def _tp_cp_choices(problem: Problem) -> list[tuple[int, int]]:
    """Return all (tp, cp) pairs."""
    return [(tp, cp) for tp in _tp_choices(problem) for cp in _cp_choices(problem, tp)]


def _tp_choices(problem: Problem) -> tuple[int, ...]:
    """Return divisors of the NVLink domain, or of the host if it has no NVLink."""
    if problem.pins.tp:
        return (problem.pins.tp,)
    node = problem.cluster.node
    domain = max(node.nvlink_domain, node.gpus)
    limit = min(domain, problem.cluster.gpus)
    return tuple(
        n for n in divisors(domain) if n <= limit and problem.model.attention.heads % n == 0
    )


def _cp_choices(problem: Problem, tp: int) -> tuple[int, ...]:
    """Return divisors of the remaining ranks that leave ``MIN_CP_TOKENS`` per rank."""
    if problem.pins.cp:
        return (problem.pins.cp,)
    limit = max(problem.job.sequence_length // MIN_CP_TOKENS, 1)
    return tuple(n for n in divisors(max(problem.cluster.gpus // tp, 1)) if n <= limit)


def _pp_choices(problem: Problem, left: int) -> tuple[int, ...]:
    """Return divisors of the remaining ranks, with at least one layer per stage."""
    if problem.pins.pp:
        return (problem.pins.pp,)
    ranks = max(left // problem.pins.dp, 1) if problem.pins.dp else left
    return tuple(n for n in divisors(ranks) if n <= problem.model.layers)


def _dp_choices(problem: Problem, dp: int) -> tuple[int, ...]:
    """Return (dp,); smaller values as well if the goal is to use the fewest GPUs."""
    if problem.pins.dp or problem.goals.maximize != "fewest-gpus":
        return (dp,)
    return divisors(dp)[::-1]


def _expert_choices(problem: Problem, tp: int, stage_ranks: int) -> list[tuple[int, int]]:
    """Return (ep, etp) pairs: ep divides the experts, ep x etp the ranks of a stage.

    A dense model has (1, tp).
    """
    pins, experts = problem.pins, problem.model.experts
    if experts is None:
        return [(pins.ep or 1, pins.etp or tp)]
    etps = (pins.etp,) if pins.etp else tuple(sorted({1, tp}))
    pairs = []
    for etp in etps:
        if pins.ep:
            pairs.append((pins.ep, etp))
            continue
        pairs += [(ep, etp) for ep in divisors(experts.count) if stage_ranks % (ep * etp) == 0]
    return pairs


def stage_choices(problem: Problem, framework: Framework, pp: int) -> list[tuple[int, Split]]:
    """Return the (vpp, split) pairs that the framework can express; vpp = 1 first."""
    pinned = problem.pins.vpp
    if pinned:
        choices: tuple[int, ...] = (pinned,)
    else:
        top = min(MAX_VPP, problem.model.layers // pp) if pp > 1 else 1
        choices = tuple(range(1, max(top, 1) + 1))
    pairs = []
    layers = problem.model.layers
    for vpp in filter(partial(allowed, problem.goals.limits, "vpp"), choices):
        # Uneven chunks are tried if vpp is pinned, or if the stages are uneven without chunks too.
        uneven = bool(pinned) or vpp == 1 or not _even_chunks(layers, pp)
        if not uneven and not _even_chunks(layers, pp * vpp):
            continue
        split = framework.splits(problem, pp, vpp)
        if split is None and (pinned or problem.pins.pp):
            split = floor_split(problem.model.layers, pp, vpp)
        whole = split is not None and (split.form in ("even", "counted") or problem.model.pattern)
        if split is not None and (uneven or whole):
            pairs.append((vpp, split))
    return pairs


def _even_chunks(layers: int, chunks: int) -> bool:
    """Return True if layers, and embedding or loss counted as layers, fill all chunks evenly."""
    return any((layers + ends) % chunks == 0 for ends in (0, 1, 2))


@cache
def floor_split(layers: int, pp: int, vpp: int) -> Split:
    """Return an even split that drops the layers left over.

    A stand-in for a pinned pp that the framework cannot express. The other rules still run on it,
    and the conservation rules (P01, P02) reject it.
    """
    count = layers // (pp * vpp)
    chunks = tuple(
        tuple(
            Chunk(
                first_layer=(virtual * pp + stage) * count,
                layers=count,
                embedding=stage == virtual == 0,
                mtp_layers=0,
                loss=stage == pp - 1 and virtual == vpp - 1,
            )
            for virtual in range(vpp)
        )
        for stage in range(pp)
    )
    return Split("even", False, False, "", chunks)


def micro_batch_choices(problem: Problem, dp: int) -> tuple[int, ...]:
    """Return divisors of the sequences per replica, within ``MAX_MICRO_BATCH`` and the limits."""
    share = problem.job.global_batch // dp
    if problem.pins.micro_batch:
        choices: tuple[int, ...] = (problem.pins.micro_batch,)
    elif share == 0 or problem.job.global_batch % dp:
        choices = (1,)
    else:
        choices = tuple(n for n in divisors(share) if n <= MAX_MICRO_BATCH)
    return tuple(n for n in choices if allowed(problem.goals.limits, "micro_batch", n))


def recompute_levels(problem: Problem, framework: Framework) -> tuple[Recompute, ...]:
    """Return the pinned recompute level, or those of the framework from none to full."""
    return (problem.pins.recompute,) if problem.pins.recompute else framework.recomputes(problem)
