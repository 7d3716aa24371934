"""The search as it reads on paper: every layout built, every rule asked, every fit priced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product, takewhile
from math import ceil
from typing import Any
from unittest import mock

from parc.backends.registry import framework
from parc.compiler.cost.memory.peak import EXPECTED, HIGH, peak_bytes
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import stage_contents
from parc.compiler.cost.step.stage_time import cached_layer_time, recompute_seconds, stage_time
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, Recompute, Search
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.search import timed_layouts
from parc.compiler.search.choose_context_exchange import fastest_exchange
from parc.compiler.search.layout_space import LayoutSpace, sibling_layouts
from parc.compiler.search.search_layouts import search_layouts
from parc.compiler.search.search_other_splits import balanced_layouts
from tests.compiled import messages_of, resolved

Row = tuple[float, float, Layout]
"""(step seconds, peak bytes, layout)."""


def cost_model_of(spec: dict[str, Any]) -> CostModel:
    """The problem of a spec that has no errors, ready to be priced."""
    problem, sink = resolved(spec)
    assert problem is not None, messages_of(sink)
    return cost_model_for(problem, framework(problem.framework))


def sift(cost_model: CostModel) -> tuple[int, dict[str, int], list[Row]]:
    """(enumerated, dropped by rule, what is left).

    What is left fits with the whole interval of its memory, or else with the expected value;
    variants of last resort follow only if nothing is left, or if they are safer and not slower.
    """
    limit, tie = memory_limit_bytes(cost_model), 1 + cost_model.problem.goals.tie
    rows = list[Row]()
    sifted: dict[bool, tuple[int, Counter[str]]] = {}
    for last, high in product((False, True), (True, False)):
        if not rows:
            families = list(families_of(cost_model, last))
            lost, rows = sift_families(cost_model, families, high=high)
            sifted[last] = sum(len(family) for family in families), lost
            is_risky = not high and not last
    if rows and is_risky:
        families = list(families_of(cost_model, last=True))
        lost, safe = sift_families(cost_model, families, high=True)
        world, best = best_of(cost_model, rows)
        if safe and best_of(cost_model, safe) <= (world, best * tie):
            sifted[True] = sum(len(family) for family in families), lost
            rows = safe
    enumerated = sum(count for count, _ in sifted.values())
    dropped = sum((lost for _, lost in sifted.values()), Counter[str]())
    if rows and (families := list(refined_families(cost_model, rows))):
        high = all(peak_bytes(cost_model, row[2], HIGH) <= limit for row in rows)
        lost, more = sift_families(cost_model, families, high=high)
        enumerated += sum(len(family) for family in families)
        dropped += lost
        rows += more
    return enumerated, {code: count for code, count in dropped.items() if count}, rows


def best_of(cost_model: CostModel, rows: list[Row]) -> tuple[int, float]:
    """(GPUs, or 0 unless they are to be few, step seconds) of the best of ``rows``."""
    few = cost_model.problem.goals.maximize == "fewest-gpus"
    return min((row[2].world if few else 0, row[0]) for row in rows)


def sift_families(
    cost_model: CostModel, families: list[tuple[Layout, ...]], high: bool
) -> tuple[Counter[str], list[Row]]:
    """(dropped by rule, what is left) with the high end of memory, or with the expected value."""
    problem, limit = cost_model.problem, memory_limit_bytes(cost_model)
    rules = all_rules(problem, cost_model.framework)
    end = HIGH if high else EXPECTED
    dropped, rows = Counter[str](), list[Row]()
    for family in families:
        for index, layout in enumerate(family):
            code = next((rule.code for rule in rules if rule.broken(problem, layout)), None)
            if code or peak_bytes(cost_model, layout, end) > limit:
                dropped[code or "R17"] += 1
                continue
            seconds = step_time(cost_model, layout).total_seconds
            rows.append((seconds, peak_bytes(cost_model, layout), layout))
            dropped["recompute"] += len(family) - index - 1
            break
    return dropped, rows


def near_rows(cost_model: CostModel, rows: list[Row]) -> list[Row]:
    """The layouts that fit only with balanced stages, and tie with the best of all."""
    problem, limit = cost_model.problem, memory_limit_bytes(cost_model)
    rules, tie = all_rules(problem, cost_model.framework), 1 + problem.goals.tie
    fits_high = all(peak_bytes(cost_model, row[2], HIGH) <= limit for row in rows)
    end = HIGH if fits_high else EXPECTED
    few = problem.goals.maximize == "fewest-gpus"
    world, best = min((row[2].world if few else 0, row[0]) for row in rows)
    variants = cost_model.framework.layout_variants(problem)
    kinds = {(one.zero_stage, one.offload): one.last_resort for one in variants}
    last = kinds[rows[0][2].zero_stage, rows[0][2].offload]
    families = (
        takewhile(lambda one: peak_bytes(cost_model, one, end) > limit, valid)
        for family in families_of(cost_model, last)
        if family[0].pp > 1 and world in (0, family[0].world)
        for valid in [[one for one in family if not any(r.broken(problem, one) for r in rules)]]
    )
    found: list[tuple[float, Row]] = []
    pairs = [(balanced_seconds(cost_model, one), one) for one in chain.from_iterable(families)]
    for least, layout in pairs:
        if least > best * tie:
            continue
        others = [
            (step_time(cost_model, one).total_seconds, peak_bytes(cost_model, one), one)
            for one in balanced_layouts(cost_model, rules, layout, end)
        ]
        most = min((row[0] for row in others), default=0.0) * tie
        found += [(least, row) for row in others if row[0] <= most][:1]
    best = min([best, *(row[0] for _, row in found)])
    return [row for _, row in found if row[0] <= best * tie]


def split_rows(cost_model: CostModel, rows: list[Row]) -> list[Row]:
    """The layouts with balanced stages that beat the same layout by more than a tie.

    They tie with the best of all.
    """
    problem, limit = cost_model.problem, memory_limit_bytes(cost_model)
    rules, tie = all_rules(problem, cost_model.framework), problem.goals.tie
    few = problem.goals.maximize == "fewest-gpus"
    fits_high = all(peak_bytes(cost_model, row[2], HIGH) <= limit for row in rows)
    end = HIGH if fits_high else EXPECTED
    world, best = min((row[2].world if few else 0, row[0]) for row in rows)
    pairs = [(balanced_seconds(cost_model, row[2]), row) for row in rows if row[2].pp > 1]
    found: list[tuple[float, Row]] = []
    for least, (seconds, _, layout) in sorted(pairs, key=lambda pair: pair[0]):
        if least > best * (1 + tie) or world not in (0, layout.world):
            continue
        others = [
            (step_time(cost_model, one).total_seconds, peak_bytes(cost_model, one), one)
            for one in balanced_layouts(cost_model, rules, layout, end)
        ]
        if not others:
            continue
        most = min(row[0] for row in others) * (1 + tie)
        simplest = next(row for row in others if row[0] <= most)
        if simplest[0] < seconds * (1 - tie):
            found.append((least, simplest))
            best = min(best, simplest[0])
    return [row for _, row in found if row[0] <= best * (1 + tie)]


def balanced_seconds(cost_model: CostModel, layout: Layout) -> float:
    """The step time if the slowest stage were as fast as any division of the layers allows."""
    kinds = cost_model.problem.model.kinds
    layers = {kind: cached_layer_time(cost_model, layout, kind) for kind in kinds}
    stages = [
        stage_time(
            cost_model, layout, stage_contents(cost_model.problem.model, layout.split, rank),
            layout.split.chunks[rank], layers,
        ).total
        for rank in range(layout.pp)
    ]  # fmt: skip
    least = sum(stages) / layout.pp
    for kind, layer in layers.items():
        # Some stage has at least the mean number of layers, rounded up.
        layers_of_kind = cost_model.problem.model.layer_kinds.count(kind)
        again = recompute_seconds(cost_model, layout, layer, kind)
        least = max(least, ceil(layers_of_kind / layout.pp) * (layer.total + again))
    count = layout.micro_batches(cost_model.problem.job.global_batch)
    bound = step_time(cost_model, layout, is_bound=True).total_seconds
    return bound - count * (max(stages) - least)


def partial_rows(cost_model: CostModel, rows: list[Row]) -> list[Row]:
    """The layouts that recompute the fewest layers per chunk that fit, and are fast enough.

    They are faster than the same layout in ``rows``, and tie with the best of all.
    """
    problem, limit = cost_model.problem, memory_limit_bytes(cost_model)
    if not cost_model.framework.recomputes_first_layers or problem.pins.recompute:
        return []
    rules = all_rules(problem, cost_model.framework)
    few = problem.goals.maximize == "fewest-gpus"
    fits_high = all(peak_bytes(cost_model, row[2], HIGH) <= limit for row in rows)
    end = HIGH if fits_high else EXPECTED
    found: list[Row] = []
    for seconds, _, layout in rows:
        blocks = block_layouts(layout)
        block = next((one for one in blocks if peak_bytes(cost_model, one, end) <= limit), None)
        if block is None or any(rule.broken(problem, block) for rule in rules):
            continue
        faster = step_time(cost_model, block).total_seconds
        if faster < seconds:
            found.append((faster, peak_bytes(cost_model, block), block))
    world, best = min((row[2].world if few else 0, row[0]) for row in rows + found)
    most = best * (1 + problem.goals.tie)
    return [row for row in found if row[0] <= most and world in (0, row[2].world)]


def block_layouts(layout: Layout) -> Iterator[Layout]:
    """Yield ``layout`` with more and more recomputed layers per chunk; none if it needs none."""
    if layout.recompute.granularity != "none":
        longest = max(chunk.layers for row in layout.split.chunks for chunk in row)
        for count in range(1, longest + 1):
            yield replace(layout, recompute=Recompute("full", (), "block", count))


def refined_families(cost_model: CostModel, rows: list[Row]) -> Iterator[tuple[Layout, ...]]:
    """Yield the siblings with CUDA graphs if graphs alone make the best of ``rows`` faster."""
    problem, framework = cost_model.problem, cost_model.framework
    few = problem.goals.maximize == "fewest-gpus"
    world, best = min((row[2].world if few else 0, row[0]) for row in rows)
    fastest = fastest_exchange(cost_model, all_rules(problem, framework))
    for variant in framework.layout_variants(problem):
        captured = (
            replace(row[2], cuda_graphs=variant.cuda_graphs)
            for row in rows
            if world in (0, row[2].world)
        )
        graphs = (step_time(cost_model, layout, is_bound=True).total_seconds for layout in captured)
        if variant.refines and min(graphs) * (1 + problem.goals.tie) < best:
            yield from sibling_layouts(
                LayoutSpace.for_variant(problem, framework, variant, fastest)
            )


def families_of(cost_model: CostModel, last: bool) -> Iterator[tuple[Layout, ...]]:
    """Yield the groups of siblings of the variants that are, or are not, a last resort."""
    problem, framework = cost_model.problem, cost_model.framework
    fastest = fastest_exchange(cost_model, all_rules(problem, framework))
    for variant in framework.layout_variants(problem):
        if variant.last_resort is last and not variant.refines:
            yield from sibling_layouts(
                LayoutSpace.for_variant(problem, framework, variant, fastest)
            )


def rank(cost_model: CostModel, rows: list[Row]) -> list[Row]:
    """The twenty best; the simplest of those within ``goals.tie`` leads."""
    few = cost_model.problem.goals.maximize == "fewest-gpus"
    variants = [
        (one.zero_stage, one.offload, one.cuda_graphs)
        for one in cost_model.framework.layout_variants(cost_model.problem)
    ]

    def simple(layout: Layout) -> tuple[int, ...]:
        own = cost_model.framework.find_split(cost_model.problem, layout.pp, layout.vpp)
        is_other = own is not None and layout.split != own
        variant = variants.index((layout.zero_stage, layout.offload, layout.cuda_graphs))
        return simplicity(layout, variant, is_other=is_other)

    rows = sorted(rows, key=lambda row: (row[2].world if few else 0, row[0], simple(row[2])))
    best = rows[0]
    ties = [
        row
        for row in rows
        if row[0] <= best[0] * (1 + cost_model.problem.goals.tie)
        and (not few or row[2].world == best[2].world)
    ]
    winner = min(ties, key=lambda row: simple(row[2]))
    return [winner, *(row for row in rows if row is not winner)][:20]


def simplicity(layout: Layout, variant: int, *, is_other: bool) -> tuple[int, ...]:
    """Fewer axes, an earlier variant, less recompute, the own split, smaller degrees.

    Last, the larger micro-batch.
    """
    axes = [layout.tp, layout.cp, layout.pp, layout.ep]
    effort = {"none": 0, "selective": 1, "full": 2}[layout.recompute.granularity]
    effort += layout.recompute.method == "block"
    used = sum(degree > 1 for degree in axes)
    rest = (layout.vpp, layout.cp, layout.pp, layout.tp, layout.ep, layout.etp)
    return (used, variant, effort, int(is_other), *rest, -layout.micro_batch)


def search_without_placement(cost_model: CostModel) -> Search | None:
    """Search as the reference does, which places no layout (``test_placed_search`` does)."""
    with mock.patch.object(timed_layouts, "can_split_hosts", return_value=False):
        return search_layouts(cost_model, Sink())


def assert_plain(cost_model: CostModel, found: Search | None) -> None:
    """Check that a search counts, drops and ranks as it reads on paper."""
    enumerated, dropped, rows = sift(cost_model)
    if not rows:
        assert found is None or dropped["R17"] == 1 + dict(found.dropped).get("R17", 0)
        return
    assert found is not None
    assert found.enumerated == enumerated == len(rows) + sum(dropped.values())
    assert dict(found.dropped) == dropped
    ranked = [(one.step_seconds, one.peak_bytes, one.layout) for one in found.ranked]
    rows += near_rows(cost_model, rows)
    rows += split_rows(cost_model, rows)
    assert ranked == rank(cost_model, rows + partial_rows(cost_model, rows))
