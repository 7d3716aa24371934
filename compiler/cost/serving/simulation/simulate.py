"""Simulation of a deployment under traffic: percentiles of latency, throughput, queue and cache.

Replicas are independent, so that at most ``MOST_RANKS`` data-parallel ranks are simulated, under
their share of the traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import repeat
from math import inf
from operator import attrgetter
from types import MappingProxyType

from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.kv_transfer import transfer_seconds
from parc.compiler.cost.serving.memory import kv_bytes_per_token, request_cache_bytes
from parc.compiler.cost.serving.micro_batches import latency_ratio, with_micro_batches
from parc.compiler.cost.serving.request_waits import runs_prompts_first, seconds_outside_steps
from parc.compiler.cost.serving.simulation.engine import CACHE_BINS, Engine
from parc.compiler.cost.serving.simulation.front_end import FrontEnd, create_balancer, serve
from parc.compiler.cost.serving.simulation.requests import (
    PrefixCaches,
    RequestAt,
    RequestSample,
    open_arrivals,
    request_maker,
    request_sample,
    trace_arrivals,
)
from parc.compiler.cost.serving.simulation.scheduler import Rank, RankLimits, Request
from parc.compiler.cost.serving.simulation.step_times import build_step_times
from parc.compiler.cost.serving.simulation.stop_rule import StopRule, request_latency
from parc.compiler.cost.serving.traffic import estimate_deployment
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import (
    Distribution,
    Pool,
    ServiceStatistics,
    ServingEstimate,
    Traffic,
)
from parc.compiler.ir.serving_goals import LatencyName

NO_LIMITS: Mapping[LatencyName, float] = MappingProxyType({})

REQUESTS = 2000
"""Number of recorded requests. The sampling error of a 99th percentile is about 5 %."""
MOST_RANKS = 8
"""Maximum number of simulated data-parallel ranks, unless a single replica has more."""
MOST_PRESENT = 20_000
"""Maximum number of requests in the simulated engines; with more, a simulation takes too long."""
MOST_PROMPT_STEPS = 100_000
"""Maximum number of steps with prompts that are simulated. If each prompt needs many steps, fewer
requests are recorded, because a simulation would otherwise take up to a minute."""
FEWEST_REQUESTS = 100
"""Minimum number of recorded requests."""
WARM_UP = 2.0
"""Requests before the first recorded one, divided by the requests in the system."""
CURVE_STEPS = 20
"""Number of equal steps from 0 to 100 between the percentiles of ``Distribution.curve``."""


@frozen
class Load:
    """Traffic of the simulated engines."""

    present: float
    """Estimated number of requests in the system."""
    concurrency: int | None
    """Number of requests in the system at any time; None if requests arrive at ``rate``."""
    rate: float
    """Requests per second."""


@frozen
class Sampling:
    """Requests whose times a simulation records."""

    seed: int = 0
    requests: int = REQUESTS
    """Number of recorded requests."""
    warm_up: float = WARM_UP
    """Requests that end before the first recorded one, divided by those in the system at a time. A
    benchmark that counts all requests from its start on has a warm-up of 0."""
    records: bool = True
    """True if the lengths of queues and the use of the cache are recorded too."""
    stop: StopRule | None = None
    """Limits; the simulation stops early if it is certain to miss one of them."""


ONE_SAMPLE = Sampling()


def simulate(
    deployment: Deployment,
    traffic: Traffic,
    sampling: Sampling = ONE_SAMPLE,
    request_limits: Mapping[LatencyName, float] = NO_LIMITS,
) -> ServiceStatistics | None:
    """Return the statistics of ``deployment`` under ``traffic``.

    ``request_limits`` contains upper limits in seconds by latency; the statistics contain the share
    of requests within all of them. Equal arguments give equal results. The result is None if the
    KV cache is too small for a request, or if more than ``MOST_PRESENT`` requests are in the
    system.
    """
    deployment = with_micro_batches(deployment, traffic)
    estimate = estimate_deployment(deployment, traffic)
    if not estimate.fits:
        return None
    layout = deployment.layout
    replicas = max(min(layout.replicas, MOST_RANKS // deployment.ranks), 1)
    load = _share_of_load(traffic, estimate, replicas / layout.replicas)
    if load.present > MOST_PRESENT:
        return None
    limits = rank_limits(deployment, traffic)
    engines = idle_engines(deployment, traffic, limits, replicas, records=sampling.records)
    sample = request_sample(traffic, sampling.seed)
    caches = _prefix_caches(deployment, limits, deployment.ranks * replicas)
    whole = request_maker(traffic, sample, limits.longest_request, caches)
    maker = _in_pool(deployment.setup.pool, whole)
    front = front_end(
        deployment, traffic, replicas, is_closed=load.concurrency is not None, seed=sampling.seed
    )
    renew = None if load.concurrency is None else maker
    done = serve(engines, front, _arrivals(traffic, load, sample, maker), renew)
    requests, warm_up = _recorded_requests(traffic, limits, sampling), sampling.warm_up
    left_out = int(warm_up * load.present) + (requests // 10 if warm_up else 0)
    stop = sampling.stop.checker(requests) if sampling.stop else None
    found = collect(done, engines, left_out, requests, stop)
    statistics = service_statistics(found, engines, layout.replicas / replicas)
    if not request_limits:
        return statistics
    return replace(statistics, within_limits=share_within(found.requests, request_limits))


def idle_engines(
    deployment: Deployment,
    traffic: Traffic,
    limits: RankLimits,
    replicas: int,
    *,
    records: bool = True,
) -> list[Engine]:
    """Return ``replicas`` engines without requests; see ``Sampling`` for ``records``."""
    own, shared = build_step_times(deployment, traffic.input_tokens)
    ranks = range(deployment.ranks)
    return [
        Engine([Rank(limits, own) for _ in ranks], shared, records=records) for _ in range(replicas)
    ]


def front_end(
    deployment: Deployment,
    traffic: Traffic,
    replicas: int,
    *,
    is_closed: bool = False,
    seed: int = 0,
) -> FrontEnd:
    """Return the front end of ``replicas`` engines, which includes the transfer to a decode pool.

    ``is_closed`` is True if a new request replaces each one that ends. ``seed`` selects the choices
    of a random balancer.
    """
    arrivals, scheduling = deployment.engine.arrivals, deployment.engine.scheduling
    is_prefill = deployment.setup.pool == "prefill"
    transfer = transfer_seconds(deployment, traffic)
    return FrontEnd(
        seconds_outside_steps(deployment.setup, deployment.model) + transfer,
        # The transfers to one rank follow one another.
        max(arrivals.admission_seconds, transfer / deployment.layout.dp) / replicas,
        # The steps until a busy engine accepts a request were measured in closed loops only.
        arrivals.poll_steps + arrivals.option_steps if is_closed else 0.0,
        create_balancer(
            scheduling.prefill_pool_balancer if is_prefill else scheduling.rank_balancer, seed
        ),
    )


def _in_pool(pool: Pool, maker: RequestAt) -> RequestAt:
    """Return a function that creates the part of a request that ``pool`` processes.

    The prefill pool yields one token. In the decode pool, all tokens of the prompt but the last
    one are in the transferred KV cache.
    """

    def request_at(now: float) -> Request:
        whole = maker(now)
        if pool == "prefill":
            return Request(now, whole.prompt, 1, whole.cached)
        return Request(now, whole.prompt, whole.output, whole.prompt - 1)

    return maker if pool == "both" else request_at


def _prefix_caches(deployment: Deployment, limits: RankLimits, ranks: int) -> PrefixCaches:
    """Return the sizes of the prefix caches of ``ranks`` data-parallel ranks."""
    layout, setup = deployment.layout, deployment.setup
    token = kv_bytes_per_token(deployment.model, layout, setup)
    host_tokens = setup.host_cache_bytes / (token * layout.rank_gpus) if token else 0.0
    return PrefixCaches(
        limits.cache_tokens * ranks, host_tokens * ranks, deployment.reload_seconds(token)
    )


def _recorded_requests(traffic: Traffic, limits: RankLimits, sampling: Sampling) -> int:
    """Return the number of requests to record: fewer than asked for if prompts take many steps."""
    steps = traffic.computed_input_tokens / limits.step_tokens
    affordable = int(MOST_PROMPT_STEPS / max(steps, 1.0))
    return min(sampling.requests, max(affordable, FEWEST_REQUESTS))


def share_within(requests: list[Request], limits: Mapping[LatencyName, float]) -> float:
    """Return the share of requests whose latencies are all within ``limits``."""

    def meets_all(one: Request) -> bool:
        return all(request_latency(one, name) <= limit for name, limit in limits.items())

    return sum(map(meets_all, requests)) / len(requests)


def _share_of_load(traffic: Traffic, estimate: ServingEstimate, share: float) -> Load:
    """Return the traffic of the simulated replicas, which are ``share`` of all replicas."""
    if traffic.request_rate is None:
        present = traffic.concurrency or estimate.max_concurrency
        concurrency = max(round(present * share), 1)
        return Load(concurrency, concurrency, inf)
    rate = traffic.request_rate * share
    later = max(traffic.output_tokens - 1, 0.0)
    # An overloaded engine has an endless queue; its slots bound the warm-up.
    seconds = estimate.ttft_seconds + later * estimate.tpot_seconds
    return Load(min(rate * seconds, estimate.max_concurrency * share), None, rate)


def _arrivals(
    traffic: Traffic, load: Load, sample: RequestSample, maker: RequestAt
) -> Iterator[Request]:
    if load.concurrency is not None:
        return map(maker, repeat(0.0, load.concurrency))
    if traffic.trace is not None:
        return trace_arrivals(traffic.trace, load.rate, maker)
    return open_arrivals(load.rate, sample, maker)


def rank_limits(deployment: Deployment, traffic: Traffic) -> RankLimits:
    """Return the limits of the scheduler of one of ``deployment.ranks``."""
    setup, layout = deployment.rank_setup, deployment.layout
    # Windows and recurrent states make the cache of a request nonlinear in its length. The cache is
    # counted in tokens of a request of mean length.
    mean = traffic.mean_context_tokens
    request_bytes = request_cache_bytes(deployment.model, layout, setup, mean)
    block = deployment.engine.memory.default_block_tokens * layout.dcp
    return RankLimits(
        running=setup.running_limit,
        step_tokens=setup.step_token_limit,
        cache_tokens=deployment.rank_cache_bytes / request_bytes * mean,
        tokens_per_request=(block - 1) / 2,
        accepted=setup.accepted_tokens,
        verified=1 + setup.draft_tokens,
        reserves_output=deployment.engine.scheduling.reserves_output,
        prefill_first=runs_prompts_first(setup),
        late_share=_late_share(deployment, traffic),
    )


def _late_share(deployment: Deployment, traffic: Traffic) -> float:
    """Return ``RankLimits.late_share``."""
    steps = traffic.computed_input_tokens / deployment.rank_setup.step_token_limit
    return (latency_ratio(deployment, traffic) - 1) * max(steps, 1.0)


@frozen
class Served:
    """Recorded requests, and the throughput of the engines while they were recorded."""

    requests: list[Request]
    seconds: float
    """Recorded time."""
    ended: int
    """Number of requests that ended in the recorded time."""
    tokens: int
    """Number of output tokens of the requests that ended in the recorded time."""


def collect(
    done: Iterator[Request],
    engines: Iterable[Engine],
    warm_up: int,
    requests: int,
    stop: Callable[[Request], bool] | None = None,
) -> Served:
    """Serve ``warm_up`` requests, record the next ones, and return them.

    Recording ends after ``requests`` requests, or when ``stop`` returns True for one of them.
    """
    recorded: list[Request] = []
    start, tokens = 0.0, 0
    for position, request in enumerate(done):
        if position < warm_up:
            continue
        if position == warm_up:
            start = request.finish
            for engine in engines:
                engine.clear_records()
            recorded.append(request)
            continue
        tokens += request.output
        recorded.append(request)
        is_missed = stop is not None and stop(request)
        # Requests that end at the same time give no throughput.
        if len(recorded) > requests or (is_missed and request.finish > start):
            break
    return Served(recorded[1:], recorded[-1].finish - start, len(recorded) - 1, tokens)


def service_statistics(found: Served, engines: list[Engine], scale: float) -> ServiceStatistics:
    """Return the statistics of recorded requests; rates are multiplied by ``scale``."""
    requests = found.requests
    several = [one for one in requests if one.output > 1] or requests
    queue: dict[int, float] = {}
    cache: dict[int, float] = {}
    for engine in engines:
        for total, part in ((queue, engine.queue_seconds), (cache, engine.cache_seconds)):
            for value, seconds in part.items():
                total[value] = total.get(value, 0.0) + seconds
    return ServiceStatistics(
        requests=len(requests),
        ttft_seconds=sample_distribution([request_latency(one, "ttft") for one in requests]),
        tpot_seconds=sample_distribution([request_latency(one, "tpot") for one in several]),
        e2e_seconds=sample_distribution([request_latency(one, "e2e") for one in requests]),
        tokens_per_second=found.tokens / found.seconds * scale,
        requests_per_second=found.ended / found.seconds * scale,
        queue=_time_distribution(queue, 1.0),
        cache=_time_distribution(cache, 1 / CACHE_BINS),
        preemptions=sum(rank.preemptions for engine in engines for rank in engine.ranks),
        wait_growth=_wait_growth(requests),
    )


def _wait_growth(requests: Iterable[Request]) -> float:
    """Return how much the mean time to the first token grows per second between arrivals.

    The second half of the requests is compared with the first half.
    """
    ordered = sorted(requests, key=attrgetter("arrival"))
    half = len(ordered) // 2
    if not half:
        return 0.0
    early, late = ordered[:half], ordered[-half:]
    passed = sum(one.arrival for one in late) - sum(one.arrival for one in early)
    waits = [sum(request_latency(one, "ttft") for one in part) for part in (early, late)]
    return (waits[1] - waits[0]) / passed if passed > 0 else 0.0


def sample_distribution(values: Iterable[float]) -> Distribution:
    """Return the distribution of equally likely values."""
    ordered = sorted(values)

    def percentile(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    return Distribution(
        sum(ordered) / len(ordered),
        percentile(0.5),
        percentile(0.9),
        percentile(0.99),
        tuple(percentile(step / CURVE_STEPS) for step in range(CURVE_STEPS + 1)),
    )


def _time_distribution(seconds_of: dict[int, float], unit: float) -> Distribution:
    """Return the distribution of a value over time, given how many seconds it kept each level."""
    total = sum(seconds_of.values()) or 1.0
    ordered = sorted(seconds_of.items()) or [(0, 1.0)]

    def percentile(share: float) -> float:
        passed = 0.0
        for value, seconds in ordered:
            passed += seconds
            if passed >= share * total:
                return value * unit
        return ordered[-1][0] * unit

    mean = sum(value * seconds for value, seconds in ordered) / total * unit
    return Distribution(mean, percentile(0.5), percentile(0.9), percentile(0.99))
