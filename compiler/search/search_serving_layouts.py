"""Search for serving layouts: evaluate all valid ones, and rank those that meet the limits."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

from parc.backends.base import Engine
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.evaluate.evaluate_service import (
    choose_best_stage_split,
    evaluate_service,
    first_missed_limit,
    is_load_searched,
    objective_value,
    rank_services,
)
from parc.compiler.evaluate.service_rules import service_rules
from parc.compiler.ir import ServingEstimate, ServingLayout, ServingProblem, ServingSearch
from parc.compiler.ir.serving_plan import NearMiss, ServingCandidate, ServingRule
from parc.compiler.search.enumerate_serving_layouts import enumerate_serving_layouts

REFINED = 24
"""Number of best candidates for which other pipeline stage splits are evaluated too."""
KEPT = 40
"""Number of candidates that the plan stores."""
MAX_EXAMINED = 512
"""Largest number of invalid layouts that are checked to explain an empty result: this many from the
start of the enumeration, and this many from the end."""

HIGHER_LIMIT = 1.25
"""Factor by which a limit is raised to find deployments that miss it by a little."""
NOTABLE_GAIN = 1.2
"""Smallest factor by which such a deployment must be better, so that it is reported."""
BOUND_SLACK = 1.1
"""Factor by which the objective of the largest load may exceed that of a full cache. Waits are
estimated differently in the two cases, so the latter is a bound only approximately."""

_STAGE_FIELDS = frozenset(("pp", "stages", "replicas"))
"""Layout fields that have several values for each combination of the sizes inside a stage."""


def search_serving_layouts(
    problem: ServingProblem, engine: Engine, sink: Sink
) -> tuple[ServingEstimate, ServingSearch] | None:
    """Return the estimate of the best layout, and a record of the search.

    Each rejected layout is counted under the first rule or limit that it violates. If several
    layouts are within 3 % of the best one, the simplest of them is chosen (see ``rank_services``).
    Returns None after a diagnostic if no layout is valid.
    """
    rules = service_rules(problem, engine)
    # Each layer of tensor parallelism waits for two all-reduces per token, so that tp leaves the
    # NVLink domain only if no other layout is valid.
    for widest in (problem.cluster.node.nvlink_or_host_gpus, None):
        layouts = tuple(enumerate_serving_layouts(problem, engine, widest))
        evaluated = _evaluate_layouts(problem, rules, layouts)
        if evaluated.valid:
            break
    else:
        _explain_empty_search(problem, (rules, layouts), evaluated.too_slow, sink)
        return None
    order = rank_services(problem, evaluated.valid)
    # Splits are refined only for the best layouts, because each one has many splits to evaluate.
    order = rank_services(problem, [*_with_best_stages(problem, order[:REFINED]), *order[REFINED:]])
    search = ServingSearch(
        enumerated=len(layouts),
        dropped=tuple(sorted(evaluated.dropped.items())),
        ranked=tuple(map(ServingCandidate.from_estimate, order[:KEPT])),
        rejected=tuple(_best_of_other_tp(order)),
        near_misses=tuple(_near_misses(problem, order, evaluated.too_slow)),
    )
    return order[0], search


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """Layouts of a search: valid ones, those that miss a limit of the goals, and all rejected."""

    valid: list[ServingEstimate]
    too_slow: list[tuple[str, ServingEstimate]]
    """(name of the missed limit, estimate) pairs."""
    dropped: Counter[str]
    """Number of rejected layouts by rule code or name of a limit."""


def _evaluate_layouts(
    problem: ServingProblem,
    rules: tuple[ServingRule, ...],
    layouts: tuple[ServingLayout, ...],
) -> _Evaluated:
    """Return the estimates of the layouts that violate no rule."""
    first_violated = _rule_checker(problem, rules)
    found = _Evaluated([], [], Counter())
    possible: list[ServingLayout] = []
    for layout in layouts:
        broken = first_violated(layout)
        if broken is None:
            possible.append(layout)
        else:
            found.dropped[broken] += 1
    for estimate in _estimates(problem, possible):
        # A layout whose rules hold may still be too slow for the limits of the goals.
        missed = first_missed_limit(problem, estimate)
        if missed is None:
            found.valid.append(estimate)
            continue
        found.dropped[missed] += 1
        if estimate.fits:
            found.too_slow.append((missed, estimate))
    return found


def _estimates(problem: ServingProblem, layouts: list[ServingLayout]) -> Iterator[ServingEstimate]:
    """Yield the estimates of ``layouts``.

    If PARC searches for the load, layouts that cannot be among the best are left out.
    """
    if not is_load_searched(problem):
        for layout in layouts:
            yield evaluate_service(problem, layout)
        return
    # A load that is not limited by latency bounds the load within the limits from above, and is
    # much faster to estimate.
    goals = replace(problem.goals, ttft_seconds=None, tpot_seconds=None)
    unlimited = replace(problem, goals=goals)
    bounds = [(evaluate_service(unlimited, one), one) for one in layouts]
    bounds.sort(key=lambda pair: objective_value(unlimited, pair[0]))
    best: list[float] = []
    for bound, layout in bounds:
        if len(best) >= KEPT and objective_value(problem, bound)[0] > best[KEPT - 1] * BOUND_SLACK:
            return
        found = evaluate_service(problem, layout)
        if first_missed_limit(problem, found) is None:
            insort(best, objective_value(problem, found)[0])
        yield found


def _rule_checker(
    problem: ServingProblem, rules: tuple[ServingRule, ...]
) -> Callable[[ServingLayout], str | None]:
    """Return a function: layout -> code of the first of ``rules`` that it violates, or None.

    Rules that do not read the pipeline stages are checked once for all numbers of stages.
    """
    shared: list[tuple[int, ServingRule]] = []
    others: list[tuple[int, ServingRule]] = []
    for position, rule in enumerate(rules):
        group = others if _STAGE_FIELDS.intersection(rule.reads) else shared
        group.append((position, rule))
    names = sorted({name for _, rule in shared for name in rule.reads})
    key_of = attrgetter(*names) if names else None
    cache: dict[object, int] = {}

    def first_violated(layout: ServingLayout) -> str | None:
        key = key_of(layout) if key_of else None
        first = cache.get(key)
        if first is None:
            broken = (position for position, rule in shared if rule.broken(problem, layout))
            first = cache[key] = next(broken, len(rules))
        for position, rule in others:
            if position > first:
                break
            if rule.broken(problem, layout):
                return rule.code
        return rules[first].code if first < len(rules) else None

    return first_violated


def _with_best_stages(
    problem: ServingProblem, best: list[ServingEstimate]
) -> list[ServingEstimate]:
    """Return each estimate with the best stage split of its layout.

    If the layout would miss a limit with this split, the estimate is returned unchanged.
    """
    found = []
    for even in best:
        split = choose_best_stage_split(problem, even)
        found.append(even if first_missed_limit(problem, split) else split)
    return found


def _near_misses(
    problem: ServingProblem,
    order: list[ServingEstimate],
    too_slow: list[tuple[str, ServingEstimate]],
) -> Iterator[NearMiss]:
    """Yield, for each latency limit, the best deployment under a limit that is 25 % higher.

    Deployments that are less than 20 % better than the best one of ``order`` are left out. Only the
    best layouts and those that miss the limit by the least are evaluated.
    """
    chosen = objective_value(problem, order[0])[0]
    limits: tuple[tuple[Literal["ttft", "tpot"], float | None], ...] = (
        ("ttft", problem.goals.ttft_seconds),
        ("tpot", problem.goals.tpot_seconds),
    )
    for goal, limit in limits:
        if limit is None:
            continue
        missed = [found for name, found in too_slow if name == goal]
        missed.sort(key=attrgetter(f"{goal}_seconds"))
        higher = limit * HIGHER_LIMIT
        relaxed = replace(
            problem,
            goals=replace(problem.goals, ttft_seconds=higher)
            if goal == "ttft"
            else replace(problem.goals, tpot_seconds=higher),
        )
        tried = (
            evaluate_service(relaxed, found.layout)
            for found in (*order[:REFINED], *missed[:REFINED])
        )
        ranked = rank_services(
            relaxed, [found for found in tried if first_missed_limit(relaxed, found) is None]
        )
        if not ranked:
            continue
        gain = chosen / objective_value(relaxed, ranked[0])[0]
        if gain >= NOTABLE_GAIN:
            candidate = ServingCandidate.from_estimate(ranked[0])
            yield NearMiss(goal, higher, gain, candidate)


def _best_of_other_tp(order: list[ServingEstimate]) -> list[ServingCandidate]:
    """Return the best candidate of each tensor-parallel size other than the chosen one."""
    best: dict[int, ServingEstimate] = {}
    for found in order:
        best.setdefault(found.layout.tp, found)
    # Reports compare these candidates with the chosen layout, for example in V30.
    del best[order[0].layout.tp]
    return [ServingCandidate.from_estimate(best[tp]) for tp in sorted(best)]


def _explain_empty_search(
    problem: ServingProblem,
    searched: tuple[tuple[ServingRule, ...], tuple[ServingLayout, ...]],
    too_slow: list[tuple[str, ServingEstimate]],
    sink: Sink,
) -> None:
    """Report why no layout is valid.

    If some layouts violate no rule but miss a limit of the goals, the limits are reported (G03). If
    there are no layouts at all, this is reported (G01). Otherwise the violated rules are reported.
    """
    rules, layouts = searched
    if too_slow:
        finding = _missed_limits_finding(problem, [found for _, found in too_slow])
        sink.report(
            "G03", finding, at=sink.positions.first_path_in_spec(_LIMIT_PATHS[too_slow[0][0]])
        )
    elif not layouts:
        sink.report("G01", _no_layout_finding(problem), at="layout")
    else:
        _explain_violated_rules(
            problem, rules, layouts[:MAX_EXAMINED] + layouts[-MAX_EXAMINED:], sink
        )


_LIMIT_PATHS = {
    "ttft": ("goals.ttft", "goals"),
    "tpot": ("goals.tpot", "goals"),
    "request_rate": ("job.traffic.request_rate", "job.traffic"),
}
"""Spec paths to which a finding about a missed limit can point, in order of preference."""


def _explain_violated_rules(
    problem: ServingProblem,
    rules: tuple[ServingRule, ...],
    layouts: Iterable[ServingLayout],
    sink: Sink,
) -> None:
    """Report the rules that all layouts violate.

    If there are no such rules, the rules that the closest layout violates are reported. The closest
    layout violates the fewest rules. On a tie, it exceeds the available GPUs by the least, and then
    uses the most GPUs, because more GPUs have more memory.
    """
    engines, gpus = problem.pins.replicas or 1, problem.cluster.gpus

    def distance_to_valid(one: ServingLayout) -> tuple[tuple[int, int], int, int, int]:
        over = max(one.engine_gpus * engines - gpus, 0)
        return _count_violations(broken[one]), over, -one.engine_gpus, one.pp

    broken = {one: _violated_rules(problem, rules, one) for one in dict.fromkeys(layouts)}
    closest = min(broken, key=distance_to_valid)
    always = set.intersection(*({rule.code for rule in found} for found in broken.values()))
    shown = [rule for rule in broken[closest] if rule.code in always] or broken[closest]
    for rule in shown:
        finding = rule.explain(problem, closest)
        sink.report(rule.code, finding, at=sink.positions.first_path_in_spec(rule.fields))


def _violated_rules(
    problem: ServingProblem, rules: tuple[ServingRule, ...], layout: ServingLayout
) -> list[ServingRule]:
    """Return the rules that ``layout`` violates.

    The memory rules (V01, V02) are checked only if ``layout`` violates no other rule.
    """
    found: list[ServingRule] = []
    for rule in rules:
        # Memory rules come last. The memory of a layout that cannot run means nothing.
        if rule.code in ("V01", "V02") and found:
            break
        if rule.broken(problem, layout):
            found.append(rule)
    return found


def _count_violations(found: list[ServingRule]) -> tuple[int, int]:
    """Return (number of violated rules that are not about memory, number of violated rules)."""
    return sum(rule.code not in ("V01", "V02") for rule in found), len(found)


def _no_layout_finding(problem: ServingProblem) -> Finding:
    return Finding(
        f"no layout of {problem.cluster.gpus} GPUs satisfies the settings of layout"
        + (" and the limits" if problem.goals.limits else ""),
        help="remove a fixed size from layout, or change the number of GPUs",
        causes=(Cause("cluster", f"{problem.cluster.gpus} GPUs"),),
    )


def _missed_limits_finding(problem: ServingProblem, found: list[ServingEstimate]) -> Finding:
    """Return a finding that lists, for each limit, the best value of any layout in ``found``."""
    ttft = min(found, key=lambda one: one.ttft_seconds)
    tpot = min(found, key=lambda one: one.tpot_seconds)
    served = max(one.requests_per_second for one in found)
    goals, traffic = problem.goals, problem.service.traffic
    limits, best = [], []
    if goals.ttft_seconds is not None:
        limits.append(f"ttft {goals.ttft_seconds * 1e3:g} ms")
        best.append(f"ttft {ttft.ttft_seconds * 1e3:.0f} ms with {_format_sizes(ttft.layout)}")
    if goals.tpot_seconds is not None:
        limits.append(f"tpot {goals.tpot_seconds * 1e3:g} ms")
        best.append(f"tpot {tpot.tpot_seconds * 1e3:.1f} ms with {_format_sizes(tpot.layout)}")
    if traffic.request_rate is not None:
        limits.append(f"{traffic.request_rate:g} requests per second")
        best.append(f"{served:.3g} of {traffic.request_rate:g} requests per second")
    return Finding(
        f"none of the {len(found)} layouts that fit into memory meets the limits: "
        f"{', '.join(limits)}",
        label=f"best value for each limit: {'; '.join(best)}",
        help="use more GPUs, fewer concurrent requests, or less strict limits"
        if traffic.is_load_given
        else "these values hold for a single request; use faster GPUs or less strict limits",
        causes=(Cause("job.traffic", "the requests are set here"),),
    )


def _format_sizes(layout: ServingLayout) -> str:
    """Return the parallel sizes of ``layout`` above 1 as text, such as "tp 8, ep 8"."""
    names = ("tp", "pp", "dp", "ep", "pcp", "dcp")
    degrees = ((name, getattr(layout, name)) for name in names)
    return ", ".join(f"{name} {size}" for name, size in degrees if size > 1) or "tp 1"
