"""Search for training layouts: filter them, and rank the survivors or report why there are none."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, islice, product
from math import inf

from parc.compiler.cost.counts.flops import model_flops_utilization
from parc.compiler.cost.memory.peak import (
    EXPECTED,
    HIGH,
    MemoryEnd,
    peak_bytes,
    peak_stage,
)
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Candidate, Layout, Problem, Search
from parc.compiler.ir.rule import Rule
from parc.compiler.search.choose_context_exchange import fastest_exchange
from parc.compiler.search.explain_invalid import explain_invalid, report_excess_chunks
from parc.compiler.search.explain_oversized import OVERSIZED, explain_oversized
from parc.compiler.search.filter_layouts import LayoutFilter
from parc.compiler.search.layout_space import LayoutSpace, sibling_layouts
from parc.compiler.search.rank_layouts import LayoutRanking, RankedLayout
from parc.compiler.search.search_other_splits import search_near_misses, search_other_splits
from parc.compiler.search.survivors import ROUNDING, Survivor, with_step_time

MAX_EXAMINED = 512
"""Largest number of invalid layouts that are checked to explain an empty result."""


def search_layouts(
    cost_model: CostModel, sink: Sink | None, most_seconds: float = inf
) -> Search | None:
    """Return the ranked candidates and the number of rejected layouts per reason.

    The reason is the code of the first rule that a layout violates, or ``recompute`` if the same
    layout fits with less recompute. Variants of last resort, such as those with optimizer state in
    host memory, are tried only if no other layout fits, and chosen only if no other layout is
    expected to fit, or if they are safer and not slower. Returns None if there are no candidates,
    after a diagnostic that explains why; without ``sink``, nothing is explained, which saves most
    of the time. If no step takes at most ``most_seconds``, the first candidate is not always the
    best, because improvements that cannot be as fast are not searched.
    """
    problem = cost_model.problem
    if report_excess_chunks(problem, cost_model.framework, sink or Sink()):
        return None
    rules = all_rules(problem, cost_model.framework)
    variants = cost_model.framework.layout_variants(problem)
    fastest = fastest_exchange(cost_model, rules)
    spaces = [
        LayoutSpace.for_variant(problem, cost_model.framework, variant, fastest)
        for variant in variants
    ]
    filters: dict[int, LayoutFilter] = {}
    survivors: list[Survivor] = []
    order = sorted(range(len(spaces)), key=lambda index: variants[index].last_resort)
    if _all_layouts_violate_a_rule(problem, rules, spaces):
        _explain_invalid_layouts(cost_model, [spaces[index] for index in order], sink)
        return None
    ranking = LayoutRanking(cost_model, filters, spaces[0].levels)
    # Variants of last resort are slower, so they run only if nothing else fits.
    for last_resort, end in product((False, True), (HIGH, EXPECTED)):
        chosen = {
            index: space
            for index, space in enumerate(spaces)
            if variants[index].last_resort is last_resort and not variants[index].refines
        }
        survivors = _filter_variants(cost_model, filters, chosen, end)
        if survivors:
            break
    if survivors and (last_resort, end) == (False, EXPECTED):
        others = {index: spaces[index] for index in order if variants[index].last_resort}
        survivors = _safer_layouts(ranking, filters, others, survivors) or survivors
    if survivors:
        refining = {i: spaces[i] for i, variant in enumerate(variants) if variant.refines}
        survivors = _with_improvements(ranking, filters, refining, survivors, most_seconds)
    dropped = sum((one.dropped_counts for one in filters.values()), Counter[str]())
    if not survivors:
        fallback = _fallback_candidate(filters, cost_model, dropped, sink)
        if fallback is None:
            return None
        survivors = [fallback]
        dropped[OVERSIZED] -= 1  # the fallback was counted as oversized, but is now a candidate
    ranked = ranking.best_layouts(survivors)
    return Search(
        enumerated=sum(one.enumerated for one in filters.values()),
        dropped=tuple(sorted((code, count) for code, count in dropped.items() if count)),
        ranked=tuple(_plan_candidates(cost_model, ranked)),
    )


def _filter_variants(
    cost_model: CostModel,
    filters: dict[int, LayoutFilter],
    spaces: dict[int, LayoutSpace],
    end: MemoryEnd,
) -> list[Survivor]:
    """Return the layouts of ``spaces`` that fit at ``end`` of their memory intervals.

    ``spaces`` contains search spaces by the index of their variant. Their filters are added to
    ``filters``. If no layout fits, those that fit with another stage split are returned.
    """
    rules = all_rules(cost_model.problem, cost_model.framework)
    survivors: list[Survivor] = []
    for index, space in spaces.items():
        # Rules do not read the memory, so without oversized layouts the result stays the same.
        if index not in filters or filters[index].dropped_counts[OVERSIZED]:
            limit_bytes = memory_limit_bytes(cost_model)
            filters[index] = LayoutFilter(cost_model, rules, limit_bytes, space, end)
            filters[index].filter_all_layouts()
            survivors += filters[index].survivors_of_variant(index)
    return survivors or list(search_near_misses(cost_model, filters, (0, inf)))


def _safer_layouts(
    ranking: LayoutRanking,
    filters: dict[int, LayoutFilter],
    spaces: dict[int, LayoutSpace],
    risky: list[Survivor],
) -> list[Survivor]:
    """Return the layouts of last resort that fit with their whole interval, if they are as good.

    They are if the best of them ties with the best of ``risky``, which are expected to fit, or is
    better. Otherwise, the result is empty.
    ``spaces`` contains the search spaces of last resort, by the index of their variant.
    """
    safe_filters: dict[int, LayoutFilter] = {}
    safe = _filter_variants(ranking.cost_model, safe_filters, spaces, HIGH)
    if not safe:
        return []
    world, seconds = _best_world_and_seconds(ranking, risky)
    most = (world, seconds * (1 + ranking.cost_model.problem.goals.tie))
    levels = next(iter(spaces.values())).levels
    ranking_of_safe = LayoutRanking(ranking.cost_model, safe_filters, levels)
    if _best_world_and_seconds(ranking_of_safe, safe) > most:
        return []
    filters.update(safe_filters)
    return safe


def _with_improvements(
    ranking: LayoutRanking,
    filters: dict[int, LayoutFilter],
    refining: dict[int, LayoutSpace],
    survivors: list[Survivor],
    most_seconds: float,
) -> list[Survivor]:
    """Return ``survivors`` and the layouts that are compared with the fastest of them.

    These are layouts of the variants in ``refining``, layouts that fit only with another stage
    split, faster stage splits, and layouts that recompute only some layers. Those of the last three
    kinds that take longer than ``most_seconds`` and cannot tie with a faster layout are left out.
    """
    cost_model, found = ranking.cost_model, list(survivors)
    best = _best_world_and_seconds(ranking, found)
    if refined := _search_refinements(cost_model, filters, refining, found, best):
        found += refined
        best = min(best, _best_world_and_seconds(ranking, refined))
    best = min(best, (best[0], most_seconds))
    if near := search_near_misses(cost_model, filters, best):
        found += near
        best = min(best, _best_world_and_seconds(ranking, near))
    if other := search_other_splits(cost_model, filters, found, best):
        found += other
        best = min(best, _best_world_and_seconds(ranking, other))
    space = next(iter(filters.values())).space
    if len(space.levels) > space.sibling_levels:
        found += _search_partial_recompute(cost_model, filters, found, best)
    return found


def _search_refinements(
    cost_model: CostModel,
    filters: dict[int, LayoutFilter],
    spaces: dict[int, LayoutSpace],
    survivors: list[Survivor],
    world_and_seconds: tuple[int, float],
) -> list[Survivor]:
    """Return the layouts of variants that make a survivor faster by more than ``goals.tie``.

    ``spaces`` contains the search spaces of these variants, by index. The filters of those that are
    used are added to ``filters``. ``world_and_seconds`` is the number of GPUs, or 0 for any, and
    the step time of the fastest survivor.
    """
    found, first = list[Survivor](), next(iter(filters.values()))
    world, best = world_and_seconds
    rows = [row for row in survivors if world in (0, row.point.world)]
    for index, space in spaces.items():
        limit_bytes = memory_limit_bytes(cost_model)
        one = LayoutFilter(cost_model, first.rules, limit_bytes, space, first.end)
        if _is_any_faster(one, rows, best / (1 + cost_model.problem.goals.tie)):
            filters[index] = one
            one.filter_all_layouts()
            found += one.survivors_of_variant(index)
    return found


def _is_any_faster(one: LayoutFilter, survivors: list[Survivor], seconds: float) -> bool:
    """Return True if one of ``survivors`` takes less than ``seconds`` in the space of ``one``.

    The layouts are those of another variant of the framework. Their memory and the rules are not
    checked.
    """
    # The fastest layouts of the other variant come first, because they likely decide.
    for row in sorted(survivors):
        point = row.point._replace(split=0)
        one.stage_splits(point.pp)  # gives the splits their numbers
        if one.least_seconds(point) < seconds and one.is_faster_when_placed(
            point, one.step_seconds(point), seconds
        ):
            return True
    return False


def _all_layouts_violate_a_rule(
    problem: Problem, rules: Iterable[Rule], spaces: Iterable[LayoutSpace]
) -> bool:
    """Return True if a rule that does not depend on the layout is violated."""
    constant = [rule for rule in rules if not rule.reads]
    layouts = chain.from_iterable(map(sibling_layouts, spaces))
    layout = next(chain.from_iterable(layouts), None)
    return layout is not None and any(rule.broken(problem, layout) for rule in constant)


def _explain_invalid_layouts(
    cost_model: CostModel, spaces: Iterable[LayoutSpace], sink: Sink | None
) -> None:
    """Report to ``sink``, if there is one, which rules the first layouts of ``spaces`` violate."""
    if sink is not None:
        layouts = chain.from_iterable(chain.from_iterable(map(sibling_layouts, spaces)))
        examined = islice(layouts, MAX_EXAMINED)
        explain_invalid(cost_model.problem, cost_model.framework, examined, sink)


def _search_partial_recompute(
    cost_model: CostModel,
    filters: dict[int, LayoutFilter],
    survivors: list[Survivor],
    world_and_seconds: tuple[int, float],
) -> list[Survivor]:
    """Return the layouts that recompute only some layers and beat or tie with all ``survivors``.

    Each of them differs from a survivor only in recompute: it recomputes the first n layers of each
    model chunk, where n is the smallest number that makes the layout fit into memory.
    ``world_and_seconds`` is the number of GPUs, or 0 for any, and the step time of the fastest
    survivor.
    """
    goals = cost_model.problem.goals
    world, best = world_and_seconds
    # Recompute repeats at most the forward pass, so without it a step takes at least half as long.
    longest = 2 * best
    rows = [row for row in survivors if row.point.level and world in (0, row.point.world)]
    floors: list[tuple[float, Survivor]] = []
    for row in rows:
        point, one = row.point.with_recompute_level(0), filters[row.variant]
        if row.seconds <= longest and one.least_seconds(point) <= best * (1 + goals.tie):
            floor = one.step_seconds(point)
            if floor <= best * (1 + goals.tie):
                floors.append((floor + one.least_placement_seconds(row.point), row))
    found: list[tuple[float, Survivor]] = []
    for floor, row in sorted(floors):
        most, one = best * (1 + goals.tie), filters[row.variant]
        if floor > most:
            break
        most -= one.least_placement_seconds(row.point)
        partial = _with_fewest_recomputed_layers(cost_model, one, row, most)
        if partial is not None and with_step_time(filters, row).seconds <= longest:
            seconds = partial.seconds + one.usual_placement_seconds(row.point)
            found.append((seconds, partial))
            best = min(best, seconds)
    return [row for seconds, row in found if seconds <= best * (1 + goals.tie)]


def _best_world_and_seconds(ranking: LayoutRanking, survivors: list[Survivor]) -> tuple[int, float]:
    """Return the number of GPUs and the seconds per step of the best of ``survivors``.

    The seconds include those that its placement adds. If the goal is not fewest-gpus, the number
    of GPUs in the result is 0.
    """
    best = next(ranking.best_first(survivors))
    return ranking.gpus_to_minimize(best.key[1]), best.score


def _with_fewest_recomputed_layers(
    cost_model: CostModel, layout_filter: LayoutFilter, row: Survivor, most_seconds: float
) -> Survivor | None:
    """Return ``row`` with the fewest recomputed layers per model chunk that fit into memory.

    None if the layout then violates a rule, is not faster than ``row``, or is slower than
    ``most_seconds``.
    """
    limit_bytes, siblings = memory_limit_bytes(cost_model), layout_filter.space.sibling_levels

    @cache
    def whole_seconds() -> float:
        """Return the seconds per step of ``row``, which recomputes more layers."""
        return step_time(cost_model, layout_filter.build_layout(row.point)).total_seconds

    def layout_with(count: int) -> Layout:
        """Return the layout that recomputes the first ``count`` layers of each model chunk."""
        return layout_filter.build_layout(row.point.with_recompute_level(siblings + count - 1))

    def is_bound_slow(count: int) -> bool:
        """Return True if a lower bound shows that ``count`` recomputed layers take too long."""
        point = row.point.with_recompute_level(siblings + count - 1)
        return layout_filter.step_seconds(point) * (1 - ROUNDING) > most_seconds

    def is_slow(count: int) -> bool:
        """Return True if the step takes too long with ``count`` recomputed layers."""
        seconds = step_time(cost_model, layout_with(count)).total_seconds
        return seconds > most_seconds or seconds >= whole_seconds() * (1 - ROUNDING)

    def fits(count: int) -> bool:
        """Return True if the layout fits into memory with ``count`` recomputed layers."""
        return peak_bytes(cost_model, layout_with(count), layout_filter.end) <= limit_bytes

    if is_bound_slow(1):
        return None
    chunks = chain.from_iterable(layout_with(1).split.chunks)
    counts = range(1, max(chunk.layers for chunk in chunks) + 1)
    # Time grows and memory shrinks with the number of layers, so both are bisected. The bound is
    # fast to compute, and often leaves no number of layers that fits.
    for is_too_slow in (is_bound_slow, is_slow):
        counts = counts[: bisect_left(counts, True, key=is_too_slow)]
        if not counts or not fits(counts[-1]):
            return None
    count = counts[bisect_left(counts, True, key=fits)]
    layout = layout_with(count)
    if any(rule.broken(cost_model.problem, layout) for rule in layout_filter.rules):
        return None
    point = row.point.with_recompute_level(siblings + count - 1)
    return Survivor(step_time(cost_model, layout).total_seconds, point, row.variant)


def _fallback_candidate(
    filters: dict[int, LayoutFilter],
    cost_model: CostModel,
    dropped: Counter[str],
    sink: Sink | None,
) -> Survivor | None:
    """Return the layout that needs the least memory, if this layout might fit into memory.

    A layout might fit if the low end of its memory estimate is within the limit; ``check_memory``
    warns about such a plan (G02). If the layout does not fit, or if no layout is valid, the result
    is None, after a diagnostic to ``sink``, if there is one.
    """
    limit_bytes = memory_limit_bytes(cost_model)
    found = [
        (one.build_layout(smallest[0]), Survivor(0.0, smallest[0], index), smallest[1])
        for index, one in filters.items()
        if one.dropped_counts[OVERSIZED] and (smallest := one.smallest_layout()) is not None
    ]
    if not found:
        _explain_invalid_layouts(cost_model, [one.space for one in filters.values()], sink)
        return None
    # The variants have separate filters, so their smallest layouts are compared here.
    layout, candidate, _ = min(found, key=lambda one: peak_bytes(cost_model, one[0]))
    if peak_stage(cost_model, layout).low_bytes <= limit_bytes:
        return candidate
    if sink is not None:
        splits = frozenset[str]().union(*(sizes for _, _, sizes in found))
        explain_oversized(cost_model, layout, dropped, sink, splits=splits)
    return None


def _plan_candidates(cost_model: CostModel, ranked: list[RankedLayout]) -> Iterator[Candidate]:
    """Yield one candidate of the plan per ranked layout, with the MFU of the layout."""
    for row in ranked:
        mfu = model_flops_utilization(cost_model.problem, row.score, row.layout.world)
        peak = peak_bytes(cost_model, row.layout)
        yield Candidate(row.layout, row.score, peak, mfu, row.exposed_seconds)
