"""Search for stage splits other than the framework's own, in which no stage waits for another one.

Frameworks split layers by their number. The loss of a small model with a large vocabulary takes as
long as several layers, and dense layers are faster than layers with experts. With the estimated
times, fewer layers share a stage with the loss, if this makes the step shorter.
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.memory.peak import EXPECTED, MemoryEnd, memory_of_all_stages, peak_bytes
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.layer_time import output_head_seconds, recompute_seconds
from parc.compiler.cost.step.stage_time import cached_layer_time
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.ir import LayerKind, Layout, PipelineSplit
from parc.compiler.ir.rule import Rule
from parc.compiler.search.balance_stages import StageWork, balanced_counts
from parc.compiler.search.filter_layouts import LayoutFilter
from parc.compiler.search.rank_layouts import Survivor

MAX_ROUNDS = 8
"""Largest number of times that stages which do not fit into memory give layers to others."""


def search_other_splits(
    cost_model: CostModel,
    filters: dict[int, LayoutFilter],
    survivors: list[Survivor],
    world_and_seconds: tuple[int, float],
) -> list[Survivor]:
    """Return the layouts with balanced stages that tie with or beat all ``survivors``.

    Each of them differs from a survivor only in its stage split, and is faster by more than
    ``goals.tie``. Survivors are tried in the order of their step time without the imbalance of
    their stages, until this time is above that of all ties.

    Args:
        cost_model: cost model of the problem.
        filters: index of a framework variant -> filter of its layouts.
        survivors: layouts with the split of the framework.
        world_and_seconds: number of GPUs, or 0 for any, and step time of the fastest survivor.
    """
    world, best = world_and_seconds
    tie = cost_model.problem.goals.tie
    rows = [
        (filters[row.variant].seconds_if_balanced(row), row)
        for row in survivors
        if row.point.pp > 1 and world in (0, row.point.world)
    ]
    found: list[tuple[float, Survivor]] = []
    for least, row in sorted(rows):
        if least > best * (1 + tie):
            break
        if least > row.seconds * (1 - tie):
            continue
        other = _with_other_split(cost_model, filters[row.variant], row)
        if other is not None and other.seconds <= best * (1 + tie):
            found.append((least, other))
            best = min(best, other.seconds)
    most = best * (1 + tie)
    return [row for least, row in found if max(least, row.seconds) <= most]


def _with_other_split(
    cost_model: CostModel, layout_filter: LayoutFilter, row: Survivor
) -> Survivor | None:
    """Return ``row`` with balanced stages; None if no split is faster by more than ``goals.tie``.

    The simplest of the splits that tie with the fastest one is used.
    """
    problem = cost_model.problem
    tie, layout = problem.goals.tie, layout_filter.build_layout(row.point)
    found = [
        (step_time(cost_model, other).total_seconds, other)
        for other in balanced_layouts(cost_model, layout_filter.rules, layout, layout_filter.end)
    ]
    if not found:
        return None
    most = min(seconds for seconds, _ in found) * (1 + tie)
    seconds, other = next(pair for pair in found if pair[0] <= most)
    if seconds >= step_time(cost_model, layout).total_seconds * (1 - tie):
        return None
    return Survivor(seconds, layout_filter.with_split(row.point, other.split), row.variant)


def balanced_layouts(
    cost_model: CostModel, rules: tuple[Rule, ...], layout: Layout, end: MemoryEnd
) -> list[Layout]:
    """Return valid copies of ``layout`` with balanced stages that fit into memory, simplest first.

    Memory is compared with the limit at ``end`` of its interval. As long as no split fits, stages
    that need too much memory get fewer layers.
    """
    problem, limit = cost_model.problem, memory_limit_bytes(cost_model)
    most = [problem.model.layers] * layout.pp
    for _ in range(MAX_ROUNDS):
        layouts = [replace(layout, split=one) for one in _balanced_splits(cost_model, layout, most)]
        fitting = [one for one in layouts if peak_bytes(cost_model, one, end) <= limit]
        if fitting or not layouts:
            return [one for one in fitting if not any(rule.broken(problem, one) for rule in rules)]
        for one in layouts:
            _limit_full_stages(cost_model, one, end, most)
    return []


def _limit_full_stages(
    cost_model: CostModel, layout: Layout, end: MemoryEnd, most: list[int]
) -> None:
    """Lower ``most``, the largest number of layers of each stage, where ``layout`` does not fit."""
    limit = memory_limit_bytes(cost_model)
    for one in memory_of_all_stages(cost_model, layout):
        nbytes = one.total_bytes if end == EXPECTED else one.high_bytes
        if nbytes > limit:
            most[one.stage] = min(most[one.stage], layout.split.stage_layers(one.stage) - 1)


def _balanced_splits(cost_model: CostModel, layout: Layout, most: list[int]) -> list[PipelineSplit]:
    """Return the balanced splits that the framework can run, simplest first.

    ``most`` contains the largest number of layers of each stage.
    """
    problem, framework = cost_model.problem, cost_model.framework
    # Some frameworks require a layer in each chunk.
    for least in (0, 1):
        work = _stage_work(cost_model, layout, least)
        splits = [
            framework.split_with_counts(problem, layout.split, counts)
            for counts in balanced_counts(work, most)
        ]
        found = [one for one in splits if one is not None and one != layout.split]
        if found:
            return found
    return []


def _stage_work(cost_model: CostModel, layout: Layout, least: int) -> StageWork:
    """Return the times of the layers of ``layout``, and of the other work of its chunks.

    Chunks with other work have at least ``least`` layers, and all others at least one.
    """
    model, pp, vpp = cost_model.problem.model, layout.pp, layout.vpp
    seconds = {kind: _layer_seconds(cost_model, layout, kind) for kind in model.kinds}
    head = output_head_seconds(cost_model, layout)
    extra = seconds[model.last_kind] + head
    chunks = [layout.split.chunks[place % pp][place // pp] for place in range(pp * vpp)]
    return StageWork(
        pp=pp,
        layers=tuple(seconds[kind] for kind in model.layer_kinds),
        others=tuple(chunk.mtp_layers * extra + chunk.loss * head for chunk in chunks),
        least=tuple(least if chunk.loss or chunk.mtp_layers else 1 for chunk in chunks),
    )


def _layer_seconds(cost_model: CostModel, layout: Layout, kind: LayerKind) -> float:
    """Return the seconds of one micro-batch in a layer of ``kind``, with its recomputation."""
    layer = cached_layer_time(cost_model, layout, kind)
    if layout.recompute.method == "block":
        # Few layers are recomputed, and which ones depends on the split.
        return layer.total
    return layer.total + recompute_seconds(cost_model, layout, layer, kind)
