"""Evaluate all valid serving layouts and rank those that meet the limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from parc.backends.base import Engine
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.evaluate.evaluate_service import (
    evaluate_service,
    missed_limit,
    rank_services,
    with_best_stages,
)
from parc.compiler.evaluate.service_rules import service_rules
from parc.compiler.ir import ServingEstimate, ServingLayout, ServingProblem, ServingSearch
from parc.compiler.ir.serving_plan import ServingCandidate, ServingRule
from parc.compiler.search.enumerate_services import enumerate_services

REFINED = 24
"""Number of best candidates for which other splits over stages are evaluated too."""
KEPT = 40
"""Number of candidates that the plan stores."""
EXAMPLES = 512
"""Number of first and of last invalid layouts that explain an empty result."""


def search_services(
    problem: ServingProblem, engine: Engine, sink: Sink
) -> tuple[ServingEstimate, ServingSearch] | None:
    """Return the best estimate and a record of the search; None after a diagnostic.

    A layout is either a candidate or counted under the first rule or limit that it violates. Ties
    within 3 % go to the simpler layout, see ``rank_services``.
    """
    rules = service_rules(problem, engine)
    layouts = tuple(enumerate_services(problem, engine))
    dropped: Counter[str] = Counter()
    valid: list[ServingEstimate] = []
    too_slow: list[tuple[str, ServingEstimate]] = []
    for layout in layouts:
        broken = next((rule.code for rule in rules if rule.broken(problem, layout)), None)
        found = None if broken else evaluate_service(problem, layout)
        broken = broken or (missed_limit(problem, found) if found else None)
        if found is not None and broken is None:
            valid.append(found)
            continue
        dropped[broken or ""] += 1
        if found is not None and found.fits:
            too_slow.append((broken or "", found))
    if not valid:
        _explain_empty(problem, (rules, layouts), too_slow, sink)
        return None
    order = rank_services(problem, valid)
    order = rank_services(problem, [*_with_best_stages(problem, order[:REFINED]), *order[REFINED:]])
    search = ServingSearch(
        enumerated=len(layouts),
        dropped=tuple(sorted(dropped.items())),
        ranked=tuple(map(ServingCandidate.of, order[:KEPT])),
        rejected=tuple(_best_of_other_tp(order)),
    )
    return order[0], search


def _with_best_stages(
    problem: ServingProblem, best: list[ServingEstimate]
) -> list[ServingEstimate]:
    """Return the estimates with the best split over stages, if it still meets the limits."""
    found = []
    for even in best:
        split = with_best_stages(problem, even)
        found.append(even if missed_limit(problem, split) else split)
    return found


def _best_of_other_tp(order: list[ServingEstimate]) -> list[ServingCandidate]:
    """Return the best candidate per tp, except for the tp of the chosen layout."""
    best: dict[int, ServingEstimate] = {}
    for found in order:
        best.setdefault(found.layout.tp, found)
    del best[order[0].layout.tp]
    return [ServingCandidate.of(best[tp]) for tp in sorted(best)]


def _explain_empty(
    problem: ServingProblem,
    searched: tuple[tuple[ServingRule, ...], tuple[ServingLayout, ...]],
    too_slow: list[tuple[str, ServingEstimate]],
    sink: Sink,
) -> None:
    """Report G03 if layouts fit but miss a limit, G01 without any layout, else the rules."""
    rules, layouts = searched
    if too_slow:
        finding = _missed_limits(problem, [found for _, found in too_slow])
        sink.report("G03", finding, at=sink.positions.first_written(_LIMITS[too_slow[0][0]]))
    elif not layouts:
        sink.report("G01", _no_layout(problem), at="layout")
    else:
        _explain_violated_rules(problem, rules, layouts[:EXAMPLES] + layouts[-EXAMPLES:], sink)


_LIMITS = {
    "ttft": ("goals.ttft", "goals"),
    "tpot": ("goals.tpot", "goals"),
    "request_rate": ("job.traffic.request_rate", "job.traffic"),
}


def _explain_violated_rules(
    problem: ServingProblem,
    rules: tuple[ServingRule, ...],
    layouts: Iterable[ServingLayout],
    sink: Sink,
) -> None:
    """Report the rules that all layouts violate, or else those that the closest layout violates.

    The closest layout violates the fewest rules. Among several it exceeds the available GPUs least,
    then uses the most GPUs, because it is closest to enough memory.
    """
    engines, gpus = problem.pins.replicas or 1, problem.cluster.gpus

    def distance(one: ServingLayout) -> tuple[tuple[int, int], int, int, int]:
        over = max(one.engine_gpus * engines - gpus, 0)
        return _violations(broken[one]), over, -one.engine_gpus, one.pp

    broken = {one: _violated_rules(problem, rules, one) for one in dict.fromkeys(layouts)}
    closest = min(broken, key=distance)
    always = set.intersection(*({rule.code for rule in found} for found in broken.values()))
    shown = [rule for rule in broken[closest] if rule.code in always] or broken[closest]
    for rule in shown:
        finding = rule.explain(problem, closest)
        sink.report(rule.code, finding, at=sink.positions.first_written(rule.fields))


def _violated_rules(
    problem: ServingProblem, rules: tuple[ServingRule, ...], layout: ServingLayout
) -> list[ServingRule]:
    """Return the rules that ``layout`` violates; memory is checked only if it violates no other."""
    found: list[ServingRule] = []
    for rule in rules:
        if rule.code in ("V01", "V02") and found:
            break
        if rule.broken(problem, layout):
            found.append(rule)
    return found


def _violations(found: list[ServingRule]) -> tuple[int, int]:
    """Return the numbers of violated rules: those not about memory, then all."""
    return sum(rule.code not in ("V01", "V02") for rule in found), len(found)


def _no_layout(problem: ServingProblem) -> Finding:
    return Finding(
        f"no layout of {problem.cluster.gpus} GPUs satisfies the pins"
        + (" and the limits" if problem.goals.limits else ""),
        help="unpin an axis, or change the number of GPUs",
        causes=(Cause("cluster", f"{problem.cluster.gpus} GPUs"),),
    )


def _missed_limits(problem: ServingProblem, found: list[ServingEstimate]) -> Finding:
    """Return a finding with the best reachable value of each limit."""
    ttft = min(found, key=lambda one: one.ttft_seconds)
    tpot = min(found, key=lambda one: one.tpot_seconds)
    served = max(one.requests_per_second for one in found)
    goals, traffic = problem.goals, problem.service.traffic
    limits, best = [], []
    if goals.ttft_seconds is not None:
        limits.append(f"ttft {goals.ttft_seconds * 1e3:g} ms")
        best.append(f"ttft {ttft.ttft_seconds * 1e3:.0f} ms with {_words(ttft.layout)}")
    if goals.tpot_seconds is not None:
        limits.append(f"tpot {goals.tpot_seconds * 1e3:g} ms")
        best.append(f"tpot {tpot.tpot_seconds * 1e3:.1f} ms with {_words(tpot.layout)}")
    if traffic.request_rate is not None:
        limits.append(f"{traffic.request_rate:g} requests per second")
        best.append(f"{served:.3g} of {traffic.request_rate:g} requests per second")
    fills_cache = traffic.concurrency is None and traffic.request_rate is None
    return Finding(
        f"none of {len(found)} layouts that fit meets the limits: {', '.join(limits)}",
        label=f"best value of each limit: {'; '.join(best)}",
        help="the plan runs as many requests at a time as fit in memory: set "
        "job.traffic.concurrency"
        if fills_cache
        else "use more GPUs, fewer concurrent requests, or wider limits",
        causes=(Cause("job.traffic", "the requests are set here"),),
    )


def _words(layout: ServingLayout) -> str:
    names = ("tp", "pp", "dp", "ep", "pcp", "dcp")
    degrees = ((name, getattr(layout, name)) for name in names)
    return ", ".join(f"{name} {size}" for name, size in degrees if size > 1) or "tp 1"
