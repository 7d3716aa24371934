"""Price every legal serving layout, rank those that keep the limits, or say what is in the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from parc.backends.base import Engine
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.evaluate.price_service import best_stages, missed, price_service, ranked
from parc.compiler.evaluate.service_rules import service_rules
from parc.compiler.ir import ServingEstimate, ServingLayout, ServingProblem, ServingSearch
from parc.compiler.ir.serving_plan import ServingCandidate
from parc.compiler.ir.serving_rule import ServingRule
from parc.compiler.search.enumerate_services import enumerate_services

REFINED = 24
"""The best candidates, for which splits over stages are weighed too."""
KEPT = 40
"""Candidates that the plan remembers."""
EXAMPLES = 512
"""Illegal layouts that explain an empty result."""


def search_services(
    problem: ServingProblem, engine: Engine, sink: Sink
) -> tuple[ServingEstimate, ServingSearch] | None:
    """The best estimate and what was looked at, or None with a diagnostic.

    Every enumerated layout is a candidate, or is counted under the first rule or limit that it
    breaks. Ties within 3 % go to the simpler layout, see ``ranked``.
    """
    rules = service_rules(problem, engine)
    layouts = tuple(enumerate_services(problem, engine))
    dropped: Counter[str] = Counter()
    priced: list[ServingEstimate] = []
    late: list[tuple[str, ServingEstimate]] = []
    for layout in layouts:
        broken = next((rule.code for rule in rules if rule.broken(problem, layout)), None)
        found = None if broken else price_service(problem, layout)
        broken = broken or (missed(problem, found) if found else None)
        if found is not None and broken is None:
            priced.append(found)
            continue
        dropped[broken or ""] += 1
        if found is not None and found.fits:
            late.append((broken or "", found))
    if not priced:
        _explain_empty(problem, (rules, layouts), late, sink)
        return None
    order = ranked(problem, priced)
    order = ranked(problem, [*_refined(problem, order[:REFINED]), *order[REFINED:]])
    search = ServingSearch(
        enumerated=len(layouts),
        dropped=tuple(sorted(dropped.items())),
        ranked=tuple(map(_candidate, order[:KEPT])),
        rejected=tuple(_rejected(order)),
    )
    return order[0], search


def _refined(problem: ServingProblem, best: list[ServingEstimate]) -> list[ServingEstimate]:
    """With the split over stages that serves best, where it still keeps the limits."""
    found = []
    for even in best:
        split = best_stages(problem, even)
        found.append(even if missed(problem, split) else split)
    return found


def _candidate(found: ServingEstimate) -> ServingCandidate:
    times = (found.ttft_seconds, found.tpot_seconds, found.tokens_per_second)
    return ServingCandidate(found.layout, *times, found.memory.weights_bytes)


def _rejected(order: list[ServingEstimate]) -> list[ServingCandidate]:
    """The best candidate of every tp but the chosen one's."""
    best: dict[int, ServingEstimate] = {}
    for found in order:
        best.setdefault(found.layout.tp, found)
    del best[order[0].layout.tp]
    return [_candidate(best[tp]) for tp in sorted(best)]


def _explain_empty(
    problem: ServingProblem,
    looked: tuple[tuple[ServingRule, ...], tuple[ServingLayout, ...]],
    late: list[tuple[str, ServingEstimate]],
    sink: Sink,
) -> None:
    rules, layouts = looked
    if late:
        sink.report(
            "G03", _too_late(problem, late), at=sink.positions.first_written(_LIMITS[late[0][0]])
        )
    elif not layouts:
        sink.report("G01", _nothing(problem), at="layout")
    else:
        _explain_illegal(problem, rules, layouts[:EXAMPLES] + layouts[-EXAMPLES:], sink)


_LIMITS = {
    "ttft": ("goals.ttft", "goals"),
    "tpot": ("goals.tpot", "goals"),
    "request_rate": ("job.traffic.request_rate", "job.traffic"),
}


