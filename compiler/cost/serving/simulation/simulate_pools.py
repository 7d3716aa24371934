"""Simulation of a disaggregated service: requests pass the prefill pool, then the decode pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.micro_batches import with_micro_batches
from parc.compiler.cost.serving.simulation.engine import Engine
from parc.compiler.cost.serving.simulation.front_end import FrontEnd, serve
from parc.compiler.cost.serving.simulation.requests import (
    PrefixCaches,
    open_arrivals,
    request_maker,
    request_sample,
    trace_arrivals,
)
from parc.compiler.cost.serving.simulation.scheduler import RankLimits, Request
from parc.compiler.cost.serving.simulation.simulate import (
    MOST_PRESENT,
    NO_LIMITS,
    ONE_SAMPLE,
    Sampling,
    collect,
    front_end,
    idle_engines,
    rank_limits,
    service_statistics,
    share_within,
)
from parc.compiler.cost.serving.traffic import estimate_deployment
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import ServiceStatistics, ServingEstimate, Traffic
from parc.compiler.ir.serving_goals import LatencyName


@frozen
class SimulatedPool:
    """Engines of a pool before a simulation."""

    estimate: ServingEstimate
    traffic: Traffic
    limits: RankLimits
    engines: list[Engine]
    front: FrontEnd

    @classmethod
    def idle(cls, deployment: Deployment, traffic: Traffic, seed: int = 0) -> SimulatedPool:
        """Return all engines of a pool, and the limits of each of their ranks.

        ``seed`` selects the choices of a random balancer.
        """
        deployment = with_micro_batches(deployment, traffic)
        estimate, replicas = estimate_deployment(deployment, traffic), deployment.layout.replicas
        limits = rank_limits(deployment, traffic)
        engines = idle_engines(deployment, traffic, limits, replicas)
        front = front_end(deployment, traffic, replicas, seed=seed)
        return cls(estimate, traffic, limits, engines, front)

    @property
    def request_seconds(self) -> float:
        """Estimated time of a request in the pool."""
        later = max(self.traffic.output_tokens - 1, 0.0)
        return self.estimate.ttft_seconds + later * self.estimate.tpot_seconds


def simulate_pools(
    prefill: SimulatedPool,
    decode: SimulatedPool,
    traffic: Traffic,
    sampling: Sampling = ONE_SAMPLE,
    request_limits: Mapping[LatencyName, float] = NO_LIMITS,
) -> ServiceStatistics | None:
    """Return the statistics of whole requests under ``traffic``, which has a request rate.

    All engines are simulated, because the two pools have different numbers of them. Returns None if
    a KV cache is too small for a request, or if more than ``MOST_PRESENT`` requests are in the
    system.
    """
    assert traffic.request_rate is not None
    present = traffic.request_rate * (prefill.request_seconds + decode.request_seconds)
    if not (prefill.estimate.fits and decode.estimate.fits) or present > MOST_PRESENT:
        return None
    sample = request_sample(traffic, sampling.seed)
    ranks = sum(len(engine.ranks) for engine in prefill.engines)
    caches = PrefixCaches(prefill.limits.cache_tokens * ranks)
    longest = min(prefill.limits.longest_request, decode.limits.longest_request)
    maker = request_maker(traffic, sample, longest, caches)
    arrivals = (
        open_arrivals(traffic.request_rate, sample, maker)
        if traffic.trace is None
        else trace_arrivals(traffic.trace, traffic.request_rate, maker)
    )
    left_out = int(sampling.warm_up * present) + sampling.requests // 10
    engines = [*prefill.engines, *decode.engines]
    done = _serve_in_sequence(prefill, decode, arrivals)
    found = collect(done, engines, left_out, sampling.requests)
    statistics = service_statistics(found, engines, scale=1.0)
    if not request_limits:
        return statistics
    return replace(statistics, within_limits=share_within(found.requests, request_limits))


def _serve_in_sequence(
    prefill: SimulatedPool, decode: SimulatedPool, arrivals: Iterator[Request]
) -> Iterator[Request]:
    """Yield whole requests in the order in which they end in the decode pool."""
    # Request to the prefill pool -> number of tokens that the decode pool generates.
    responses: dict[Request, int] = {}
    # Request to the decode pool -> its arrival at the prefill pool.
    starts: dict[Request, float] = {}

    def prompts() -> Iterator[Request]:
        for one in arrivals:
            prompt = Request(one.arrival, one.prompt, 1, one.cached)
            responses[prompt] = one.output
            yield prompt

    def transfers() -> Iterator[Request]:
        for prompt in serve(prefill.engines, prefill.front, prompts()):
            # The decode pool has the KV cache of the prompt, but computes the last prompt token
            # again, because the logits of that token are not transferred.
            cached = prompt.prompt - 1
            rest = Request(prompt.finish, prompt.prompt, responses.pop(prompt), cached)
            starts[rest] = prompt.arrival
            yield rest

    for request in serve(decode.engines, decode.front, transfers()):
        # The latencies of a request start when it arrives at the prefill pool.
        request.arrival = starts.pop(request)
        yield request
