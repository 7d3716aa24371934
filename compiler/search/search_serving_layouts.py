"""Search for serving layouts: evaluate all valid ones, and rank those that meet the limits."""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, cached_property, partial
from operator import attrgetter, itemgetter

from parc.backends.base import Engine
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.evaluate_service import (
    bound_objective,
    choose_best_stage_split,
    evaluate_at_largest_load,
    evaluate_service,
    first_missed_limit,
    is_load_searched,
    objective_value,
    rank_services,
    request_seconds,
)
from parc.compiler.evaluate.service_rules import service_rules
from parc.compiler.ir import ServingEstimate, ServingLayout, ServingProblem, ServingSearch
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving_plan import NearMiss, ServingCandidate, ServingRule
from parc.compiler.search.choose_step_tokens import (
    choose_step_tokens,
    choose_step_tokens_of_pipeline,
    with_step_tokens,
)
from parc.compiler.search.enumerate_serving_layouts import enumerate_serving_layouts
from parc.compiler.search.explain_services import (
    explain_empty_search,
    report_missed_in_simulation,
)
from parc.compiler.search.simulate_finalists import (
    SAMPLES,
    choose_sustained,
    put_first,
    simulate_finalists,
    with_statistics,
)

REFINED = 24
"""Number of best candidates for which other pipeline stage splits are evaluated too."""
KEPT = 40
"""Number of candidates that the plan stores."""

HIGHER_LIMIT = 1.25
"""Factor by which a limit is raised to find deployments that miss it by a little."""
NOTABLE_GAIN = 1.2
"""Smallest factor by which such a deployment must be better, so that it is reported."""
BOUND_SLACK = 1.1
"""Factor by which the objective of a layout may exceed that of the worst kept layout before the
layout is left out. Layouts within 3 % of the best one count as equal, and the objective without
limits is only approximately a bound: the two estimates use different formulas for waiting times."""

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
    # With tensor parallelism, each layer waits for two all-reduces per token. Layouts whose tp
    # exceeds the NVLink domain are therefore tried only if no other layout is valid.
    evaluator = _Evaluator(problem)
    for widest in (problem.cluster.node.nvlink_or_host_gpus, None):
        layouts = tuple(enumerate_serving_layouts(problem, engine, widest))
        evaluated = _evaluate_layouts(evaluator, rules, layouts)
        if evaluated.valid:
            break
    order = rank_services(problem, evaluated.valid)
    # Splits are refined only for the best layouts, because each one has many splits to evaluate.
    order = rank_services(problem, [*_with_best_stages(problem, order[:REFINED]), *order[REFINED:]])
    step_tokens = None
    if problem.goals.has_latency_limit and (
        problem.service.traffic.is_load_given or is_load_searched(problem)
    ):
        simulated = simulate_finalists(problem, order, others=lambda: evaluated.other_estimates)
        seconds = partial(request_seconds, problem)
        tried = order or sorted((one for _, one in evaluated.too_slow), key=seconds)
        step_tokens, finalists = choose_step_tokens(problem, engine, tried, simulated)
        if order and not finalists:
            fastest = min((*order, *evaluated.other_estimates), key=seconds)
            report_missed_in_simulation(problem, fastest, sink)
            return None
        order = put_first(finalists, order)
    else:
        order = choose_sustained(problem, order, lambda: evaluated.other_estimates)
        if order:
            step_tokens, best = choose_step_tokens_of_pipeline(problem, engine, order[0])
            order = [best, *order[1:]]
    if step_tokens is not None:
        problem = with_step_tokens(problem, step_tokens.chosen)
    if order and order[0].simulated is None:
        order[0] = with_statistics(problem, order[0])
    if not order:
        explain_empty_search(problem, rules, layouts, evaluated.too_slow, sink)
        return None
    search = ServingSearch(
        enumerated=len(layouts),
        dropped=tuple(sorted(evaluated.dropped.items())),
        ranked=tuple(map(ServingCandidate.from_estimate, order[:KEPT])),
        rejected=tuple(_best_of_other_tp(order)),
        near_misses=tuple(_near_misses(problem, order, evaluated.too_slow)),
        step_tokens=step_tokens,
    )
    return order[0], search


