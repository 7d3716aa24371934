"""Search for stage splits other than the framework's own, in which no stage waits for another one.

Frameworks split layers by their number. The loss of a small model with a large vocabulary takes as
long as several layers, and dense layers are faster than layers with experts. With the estimated
times, fewer layers share a stage with the loss, if this makes the step shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, inf

from parc.compiler.cost.memory.peak import EXPECTED, MemoryEnd, memory_of_all_stages, peak_bytes
from parc.compiler.cost.schedules.estimates import micro_batches_in_flight
from parc.compiler.cost.schedules.table import PipelineShape
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.layer_time import output_head_seconds
from parc.compiler.cost.step.stage_time import cached_layer_time, recompute_seconds
from parc.compiler.cost.step.step_time import seconds_within, step_time
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.ir import LayerKind, Layout, PipelineSplit, StageMemory
from parc.compiler.ir.rule import Rule
from parc.compiler.search.balance_stages import StageWork, balanced_counts
from parc.compiler.search.enumerate_layouts import LayoutPoint
from parc.compiler.search.filter_layouts import LayoutFilter
from parc.compiler.search.survivors import Survivor, with_step_time

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
        world_and_seconds: number of GPUs, or 0 for any, and step time of the fastest survivor
            with its placement.
    """
    world, best = world_and_seconds
    tie = cost_model.problem.goals.tie
    timed = (
        with_step_time(filters, row)
        for row in survivors
        if row.point.pp > 1
        and world in (0, row.point.world)
        and not (row.is_lower_bound and row.seconds > best * (1 + tie))
    )
    rows = []
    for row in timed:
        seconds = filters[row.variant].best_split_seconds(row.point, row.seconds)
        if seconds <= best * (1 + tie) and seconds <= row.seconds * (1 - tie):
            least = seconds + filters[row.variant].least_placement_seconds(row.point)
            rows.append((least, seconds, row))
    found: list[tuple[float, Survivor]] = []
    for least, seconds, row in sorted(rows):
        if least > best * (1 + tie):
            break
        added = filters[row.variant].usual_placement_seconds(row.point)
        most = best * (1 + tie) - added
        if seconds > most:
            continue
        other = _with_other_split(cost_model, filters[row.variant], row, most)
        if other is not None:
            found.append((other.seconds + added, other))
            best = min(best, other.seconds + added)
    return [row for seconds, row in found if seconds <= best * (1 + tie)]


def search_near_misses(
    cost_model: CostModel,
    filters: Mapping[int, LayoutFilter],
    world_and_seconds: tuple[int, float],
) -> list[Survivor]:
    """Return layouts that fit only with another stage split, and tie with or beat all survivors.

    With the framework's own split, one of their stages needs more memory than a GPU has, such as
    the first one, which has most micro-batches in flight.

    Args:
        cost_model: cost model of the problem.
        filters: index of a framework variant -> filter of its layouts.
        world_and_seconds: number of GPUs, or 0 for any, and step time of the fastest survivor
            with its placement (infinite without survivors).
    """
    best, tie = world_and_seconds[1], cost_model.problem.goals.tie
    found: list[tuple[float, Survivor]] = []
    for least, split, seconds, index, point in _promising_misses(filters, world_and_seconds, tie):
        if least > best * (1 + tie):
            break
        layout, most = filters[index].build_layout(point), best * (1 + tie)
        layers = _longest_stage(cost_model, layout, filters[index].end)
        if layers is None:
            continue
        # With interleaving, the step does not grow by the whole excess of the longest stage.
        if point.vpp == 1 and filters[index].best_split_seconds(point, seconds, layers) > most:
            continue
        added = filters[index].usual_placement_seconds(point)
        if split + added > most:
            continue
        row = _fastest_split(cost_model, filters[index], Survivor(most - added, point, index))
        if row is not None:
            found.append((row.seconds + added, row))
            best = min(best, row.seconds + added)
    return [row for seconds, row in found if seconds <= best * (1 + tie)]