def _explain_illegal(
    problem: ServingProblem,
    rules: tuple[ServingRule, ...],
    layouts: Iterable[ServingLayout],
    sink: Sink,
) -> None:
    """A rule that every layout breaks is a finding; else the layout that breaks the fewest.

    Of those that break as few, the one that is least over the GPUs there are, then the one on the
    most: it is the nearest to enough memory.
    """
    engines, gpus = problem.pins.replicas or 1, problem.cluster.gpus

    def distance(one: ServingLayout) -> tuple[tuple[int, int], int, int, int]:
        over = max(one.engine_gpus * engines - gpus, 0)
        return _weight(broken[one]), over, -one.engine_gpus, one.pp

    broken = {one: _broken(problem, rules, one) for one in dict.fromkeys(layouts)}
    closest = min(broken, key=distance)
    always = set.intersection(*({rule.code for rule in found} for found in broken.values()))
    shown = [rule for rule in broken[closest] if rule.code in always] or broken[closest]
    for rule in shown:
        finding = rule.explain(problem, closest)
        sink.report(rule.code, finding, at=sink.positions.first_written(rule.fields))


def _broken(
    problem: ServingProblem, rules: tuple[ServingRule, ...], layout: ServingLayout
) -> list[ServingRule]:
    """Rules that ``layout`` breaks; the memory of one that cannot be cut is not asked for."""
    found: list[ServingRule] = []
    for rule in rules:
        if rule.code in ("V01", "V02") and found:
            break
        if rule.broken(problem, layout):
            found.append(rule)
    return found


def _weight(found: list[ServingRule]) -> tuple[int, int]:
    """How far from legal: broken rules, those of memory last."""
    return sum(rule.code not in ("V01", "V02") for rule in found), len(found)


def _nothing(problem: ServingProblem) -> Finding:
    return Finding(
        f"no layout of {problem.cluster.gpus} GPUs satisfies the pins"
        + (" and the limits" if problem.goals.limits else ""),
        help="unpin an axis, or change the number of GPUs",
        causes=(Cause("cluster", f"{problem.cluster.gpus} GPUs"),),
    )


def _too_late(problem: ServingProblem, late: list[tuple[str, ServingEstimate]]) -> Finding:
    """The best that can be had of each: so that a user sees how far off the limits are."""
    found = [estimate for _, estimate in late]
    ttft = min(found, key=lambda one: one.ttft_seconds)
    tpot = min(found, key=lambda one: one.tpot_seconds)
    goals, rate = problem.goals, problem.service.traffic.request_rate
    served = max(one.requests_per_second for one in found)
    parts = []
    if goals.ttft_seconds is not None:
        parts.append(f"ttft {ttft.ttft_seconds * 1e3:.0f} ms with {_words(ttft.layout)}")
    if goals.tpot_seconds is not None:
        parts.append(f"tpot {tpot.tpot_seconds * 1e3:.1f} ms with {_words(tpot.layout)}")
    if rate is not None:
        parts.append(f"{served:.3g} of {rate:g} requests a second")
    wanted = []
    if goals.ttft_seconds is not None:
        wanted.append(f"ttft {goals.ttft_seconds * 1e3:g} ms")
    if goals.tpot_seconds is not None:
        wanted.append(f"tpot {goals.tpot_seconds * 1e3:g} ms")
    if rate is not None:
        wanted.append(f"{rate:g} requests a second")
    traffic = problem.service.traffic
    full = traffic.concurrency is None and rate is None
    return Finding(
        f"none of {len(late)} layouts that fit keeps the limits: {', '.join(wanted)}",
        label=f"the best of each alone: {'; '.join(parts)}",
        help="as many requests as memory holds run at a time: give job.traffic.concurrency"
        if full
        else "more GPUs, fewer requests at a time, or wider limits",
        causes=(Cause("job.traffic", "the requests come from here"),),
    )


def _words(layout: ServingLayout) -> str:
    names = ("tp", "pp", "dp", "ep", "pcp", "dcp")
    degrees = ((name, getattr(layout, name)) for name in names)
    return ", ".join(f"{name} {size}" for name, size in degrees if size > 1) or "tp 1"