@frozen(slots=False)  # without slots, so that the estimates of ``others`` can be cached
class _Evaluated:
    """Layouts of a search: valid ones, those that miss a limit of the goals, and all rejected."""

    problem: ServingProblem
    valid: list[ServingEstimate]
    others: list[ServingLayout]
    """Further layouts that violate no rule. ``KEPT`` of the valid ones and another one of the same
    tensor-parallel size need fewer GPUs or, if the load is searched, have an objective value that
    is better by the factor ``BOUND_SLACK``."""
    too_slow: list[tuple[str, ServingEstimate]]
    """(name of the missed limit, estimate) pairs."""
    dropped: Counter[str]
    """Number of rejected layouts by rule code or name of a limit."""

    @cached_property
    def other_estimates(self) -> list[ServingEstimate]:
        """Estimates of ``others`` that meet the limits."""
        found = [evaluate_service(self.problem, one) for one in self.others]
        return [one for one in found if first_missed_limit(self.problem, one) is None]


class _Evaluator:
    """Estimates of the layouts of a problem.

    If no layout is valid, more layouts are tried together with the first ones. Estimates that do
    not depend on others are therefore kept.
    """

    def __init__(self, problem: ServingProblem) -> None:
        self.problem = problem
        self._unlimited = replace(problem, goals=replace(problem.goals, latency_limits=()))
        self.bound = cache(self._bound)
        self._missed: dict[ServingLayout, ServingEstimate] = {}

    def estimate(self, layout: ServingLayout, most: float = math.inf) -> ServingEstimate | None:
        """Return the estimate of ``layout``, or None if its objective value is above ``most``.

        Under a given load, such an estimate may have another value above ``most`` instead.
        """
        found = self._missed.get(layout)
        if found is not None:
            return found
        if is_load_searched(self.problem):
            found = evaluate_at_largest_load(self.problem, layout, most)
        else:
            found = evaluate_service(self.problem, layout, most)
        if found is not None and first_missed_limit(self.problem, found) is not None:
            self._missed[layout] = found
        return found

    def _bound(self, layout: ServingLayout) -> float:
        """Return a lower bound of the objective value of ``layout`` at the largest load."""
        if not self.problem.minimizes_gpus:
            return bound_objective(self.problem, layout)
        return objective_value(self._unlimited, evaluate_service(self._unlimited, layout))[0]


def _evaluate_layouts(
    evaluator: _Evaluator, rules: tuple[ServingRule, ...], layouts: tuple[ServingLayout, ...]
) -> _Evaluated:
    """Return the estimates of the layouts that violate no rule."""
    problem = evaluator.problem
    first_violated = _rule_checker(problem, rules)
    found = _Evaluated(problem, [], [], [], Counter())
    possible: list[ServingLayout] = []
    for layout in layouts:
        broken = first_violated(layout)
        if broken is None:
            possible.append(layout)
        else:
            found.dropped[broken] += 1
    if is_load_searched(problem):
        estimates = _estimates_at_largest_load(evaluator, possible, found.others)
    elif problem.minimizes_gpus:
        estimates = _estimates_on_fewest_gpus(evaluator, possible, found.others)
    else:
        estimates = filter(None, map(evaluator.estimate, possible))
    for estimate in estimates:
        # A layout that violates no rule may still be too slow for the limits of the goals.
        missed = first_missed_limit(problem, estimate)
        if missed is None:
            found.valid.append(estimate)
            continue
        found.dropped[missed] += 1
        if estimate.fits:
            found.too_slow.append((missed, estimate))
    return found


def _estimates_on_fewest_gpus(
    evaluator: _Evaluator, layouts: list[ServingLayout], others: list[ServingLayout]
) -> Iterator[ServingEstimate]:
    """Yield the estimates of ``layouts``, and add the layouts of ``_Evaluated.others`` to it."""
    problem = evaluator.problem
    best: list[float] = []
    best_of_tp: dict[int, float] = {}
    for layout in layouts:
        kept = best[KEPT - 1] if len(best) >= KEPT else math.inf
        most = max(kept, best_of_tp.get(layout.tp, math.inf))
        found = evaluator.estimate(layout, most)
        assert found is not None  # the load is given
        if first_missed_limit(problem, found) is None:
            gpus = objective_value(problem, found)[0]
            if gpus > most:
                others.append(layout)
                continue
            insort(best, gpus)
            best_of_tp[layout.tp] = min(best_of_tp.get(layout.tp, math.inf), gpus)
        yield found


