"""Enumeration of the values that the spec leaves open on each axis of a layout, valid or not.

A point describes a layout by ten numbers. It is a key that is cheap to build, compare and cache.

Parallel sizes are divisors, not only powers of two. Values that the spec fixes (pins) are used
unchanged, so that an invalid pin reaches the rules and gets a diagnostic instead of an empty
search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import NamedTuple

from parc.backends.base import Framework
from parc.compiler.ir import Layout, ModelChunk, PipelineSplit, Problem, Recompute
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.problem import is_size_allowed


class ParallelSizes(NamedTuple):
    """Parallel sizes of a layout: tensor, context, pipeline, data, expert, and expert tensor."""

    tp: int
    cp: int
    pp: int
    dp: int
    ep: int
    etp: int


class LayoutPoint(NamedTuple):
    """Key of a layout in the search: the ten numbers that differ between layouts.

    The first six fields are those of ``ParallelSizes``. All other fields of a layout follow from
    these ten numbers, or are equal in the whole search space.
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
    split: int = 0
    """Number of the stage split among those with this pp and vpp, 0 for the framework's own."""

    @property
    def degrees(self) -> ParallelSizes:
        """Parallel sizes of the layout, which determine its process groups."""
        return ParallelSizes(*self[:6])

    @property
    def world(self) -> int:
        """Number of GPUs that the layout uses."""
        return self.tp * self.cp * self.pp * self.dp

    def with_recompute_level(self, level: int) -> LayoutPoint:
        """Return a copy of this point with recompute level ``level`` (0 is the least recompute)."""
        return self if level == self.level else make_point((*self[:8], level, self.split))


make_point: Callable[[Iterable[int]], LayoutPoint] = partial(tuple.__new__, LayoutPoint)
"""Function: values of all fields -> ``LayoutPoint``, in half the time of the constructor, because a
search creates a point per layout."""
BuildLayout = Callable[[LayoutPoint], Layout]
"""Function: ``LayoutPoint`` -> layout. Formulas and rules that read a whole layout need this
function."""


MAX_VPP = 12
"""Largest virtual pipeline size that is tried; no published training run uses more. Larger ones
save at most 0.3 % of a step in 23 searches, less than ``goals.tie``."""
MAX_MICRO_BATCH = 8
"""Largest micro-batch that is tried, in sequences. GEMMs are large enough at this size; a larger
one only increases the pipeline bubble."""
MIN_CP_TOKENS = 2048
"""Least number of tokens per context-parallel rank, unless the spec fixes cp. Fewer tokens save at
most 0.7 % of a step in 33 searches, and the search takes up to 3.5 times as long."""


def parallel_size_choices(problem: Problem) -> Iterator[ParallelSizes]:
    """Yield all combinations of parallel sizes within ``goals.limits``.

    If the spec does not fix a size, all divisors of the remaining ranks are tried.
    """
    for tp, cp, pp, dp in dense_choices(problem, problem.cluster.gpus):
        for ep, etp in _expert_choices(problem, tp, tp * cp * dp):
            degrees = ParallelSizes(tp, cp, pp, dp, ep, etp)
            if not problem.goals.limits or _within_limits(problem, degrees):
                yield degrees


def _within_limits(problem: Problem, degrees: ParallelSizes) -> bool:
    """Return True if all parallel sizes are within ``goals.limits``.

    For models without experts, the limits on ep and etp are ignored.
    """
    axes = ParallelSizes._fields if problem.model.experts is not None else ParallelSizes._fields[:4]
    return all(is_size_allowed(problem.goals.limits, axis, getattr(degrees, axis)) for axis in axes)


