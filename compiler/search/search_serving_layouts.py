"""Search for serving layouts: evaluate all valid ones, and rank those that meet the limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from operator import attrgetter

from parc.backends.base import Engine
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.evaluate.evaluate_service import (
    choose_best_stage_split,
    evaluate_service,
    first_missed_limit,
    rank_services,
)
from parc.compiler.evaluate.service_rules import service_rules
from parc.compiler.ir import ServingEstimate, ServingLayout, ServingProblem, ServingSearch
from parc.compiler.ir.serving_plan import ServingCandidate, ServingRule
from parc.compiler.search.enumerate_serving_layouts import enumerate_serving_layouts

REFINED = 24
"""Number of best candidates for which other pipeline stage splits are evaluated too."""
KEPT = 40
"""Number of candidates that the plan stores."""
MAX_EXAMINED = 512
"""Largest number of invalid layouts that are checked to explain an empty result: this many from the
start of the enumeration, and this many from the end."""

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
    layouts = tuple(enumerate_serving_layouts(problem, engine))
    first_violated = _rule_checker(problem, rules)
    dropped: Counter[str] = Counter()
    valid: list[ServingEstimate] = []
    too_slow: list[tuple[str, ServingEstimate]] = []
    for layout in layouts:
        broken = first_violated(layout)
        found = None if broken else evaluate_service(problem, layout)
        # A layout whose rules hold may still be too slow for the limits of the goals.
        broken = broken or (first_missed_limit(problem, found) if found else None)
        if found is not None and broken is None:
            valid.append(found)
            continue
        dropped[broken or ""] += 1
        if found is not None and found.fits:
            too_slow.append((broken or "", found))
    if not valid:
        _explain_empty_search(problem, (rules, layouts), too_slow, sink)
        return None
    order = rank_services(problem, valid)
    # Splits are refined only for the best layouts, because each one has many splits to evaluate.
    order = rank_services(problem, [*_with_best_stages(problem, order[:REFINED]), *order[REFINED:]])
    search = ServingSearch(
        enumerated=len(layouts),
        dropped=tuple(sorted(dropped.items())),
        ranked=tuple(map(ServingCandidate.from_estimate, order[:KEPT])),
        rejected=tuple(_best_of_other_tp(order)),
    )
    return order[0], search


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
    fills_cache = traffic.concurrency is None and traffic.request_rate is None
    return Finding(
        f"none of the {len(found)} layouts that fit into memory meets the limits: "
        f"{', '.join(limits)}",
        label=f"best value for each limit: {'; '.join(best)}",
        help="the plan assumes as many concurrent requests as fit in memory; "
        "set job.traffic.concurrency to assume fewer"
        if fills_cache
        else "use more GPUs, fewer concurrent requests, or less strict limits",
        causes=(Cause("job.traffic", "the requests are set here"),),
    )


def _format_sizes(layout: ServingLayout) -> str:
    """Return the parallel sizes of ``layout`` above 1 as text, such as "tp 8, ep 8"."""
    names = ("tp", "pp", "dp", "ep", "pcp", "dcp")
    degrees = ((name, getattr(layout, name)) for name in names)
    return ", ".join(f"{name} {size}" for name, size in degrees if size > 1) or "tp 1"