def _estimates_at_largest_load(
    evaluator: _Evaluator, layouts: list[ServingLayout], others: list[ServingLayout]
) -> Iterator[ServingEstimate]:
    """Yield the estimates of ``layouts``, without layouts that cannot be among the best.

    Layouts that serve less load than ``_Evaluated.others`` allows are added to ``others``. Layouts
    that miss a limit at any load are estimated, unless their bound shows that they would serve too
    little load anyway.
    """
    problem = evaluator.problem
    bounds = sorted(zip(map(evaluator.bound, layouts), layouts, strict=True), key=itemgetter(0))
    best: list[float] = []
    best_of_tp: dict[int, float] = {}
    for bound, layout in bounds:
        kept = best[KEPT - 1] * BOUND_SLACK if len(best) >= KEPT else math.inf
        if kept < bound < math.inf:
            others.append(layout)
            continue
        most = max(kept, best_of_tp.get(layout.tp, math.inf) * BOUND_SLACK)
        found = evaluator.estimate(layout, most)
        if found is None:
            others.append(layout)
            continue
        if first_missed_limit(problem, found) is None:
            value = objective_value(problem, found)[0]
            insort(best, value)
            best_of_tp[layout.tp] = min(best_of_tp.get(layout.tp, math.inf), value)
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
    if not problem.service.traffic.is_load_given and not is_load_searched(problem):
        return
    chosen = objective_value(problem, order[0])[0]
    for limit in problem.goals.latency_limits:
        missed = [found for name, found in too_slow if name == limit.latency]
        missed.sort(key=attrgetter("ttft_seconds" if limit.latency == "ttft" else "tpot_seconds"))
        relaxed = replace(problem, goals=problem.goals.with_higher_limit(limit, HIGHER_LIMIT))
        tried = (
            _evaluate_up_to(relaxed, found.layout, chosen / NOTABLE_GAIN)
            for found in (*order[:REFINED], *missed[:REFINED])
        )
        ranked = rank_services(
            relaxed,
            [one for one in tried if one is not None and first_missed_limit(relaxed, one) is None],
        )
        # The simulation takes longer and can only reduce the gain of the closed-form estimate.
        if not ranked or chosen / objective_value(relaxed, ranked[0])[0] < NOTABLE_GAIN:
            continue
        # A single sample with slightly more load is enough for a load that no plan contains.
        seeds = SAMPLES[1:2] if is_load_searched(problem) else SAMPLES
        simulated = simulate_finalists(relaxed, ranked[:1], chosen / NOTABLE_GAIN, seeds=seeds)
        gain = chosen / objective_value(relaxed, simulated[0])[0] if simulated else 0.0
        if gain >= NOTABLE_GAIN:
            candidate = ServingCandidate.from_estimate(simulated[0])
            yield NearMiss(limit, limit.seconds * HIGHER_LIMIT, gain, candidate)


def _evaluate_up_to(
    problem: ServingProblem, layout: ServingLayout, most: float
) -> ServingEstimate | None:
    """Return the estimate of ``layout`` if its objective value is at most ``most``.

    If the value is larger, the result is None or an estimate with another value above ``most``.
    """
    if is_load_searched(problem) and not problem.minimizes_gpus:
        # Estimates within 3 % of the best one count as equal.
        return evaluate_at_largest_load(problem, layout, most * BOUND_SLACK)
    limit = math.ceil(most) if problem.minimizes_gpus else math.inf
    return evaluate_service(problem, layout, limit)


def _best_of_other_tp(order: list[ServingEstimate]) -> list[ServingCandidate]:
    """Return the best candidate of each tensor-parallel size other than the chosen one."""
    best: dict[int, ServingEstimate] = {}
    for found in order:
        best.setdefault(found.layout.tp, found)
    # Reports compare these candidates with the chosen layout, for example in V30.
    del best[order[0].layout.tp]
    return [ServingCandidate.from_estimate(best[tp]) for tp in sorted(best)]
