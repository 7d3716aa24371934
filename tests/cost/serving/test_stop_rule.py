"""A simulation that is certain to miss a limit ends early, and only then."""

from __future__ import annotations

from random import Random

import pytest

from parc.compiler.cost.serving.simulation.scheduler import Request
from parc.compiler.cost.serving.simulation.simulate import (
    collect,
    sample_distribution,
    share_within,
)
from parc.compiler.cost.serving.simulation.stop_rule import StopRule, request_latency
from parc.compiler.ir.serving_goals import LatencyLimit

REQUESTS = 150


def ended_requests(seed: int) -> list[Request]:
    """Return requests with random latencies; some have a single token."""
    dice = Random(seed)
    found = []
    for position in range(REQUESTS):
        one = Request(float(position), 100, dice.choice((1, 2, 50, 400)))
        one.first = one.arrival + dice.expovariate(1.0)
        one.finish = one.first + (one.output - 1) * dice.uniform(0.01, 0.1)
        found.append(one)
    return found


def misses(limit: LatencyLimit, requests: list[Request], goodput: float) -> bool:
    """Return True if the statistics of ``requests`` miss ``limit``."""
    if limit.statistic == "each":
        return share_within(requests, {limit.latency: limit.seconds}) < goodput
    several = [one for one in requests if one.output > 1] or requests
    counted = several if limit.latency == "tpot" else requests
    found = sample_distribution([request_latency(one, limit.latency) for one in counted])
    return bool(getattr(found, limit.statistic) > limit.seconds)


@pytest.mark.parametrize("latency", ["ttft", "tpot", "e2e"])
@pytest.mark.parametrize("statistic", ["mean", "p50", "p90", "p99", "each"])
def test_a_simulation_ends_early_only_if_it_misses_a_limit(latency: str, statistic: str) -> None:
    early = kept = 0
    for seed in range(8):
        requests, goodput = ended_requests(seed), 0.9
        values = sorted(request_latency(one, latency) for one in requests)
        for seconds in (values[0] / 2, *values[5::20], values[-1], 2 * values[-1]):
            limit = LatencyLimit(latency, statistic, seconds)  # type: ignore[arg-type]
            is_missed = StopRule((limit,), goodput).checker(REQUESTS)
            stop = next((n for n, one in enumerate(requests, 1) if is_missed(one)), None)
            if stop is None:
                # Means may end just above the limit, which takes all requests to find out.
                kept += not misses(limit, requests, goodput)
                continue
            early += stop < REQUESTS
            assert misses(limit, requests, goodput)
            assert misses(limit, requests[:stop], goodput)
    assert early > 10
    assert kept > 10


def test_without_a_share_of_requests_limits_on_each_request_end_nothing() -> None:
    limit = LatencyLimit("e2e", "each", 0.0)
    is_missed = StopRule((limit,)).checker(REQUESTS)
    assert not any(is_missed(one) for one in ended_requests(0))


def test_recording_goes_on_while_all_requests_ended_at_the_same_time() -> None:
    ended = ended_requests(0)
    for one in ended[:9]:
        one.finish = 1.0
    ended[9].finish = 2.0
    found = collect(iter(ended), (), 0, len(ended) - 1, lambda _: True)
    assert (len(found.requests), found.seconds) == (9, 1.0)
