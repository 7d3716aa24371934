"""Pipeline of a disaggregated service: its two pools are planned one after the other.

Each pool is planned like a service of its own, on hosts that the other pool does not use. The
module is imported on first use, because few services have two pools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial

from parc.backends.registry import engine
from parc.compiler.cost.serving.deployment import build_deployment
from parc.compiler.cost.serving.simulation.simulate import ONE_SAMPLE, Sampling
from parc.compiler.cost.serving.simulation.simulate_pools import SimulatedPool, simulate_pools
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.diagnostics.wording import format_count
from parc.compiler.evaluate.evaluate_service import SERVICE_TIE
from parc.compiler.evaluate.simulated_limits import missed_limits, simulated_value
from parc.compiler.ir import Host, ServingPlan, ServingProblem
from parc.compiler.ir.finding import Diagnostic
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import ServiceStatistics, ServingEstimate
from parc.compiler.ir.serving_goals import LatencyLimit, ServingGoals
from parc.compiler.ir.serving_plan import PoolPair, PoolProblems
from parc.compiler.placement.find_vacancies import cluster_with_hosts
from parc.compiler.report.formatting import format_percent, format_seconds, format_three_digits
from parc.compiler.search.search_serving_layouts import search_serving_layouts

AT = "job.disaggregate"
PlanService = Callable[[ServingProblem, Sink, Callable[[str], None]], ServingPlan | None]
"""Function that plans engines; it returns None after reporting errors."""
Hosts = tuple[Host, ...]
DECODE_SHARE = 0.5
"""Largest part of the limit on the time to the first token that the decode pool may use. The
prefill pool gets what the decode pool leaves."""
TIGHTER = (1.0, 0.8, 0.5, 0.25)
"""Factors on the limit of the prefill pool that are tried until the simulation of both pools is
within the limits of the spec. A percentile of a sum can exceed the sum of the percentiles, and the
queue of a busy pool varies between samples."""
RATE_SHARES = (1.0, 0.95, 0.9, 0.8)
"""Fractions of the estimated largest request rate that are tried until both pools have a plan."""


def plan_pools(problem: ServingProblem, sink: Sink, plan: PlanService) -> ServingPlan | None:
    """Return the plan of the prefill pool, which contains that of the decode pool.

    If the spec leaves the choice, engines that serve whole requests are planned too, and two pools
    are chosen only where they are better by more than 3 % (G11). Returns None after reporting
    errors.
    """
    pools = problem.pools
    assert pools is not None
    tried = Sink(sink.positions)
    pair = _PoolPlanner(problem, pools, plan).plan_pair(tried)
    if pools.required:
        sink.extend(tried)
        return pair
    whole_sink = Sink(sink.positions)
    whole = plan(replace(problem, pools=None), whole_sink, _ignore_pass_end)
    text = _compare_figures(problem, (pair, tried), (whole, whole_sink))
    if pair is not None and (
        whole is None
        or _comparison_value(problem, pair) < (1 - SERVICE_TIE) * _comparison_value(problem, whole)
    ):
        sink.extend(tried)
        sink.report("G11", Finding(f"the service has two pools: {text}"), at=AT)
        assert pair.pair is not None
        return replace(pair, pair=replace(pair.pair, comparison=text))
    sink.extend(whole_sink)
    if whole is not None:
        sink.report("G11", Finding(f"engines serve whole requests: {text}"), at=AT)
    return whole


def _ignore_pass_end(_: str) -> None:
    """Do nothing, because the passes run several times."""


@frozen(slots=False)
class _PoolPlanner:
    """Service whose pools are planned, and the function that plans the engines of one pool."""

    whole: ServingProblem
    pools: PoolProblems
    plan: PlanService

    def plan_pair(self, sink: Sink) -> ServingPlan | None:
        """Return the plans of both pools; None after reporting errors."""
        rate = self.whole.service.traffic.request_rate
        if rate is None:
            return self._plan_at_largest_rate(sink)
        prefill, decode = self._allowed_hosts()
        pair = self._plan_at_rate(rate, (prefill, decode), sink)
        if pair is None or self.whole.minimizes_gpus:
            return pair
        # With another objective, all hosts are used, in proportion to those that the load needs.
        needed = [len(one.placement.hosts) for one in pair.pools]
        share = needed[0] / sum(needed)
        count = min(max(round(share * self.whole.cluster.nodes), 1), self.whole.cluster.nodes - 1)
        return self._plan_at_rate(
            rate, self._split_hosts(count), sink, maximize=self.whole.goals.maximize
        )

    def _allowed_hosts(self) -> tuple[Hosts, Hosts]:
        """Return the hosts that each pool may use; hosts without a pool are in both tuples."""
        hosts, pools = self.whole.cluster.hosts, self.pools

        def allowed(own: tuple[str, ...] | None, other: tuple[str, ...] | None) -> Hosts:
            if own is not None:
                return tuple(host for host in hosts if host.name in set(own))
            return tuple(host for host in hosts if host.name not in set(other or ()))

        return (
            allowed(pools.prefill_hosts, pools.decode_hosts),
            allowed(pools.decode_hosts, pools.prefill_hosts),
        )

    def _split_hosts(self, count: int) -> tuple[Hosts, Hosts]:
        """Return the hosts of each pool; by default, the prefill pool has ``count`` hosts."""
        prefill, decode = self._allowed_hosts()
        if not set(prefill) & set(decode):
            return prefill, decode
        return prefill[:count], decode[count:]

    def _plan_at_rate(
        self,
        rate: float,
        hosts: tuple[Hosts, Hosts],
        sink: Sink,
        maximize: str = "fewest-gpus",
    ) -> ServingPlan | None:
        """Return the plans of both pools for ``rate`` requests per second; None after errors.

        Both pools have the same context length: a request that only one pool can store would fail.
        """
        tried = Sink(sink.positions)
        pair = self._plan_each(rate, hosts, tried, maximize)
        lengths = {pool.limits.max_model_len for pool in pair.pools} if pair is not None else set()
        if len(lengths) > 1:
            # Without job.max_model_len, each pool got the longest context that fits in its memory.
            length = max(min(lengths), self.whole.service.longest_request_tokens)
            tried = Sink(sink.positions)
            pair = self._with_context(length)._plan_each(rate, hosts, tried, maximize)
        sink.extend(tried)
        return pair

    def _with_context(self, length: int) -> _PoolPlanner:
        """Return the planner with engines that accept requests of ``length`` tokens."""
        prefill, decode = (
            replace(one, service=replace(one.service, max_model_len=length))
            for one in (self.pools.prefill, self.pools.decode)
        )
        return replace(self, pools=replace(self.pools, prefill=prefill, decode=decode))

    def _plan_each(
        self, rate: float, hosts: tuple[Hosts, Hosts], sink: Sink, maximize: str
    ) -> ServingPlan | None:
        """Return the plans of both pools, one after the other; None after errors.

        The decode pool is planned first, on hosts that both pools may use.
        """
        decode_problem = self._pool_problem(self.pools.decode, hosts[1], rate, maximize)
        decode_problem = replace(
            decode_problem, goals=_decode_goals(decode_problem.goals, self.whole.goals)
        )
        decode = self._plan_pool("decode", decode_problem, sink)
        if decode is None:
            return None
        used = set(decode.placement.hosts)
        left = tuple(host for host in hosts[0] if host not in used)
        if not left:
            _report(sink, "G03", "the decode pool needs all hosts, so none is left for prompts")
            return None
        problem = self._pool_problem(self.pools.prefill, left, rate, maximize)
        for factor in TIGHTER:
            goals = _prefill_goals(problem.goals, self.whole.goals, decode.estimate, factor)
            prefill = self._plan_pool("prefill", replace(problem, goals=goals), sink)
            if prefill is None:
                return None
            simulated = simulate_pair(self.whole, prefill, decode, rate)
            missed = [] if simulated is None else missed_limits(self.whole.goals, simulated)
            if not missed:
                pair = PoolPair(self.whole.name, decode, rate, simulated, "")
                return replace(prefill, pair=pair)
        for limit, value in missed:
            text = f"both pools together miss goals.{limit.text}: {format_seconds(value)}"
            _report(sink, "G03", f"{text} instead of {format_seconds(limit.seconds)}")
        return None

    def _pool_problem(
        self, pool: ServingProblem, hosts: Hosts, rate: float | None, maximize: str
    ) -> ServingProblem:
        """Return the problem of a pool on ``hosts``, under ``rate`` requests per second."""
        service = replace(pool.service, traffic=replace(pool.service.traffic, request_rate=rate))
        goals: ServingGoals = replace(pool.goals, maximize=maximize)  # type: ignore[arg-type]
        cluster = cluster_with_hosts(pool.cluster, hosts)
        return replace(pool, service=service, goals=goals, cluster=cluster)

    def _plan_pool(self, name: str, problem: ServingProblem, sink: Sink) -> ServingPlan | None:
        """Return the plan of one pool; findings name the pool."""
        own = Sink(sink.positions)
        plan = self.plan(problem, own, _ignore_pass_end)
        sink.extend(own, change=partial(_name_pool, name))
        return plan

    def _plan_at_largest_rate(self, sink: Sink) -> ServingPlan | None:
        """Return the plans of both pools for the largest rate at which the limits hold."""
        failed = Sink(sink.positions)

        @cache
        def rates_with(count: int) -> tuple[float, float]:
            return self._largest_rates(self._split_hosts(count), failed)

        low, high = 1, max(self.whole.cluster.nodes - 1, 1)
        while low < high:
            # More hosts for prompts allow more prompts, and fewer answers.
            middle = (low + high) // 2
            prompts, answers = rates_with(middle)
            low, high = (low, middle) if prompts >= answers else (middle + 1, high)
        bounds = {count: min(rates_with(count)) for count in {max(low - 1, 1), low}}
        best: ServingPlan | None = None
        reached = 0.0
        for count in sorted(bounds, key=lambda one: (-bounds[one], one)):
            for share in RATE_SHARES:
                rate = bounds[count] * share
                if rate <= reached:
                    break
                tried = Sink(sink.positions)
                pair = self._plan_at_rate(rate, self._split_hosts(count), tried)
                failed = failed if pair is None else tried
                if pair is not None:
                    best, reached = pair, rate
                    break
        sink.extend(failed)
        return best

    def _largest_rates(self, hosts: tuple[Hosts, Hosts], sink: Sink) -> tuple[float, float]:
        """Return the largest request rates of the two pools on ``hosts``; 0 without a layout."""
        goals = self.whole.goals
        decode = self._estimate_at_largest_rate(
            "decode",
            self.pools.decode,
            hosts[1],
            _decode_goals(self.pools.decode.goals, goals),
            sink,
        )
        if decode is None:
            return 0.0, 0.0
        own = _prefill_goals(self.pools.prefill.goals, goals, decode, 1.0)
        prefill = self._estimate_at_largest_rate("prefill", self.pools.prefill, hosts[0], own, sink)
        answers = decode.solved_request_rate or 0.0
        return (prefill.solved_request_rate or 0.0 if prefill else 0.0), answers

    def _estimate_at_largest_rate(
        self, name: str, pool: ServingProblem, hosts: Hosts, goals: ServingGoals, sink: Sink
    ) -> ServingEstimate | None:
        """Return the estimate of the layout of a pool with the largest request rate."""
        problem = replace(
            pool,
            cluster=cluster_with_hosts(pool.cluster, hosts),
            goals=replace(goals, maximize="throughput"),
        )
        own = Sink(sink.positions)
        found = search_serving_layouts(problem, engine(problem.framework), own)
        sink.extend(own, change=partial(_name_pool, name))
        return None if found is None else found[0]


def _name_pool(name: str, diagnostic: Diagnostic) -> Diagnostic:
    """Return ``diagnostic`` with the name of the pool in its message."""
    finding = replace(diagnostic.finding, message=f"{name} pool: {diagnostic.finding.message}")
    return replace(diagnostic, finding=finding)


def _decode_goals(goals: ServingGoals, whole: ServingGoals) -> ServingGoals:
    """Return goals of the decode pool with its part of the limits of the spec."""
    limits = tuple(
        replace(one, seconds=one.seconds * DECODE_SHARE) if one.latency == "ttft" else one
        for one in whole.latency_limits
    )
    return _with_limits(goals, limits, whole)


def _prefill_goals(
    goals: ServingGoals, whole: ServingGoals, decode: ServingEstimate, factor: float
) -> ServingGoals:
    """Return goals of the prefill pool: the limits of the spec without the part of ``decode``."""

    def remaining(limit: LatencyLimit) -> float:
        if limit.statistic == "each" or decode.simulated is None:
            return limit.seconds * (1 - DECODE_SHARE)
        return limit.seconds - simulated_value(decode.simulated, limit)

    limits = tuple(
        replace(one, seconds=remaining(one) * factor)
        for one in whole.latency_limits
        if one.latency == "ttft"
    )
    return _with_limits(goals, limits, whole)


def _with_limits(
    goals: ServingGoals, limits: Iterable[LatencyLimit], whole: ServingGoals
) -> ServingGoals:
    """Return ``goals`` with ``limits``, and with the share of requests that must be within them."""
    kept = tuple(limits)
    goodput = whole.goodput if any(one.statistic == "each" for one in kept) else None
    if goodput is not None and any(
        one.statistic == "each" and one.latency == "ttft" for one in kept
    ):
        # If each pool delays half of the other requests, all of them together are delayed.
        goodput = (1 + goodput) / 2
    return replace(goals, latency_limits=kept, goodput=goodput)


def simulate_pair(
    whole: ServingProblem,
    prefill: ServingPlan,
    decode: ServingPlan,
    rate: float,
    sampling: Sampling = ONE_SAMPLE,
) -> ServiceStatistics | None:
    """Return the statistics of requests that pass both pools; None if there are too many."""

    def simulated(plan: ServingPlan) -> SimulatedPool:
        problem = plan.problem
        deployment = build_deployment(
            problem.model, problem.cluster, problem.service.setup, plan.layout
        )
        return SimulatedPool.idle(deployment, problem.service.traffic, sampling.seed)

    each = {
        one.latency: one.seconds for one in whole.goals.latency_limits if one.statistic == "each"
    }
    traffic = replace(whole.service.traffic, request_rate=rate)
    return simulate_pools(simulated(prefill), simulated(decode), traffic, sampling, each)


def _report(sink: Sink, code: str, text: str) -> None:
    sink.report(code, Finding(text), at=AT)


def _comparison_value(problem: ServingProblem, plan: ServingPlan) -> float:
    """Return the value by which two pools and whole engines are compared; smaller is better."""
    traffic = problem.service.traffic
    if problem.minimizes_gpus:
        return plan.occupied_gpus
    if traffic.is_load_given or problem.goals.maximize == "latency":
        return plan.request_seconds
    seconds = 1 / _requests_per_second(plan)
    return seconds * (plan.occupied_gpus if problem.goals.maximize == "lowest-cost" else 1)


def _requests_per_second(plan: ServingPlan) -> float:
    return min(one.estimate.requests_per_second for one in plan.pools)


def _compare_figures(
    problem: ServingProblem,
    pools: tuple[ServingPlan | None, Sink],
    engines: tuple[ServingPlan | None, Sink],
) -> str:
    """Return the figures of two pools, and of engines that serve whole requests.

    The sinks contain the findings of the attempts to plan them; an attempt without a plan has an
    error, which the text quotes.
    """

    def figures(plan: ServingPlan | None, sink: Sink) -> str:
        if plan is None:
            reason = next(one.finding for one in sink.diagnostics if one.severity == "error")
            return f"have no valid plan ({reason.message})"
        gpus = format_count(plan.occupied_gpus, "GPU")
        rate = format_three_digits(_requests_per_second(plan))
        seconds = format_seconds(plan.request_seconds)
        return f"occupy {gpus} for {rate} requests/s, {seconds} per request"

    gain = ""
    pair, whole = pools[0], engines[0]
    if pair is not None and whole is not None:
        share = 1 - _comparison_value(problem, pair) / _comparison_value(problem, whole)
        less, more = _comparatives(problem)
        gain = f" ({format_percent(abs(share))} {less if share >= 0 else more})"
    return f"two pools {figures(*pools)}{gain}; engines for whole requests {figures(*engines)}"


def _comparatives(problem: ServingProblem) -> tuple[str, str]:
    """Return the words for a smaller and for a larger ``_comparison_value``."""
    if problem.minimizes_gpus:
        return "fewer GPUs", "more GPUs"
    if problem.service.traffic.is_load_given or problem.goals.maximize == "latency":
        return "less time per request", "more time per request"
    return "less GPU time per request", "more GPU time per request"
