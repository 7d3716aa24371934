"""Sift all layouts, rank what is left; where nothing is, say what stands in the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice

from parc.compiler.cost.counts.flops import utilization
from parc.compiler.cost.memory.peak import peak_bytes, peak_stage
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.estimate_layout import memory_limit
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Candidate, Search
from parc.compiler.placement.score_placement import placement_score
from parc.compiler.search.choose_exchange import fastest_exchange
from parc.compiler.search.drop_illegal import explain_illegal
from parc.compiler.search.drop_oversized import OVERSIZED, explain_oversized
from parc.compiler.search.rank_layouts import Ranked, Ranking, Survivor
from parc.compiler.search.search_sieve import Sieve
from parc.compiler.search.search_space import Space, families_of

EXAMPLES = 512
"""Illegal layouts that explain an empty result."""


def search_layouts(pricing: Pricing, sink: Sink) -> Search | None:
    """The ranked candidates, or None with a diagnostic that says what stands in the way.

    Every enumerated layout is a candidate, or is counted under the first rule that dropped it,
    or lost to a sibling with less recompute (counted as ``recompute``). Variants that are a last
    resort (weights or state in the memory of the host) are enumerated only where no other fits.
    """
    problem, limit_bytes = pricing.problem, memory_limit(pricing)
    rules = all_rules(problem, pricing.framework)
    variants = pricing.framework.variants(problem)
    fastest = fastest_exchange(pricing, rules)
    spaces = [Space.of(problem, pricing.framework, variant, fastest) for variant in variants]
    sieves = [Sieve(pricing, rules, limit_bytes, space) for space in spaces]
    dropped: Counter[str] = Counter()
    survivors: list[Survivor] = []
    for last in (False, True):
        if survivors:
            break
        for place, sieve in enumerate(sieves):
            if variants[place].last_resort is last:
                sieve.run()
                dropped += sieve.dropped
                survivors += [row._replace(variant=place) for row in sieve.survivors]
    if not survivors:
        close = _close(sieves, pricing, dropped, sink)
        if close is None:
            return None
        survivors = [close]
        dropped[OVERSIZED] -= 1
    builds = tuple(sieve.layout for sieve in sieves)
    ranking = Ranking(pricing, builds, sieves[0].space.levels, limit_bytes)
    ranked = ranking.best(survivors, placement_score(pricing))
    return Search(
        enumerated=sum(sieve.enumerated for sieve in sieves),
        dropped=tuple(sorted((code, count) for code, count in dropped.items() if count)),
        ranked=tuple(_candidates(pricing, ranked)),
    )


def _close(
    sieves: list[Sieve], pricing: Pricing, dropped: Counter[str], sink: Sink
) -> Survivor | None:
    """The layout that is let through where nothing fits; None with a diagnostic.

    The smallest oversized layout may still fit: the low end of its band is under the limit. The
    plan is then told that it is close (G02).
    """
    limit_bytes = memory_limit(pricing)
    found = [
        (sieve.layout(point), Survivor(0.0, point, place))
        for place, sieve in enumerate(sieves)
        if (point := sieve.smallest()) is not None
    ]
    if not found:
        families = chain.from_iterable(families_of(sieve.space) for sieve in sieves)
        layouts = chain.from_iterable(families)
        explain_illegal(pricing.problem, pricing.framework, islice(layouts, EXAMPLES), sink)
        return None
    layout, smallest = min(found, key=lambda one: peak_bytes(pricing, one[0]))
    if peak_stage(pricing, layout).low_bytes <= limit_bytes:
        return smallest
    explain_oversized(pricing, layout, limit_bytes, dropped, sink)
    return None


def _candidates(pricing: Pricing, ranked: list[Ranked]) -> Iterator[Candidate]:
    for row in ranked:
        mfu = utilization(pricing.problem, row.seconds, row.layout.world)
        yield Candidate(row.layout, row.seconds, row.peak_bytes, mfu, row.exposed_seconds)