def dense_choices(problem: Problem, gpus: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield all combinations (tp, cp, pp, dp) of the parallel sizes of the dense mesh.

    ``gpus`` is the number of GPUs of the cluster, or a smaller one.
    """
    for tp, cp in _tp_cp_choices(problem, gpus):
        remaining = max(gpus // (tp * cp), 1)
        for pp in _pp_choices(problem, remaining):
            for dp in _dp_choices(problem, problem.pins.dp or max(remaining // pp, 1)):
                yield tp, cp, pp, dp


def _allowed_sizes(
    problem: Problem, axis: str, usual: tuple[int, ...], valid: Callable[[], Iterable[int]]
) -> tuple[int, ...]:
    """Return the sizes in ``usual`` that ``goals.limits`` allows, or else those in ``valid()``.

    The usual sizes are those that are worth a search; ``valid`` returns all that may run. So a
    limit can ask for sizes that PARC would not try, as a fixed size can.
    """
    limits = [one for one in problem.goals.limits if one.axis == axis]
    if not limits:
        return usual
    allowed = tuple(one for one in usual if is_size_allowed(limits, axis, one))
    return allowed or tuple(one for one in valid() if is_size_allowed(limits, axis, one))


def _tp_cp_choices(problem: Problem, gpus: int) -> list[tuple[int, int]]:
    """Return all pairs (tp, cp) to try."""
    return [
        (tp, cp) for tp in _tp_choices(problem, gpus) for cp in _cp_choices(problem, gpus // tp)
    ]


def _tp_choices(problem: Problem, gpus: int) -> tuple[int, ...]:
    """Return the tensor-parallel sizes to try.

    Each size divides the number of attention heads. Each size also divides the number of GPUs in an
    NVLink domain, or in a host if hosts are larger than NVLink domains, unless ``goals.limits``
    excludes all of these sizes.
    """
    if problem.pins.tp:
        return (problem.pins.tp,)
    node = problem.cluster.node
    domain = max(node.nvlink_domain, node.gpus)
    # Each layer waits for collectives of its tensor group, so groups stay on fast links (T01).
    limit = min(domain, gpus)
    heads = problem.model.attention.heads
    usual = tuple(n for n in divisors(domain) if n <= limit and heads % n == 0)
    return _allowed_sizes(
        problem, "tp", usual, lambda: (n for n in divisors(gpus) if heads % n == 0)
    )


def _cp_choices(problem: Problem, remaining: int) -> tuple[int, ...]:
    """Return the context-parallel sizes that leave each rank at least ``MIN_CP_TOKENS`` tokens.

    If ``goals.limits`` excludes all of them, other divisors are tried.
    """
    if problem.pins.cp:
        return (problem.pins.cp,)
    limit = max(problem.job.sequence_length // MIN_CP_TOKENS, 1)
    sizes = divisors(max(remaining, 1))
    return _allowed_sizes(problem, "cp", tuple(n for n in sizes if n <= limit), lambda: sizes)


def _pp_choices(problem: Problem, remaining: int) -> tuple[int, ...]:
    """Return the pipeline sizes that leave each stage at least one layer."""
    if problem.pins.pp:
        return (problem.pins.pp,)
    ranks = max(remaining // problem.pins.dp, 1) if problem.pins.dp else remaining
    return tuple(n for n in divisors(ranks) if n <= problem.model.layers)


def _dp_choices(problem: Problem, dp: int) -> tuple[int, ...]:
    """Return the data-parallel sizes to try.

    If the goal is fewest-gpus and the spec does not fix dp, all divisors of ``dp`` are tried.
    Otherwise the only size is ``dp``.
    """
    if problem.pins.dp or problem.goals.maximize != "fewest-gpus":
        return (dp,)
    # The largest dp comes first, so that layouts on all GPUs come before smaller ones.
    return divisors(dp)[::-1]


def _expert_choices(problem: Problem, tp: int, stage_ranks: int) -> list[tuple[int, int]]:
    """Return the pairs (ep, etp) to try for a pipeline stage of ``stage_ranks`` ranks.

    The number of experts must be divisible by ep, and ``stage_ranks`` by ep x etp. Sizes that the
    spec fixes are not checked. A model without experts has a single pair.
    """
    pins, experts = problem.pins, problem.model.experts
    if experts is None:
        return [(pins.ep or 1, pins.etp or tp)]
    # Sizes of etp between 1 and tp are left out to keep the search small.
    etps = (pins.etp,) if pins.etp else tuple(sorted({1, tp}))
    pairs = []
    for etp in etps:
        if pins.ep:
            pairs.append((pins.ep, etp))
            continue
        pairs += [(ep, etp) for ep in divisors(experts.count) if stage_ranks % (ep * etp) == 0]
    return pairs


def stage_choices(
    problem: Problem, framework: Framework, pp: int
) -> list[tuple[int, PipelineSplit]]:
    """Return the pairs (virtual pipeline size, stage split) to try with ``pp`` pipeline stages.

    Pairs are sorted by the virtual pipeline size. If the framework cannot express a split, the pair
    is left out, unless the spec fixes pp or vpp.
    """
    pinned = problem.pins.vpp
    if pinned:
        choices: tuple[int, ...] = (pinned,)
    else:
        most = max(problem.model.layers // pp, 1) if pp > 1 else 1
        usual = tuple(range(1, min(MAX_VPP, most) + 1))
        choices = _allowed_sizes(problem, "vpp", usual, lambda: range(1, most + 1))
    pairs = []
    layers = problem.model.layers
    has_even_chunks = fills_chunks_evenly(layers, pp) and any(
        vpp > 1 and fills_chunks_evenly(layers, pp * vpp) for vpp in choices
    )
    for vpp in filter(partial(is_size_allowed, problem.goals.limits, "vpp"), choices):
        # Uneven chunks are tried if the spec fixes vpp, if stages are uneven without chunks too, or
        # if no number of chunks is even: 92 layers in 4 stages, whose bubble is then shorter.
        uneven = bool(pinned) or vpp == 1 or not has_even_chunks
        if not uneven and not fills_chunks_evenly(layers, pp * vpp):
            continue
        # None means that the framework cannot express a split of these layers over pp x vpp chunks.
        split = framework.find_split(problem, pp, vpp)
        if split is None and (pinned or problem.pins.pp):
            split = truncated_split(problem.model.layers, pp, vpp)
        whole = split is not None and (split.form in ("even", "counted") or problem.model.pattern)
        if split is not None and (uneven or whole):
            pairs.append((vpp, split))
    return pairs


def fills_chunks_evenly(layers: int, chunks: int) -> bool:
    """Return True if all of ``chunks`` model chunks can have the same number of layers.

    The embedding and the loss are layers too if this makes the chunks equal.
    """
    return any((layers + ends) % chunks == 0 for ends in (0, 1, 2))


@cache
def truncated_split(layers: int, pp: int, vpp: int, mtp_layers: int = 0) -> PipelineSplit:
    """Return an even stage split that drops the layers that remain after division.

    The last stage has all ``mtp_layers``, the layers that predict several tokens.

    This split is used if the framework cannot express the pipeline size that the spec fixes. The
    rules that require all layers (P01, P02) reject the split, so that the user gets a diagnostic.
    """
    count = layers // (pp * vpp)
    chunks = tuple(
        tuple(
            ModelChunk(
                first_layer=(virtual * pp + stage) * count,
                layers=count,
                embedding=stage == virtual == 0,
                mtp_layers=mtp_layers if (stage, virtual) == (pp - 1, vpp - 1) else 0,
                loss=(stage, virtual) == (pp - 1, vpp - 1),
            )
            for virtual in range(vpp)
        )
        for stage in range(pp)
    )
    return PipelineSplit("even", False, False, "", chunks)


def micro_batch_choices(problem: Problem, dp: int) -> tuple[int, ...]:
    """Return the micro-batch sizes to try, in sequences, within ``goals.limits``.

    If the spec does not fix the size, the sizes are the divisors, up to ``MAX_MICRO_BATCH``, of the
    number of sequences per replica and step.
    """
    share = problem.job.global_batch // dp
    if problem.pins.micro_batch:
        choices: tuple[int, ...] = (problem.pins.micro_batch,)
    elif share == 0 or problem.job.global_batch % dp:
        choices = (1,)  # the rule on the global batch rejects it
    else:
        usual = tuple(n for n in divisors(share) if n <= MAX_MICRO_BATCH)
        choices = _allowed_sizes(problem, "micro_batch", usual, lambda: divisors(share))
    return tuple(n for n in choices if is_size_allowed(problem.goals.limits, "micro_batch", n))


def recompute_levels(problem: Problem, framework: Framework) -> tuple[Recompute, ...]:
    """Return the recompute level of the spec, or all levels of the framework from none to full."""
    return (
        (problem.pins.recompute,)
        if problem.pins.recompute
        else framework.recompute_settings(problem)
    )