def _promising_misses(
    filters: Mapping[int, LayoutFilter], world_and_seconds: tuple[int, float], tie: float
) -> list[tuple[float, float, float, int, LayoutPoint]]:
    """Return the near misses that could tie with the best survivor, the most promising ones first.

    Each item is (least step time, the same without placement, step time with the split of the
    framework, framework variant, layout). The arguments are those of ``search_near_misses``.
    """
    world, best = world_and_seconds
    rows = []
    for index, one in filters.items():
        for point in one.near_misses:
            if world not in (0, point.world) or one.least_seconds(point) > best * (1 + tie):
                continue
            seconds = one.step_seconds(point)
            split = one.best_split_seconds(point, seconds)
            if split <= best * (1 + tie):
                # Without survivors, no bound can exclude a layout.
                added = one.least_placement_seconds(point) if best < inf else 0.0
                rows.append((split + added, split, seconds, index, point))
    return sorted(rows)


def _longest_stage(cost_model: CostModel, layout: Layout, end: MemoryEnd) -> int | None:
    """Return about the fewest layers of the longest stage with which ``layout`` fits into memory.

    None if the stages cannot hold all layers, however these are divided. Each layer is assumed to
    need the smallest static memory per layer of all stages, and the smallest activations per layer
    and micro-batch in flight.
    """
    limit, model = memory_limit_bytes(cost_model), cost_model.problem.model
    shape = PipelineShape(
        layout.pp, layout.micro_batches(cost_model.problem.job.global_batch), layout.vpp
    )
    stages = memory_of_all_stages(cost_model, layout)
    layers = [layout.split.stage_layers(one.stage) for one in stages]
    flights = [micro_batches_in_flight(layout.schedule, one.stage, shape) for one in stages]
    # At the high end of the interval, activations are larger.
    nbytes = [_bytes_at_end(one, end) for one in stages]
    state = min(
        one.static_bytes / count for count, one in zip(layers, stages, strict=True) if count
    )
    kept = [
        (count * flight, one.activations_bytes * (size - one.static_bytes) / one.dynamic_bytes)
        for count, one, size, flight in zip(layers, stages, nbytes, flights, strict=True)
    ]
    (least, low), (most, high) = min(kept), max(kept)
    saved = max(0.0, (high - low) / (most - least) if most > least else high / most)
    capacity = [
        # A layer whose state and activations are all offloaded needs no bytes.
        # Rounded, because it is an estimate; each split is checked before it is kept.
        max(0, count + round((limit - size) / max(1.0, state + flight * saved)))
        for count, size, flight in zip(layers, nbytes, flights, strict=True)
    ]
    for count in range(ceil(model.layers / layout.pp), max(capacity) + 1):
        if sum(min(one, count) for one in capacity) >= model.layers:
            return count
    return None


def _with_other_split(
    cost_model: CostModel, layout_filter: LayoutFilter, row: Survivor, most: float
) -> Survivor | None:
    """Return ``row`` with balanced stages; None if this does not save more than ``goals.tie``.

    None too if the step then takes more than ``most`` seconds.
    """
    found = _fastest_split(cost_model, layout_filter, row._replace(seconds=most))
    if found is None:
        return None
    own = step_time(cost_model, layout_filter.build_layout(row.point)).total_seconds
    return found if found.seconds < own * (1 - cost_model.problem.goals.tie) else None


def _fastest_split(
    cost_model: CostModel, layout_filter: LayoutFilter, row: Survivor
) -> Survivor | None:
    """Return the layout of ``row`` with balanced stages that fit into memory; None without one.

    The simplest of the splits that tie with the fastest one is used; None if its step takes longer
    than that of ``row``.
    """
    layout, tie = layout_filter.build_layout(row.point), 1 + cost_model.problem.goals.tie
    # Slower splits cannot tie with one that is as fast as ``row``.
    found = [
        (seconds_within(cost_model, other, row.seconds * tie), other)
        for other in balanced_layouts(cost_model, layout_filter.rules, layout, layout_filter.end)
    ]
    if not found:
        return None
    most = min(seconds for seconds, _ in found) * tie
    seconds, other = next(pair for pair in found if pair[0] <= most)
    if seconds > row.seconds:
        return None
    return row._replace(seconds=seconds, point=layout_filter.with_split(row.point, other.split))


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
        nbytes = _bytes_at_end(one, end)
        if nbytes > limit:
            layers = layout.split.stage_layers(one.stage)
            # A layer needs at most an equal part of the memory of its stage.
            excess = max(1, ceil((1 - limit / nbytes) * layers))
            most[one.stage] = min(most[one.stage], layers - excess)


def _bytes_at_end(stage: StageMemory, end: MemoryEnd) -> float:
    """Return the memory of a stage in bytes at ``end`` of its interval."""
    return stage.total_bytes if end == EXPECTED else stage.high_bytes


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
