"""Event simulation of continuous batching: closed forms, conservation, an independent scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, repeat
from math import inf, sqrt
from random import Random
from statistics import fmean

import pytest

from benchmarks.accuracy.serving.engines import ENGINES
from parc.compiler.cost.serving.deployment import Deployment, build_deployment
from parc.compiler.cost.serving.simulation.engine import Engine
from parc.compiler.cost.serving.simulation.front_end import FrontEnd, serve
from parc.compiler.cost.serving.simulation.requests import (
    PrefixCaches,
    RequestSample,
    request_maker,
    trace_arrivals,
)
from parc.compiler.cost.serving.simulation.scheduler import Rank, RankLimits, Request
from parc.compiler.cost.serving.simulation.simulate import Sampling, simulate
from parc.compiler.cost.serving.simulation.step_times import Keys, StepTimes, build_step_times
from parc.compiler.cost.serving.step import StepBatch, seconds_through_all_stages
from parc.compiler.cost.serving.traffic import estimate_deployment
from parc.compiler.ir.serving import (
    Lengths,
    ServiceStatistics,
    ServingLayout,
    ServingSetup,
    Trace,
    TraceRequest,
    Traffic,
)
from tests.cost.serving.plain_scheduler import PlainScheduler
from tests.cost.serving.serving_cases import cluster, model


def linear_seconds(batch: StepBatch) -> float:
    """Return the time of a step that is linear in everything, so that no grid adds an error."""
    attention = 2e-7 * batch.decode * batch.context + 1e-9 * batch.prefill * batch.span
    return 5e-3 + 1e-4 * batch.decode + attention + 2e-5 * batch.prefill


def linear_times() -> StepTimes:
    return StepTimes(linear_seconds, 100.0)


def one_engine(limits: RankLimits, ranks: int = 1, stretch: float = inf) -> Engine:
    times = linear_times()
    return Engine([Rank(limits, times) for _ in range(ranks)], None, stretch)


def random_requests(random: Random, count: int, rate: float) -> list[Request]:
    found, now = [], 0.0
    for _ in range(count):
        now += random.expovariate(rate)
        prompt = random.randint(1, 120)
        cached = random.choice((0, 0, prompt // 2))
        found.append(Request(now, prompt, random.randint(1, 40), cached))
    return found


def times_of(requests: list[Request]) -> list[tuple[float, float]]:
    return [(one.first, one.finish) for one in requests]


def run(engine: Engine, requests: list[Request]) -> list[Request]:
    return list(serve([engine], FrontEnd(0.0, 0.0), iter(requests)))


def poisson(random: Random, rate: float, make: Callable[[float], Request]) -> Iterator[Request]:
    now = 0.0
    while True:
        now += random.expovariate(rate)
        yield make(now)


ONE_AT_A_TIME = RankLimits(1, 10_000, 1e9)


def service_seconds(prompt: int, output: int) -> float:
    """Return the time of a request that runs by itself."""
    decode = sum(linear_seconds(StepBatch(1, prompt + done)) for done in range(output - 1))
    return linear_seconds(StepBatch(0, 0, prompt, prompt / 2)) + decode


@pytest.mark.parametrize(("variable", "load"), [(False, 0.7), (True, 0.5)], ids=["M/D/1", "M/G/1"])
def test_the_wait_for_a_server_with_one_slot_is_that_of_pollaczek_and_khinchine(
    variable: bool, load: float
) -> None:
    random, outputs = Random(7), (2, 5, 60) if variable else (20,)
    services = [service_seconds(100, output) for output in outputs]
    rate = load / fmean(services)
    arrivals = poisson(random, rate, lambda now: Request(now, 100, random.choice(outputs)))
    engine, waits = one_engine(ONE_AT_A_TIME), list[float]()
    prompt = linear_seconds(StepBatch(0, 0, 100, 50))
    for request in serve([engine], FrontEnd(0.0, 0.0), arrivals):
        waits.append(request.first - request.arrival - prompt)
        if len(waits) == 30_000:
            break
    expected = rate * fmean(one**2 for one in services) / (2 * (1 - load))
    # Batch means give the sampling error of a correlated series.
    batches = [fmean(waits[start : start + 750]) for start in range(0, len(waits), 750)]
    mean = fmean(batches)
    error = sqrt(sum((one - mean) ** 2 for one in batches) / (len(batches) - 1) / len(batches))
    assert abs(mean - expected) < 3 * error
    assert error < 0.06 * expected
    # Little's law: waiting requests = rate x mean wait.
    total = sum(engine.queue_seconds.values())
    queue = sum(depth * seconds for depth, seconds in engine.queue_seconds.items()) / total
    assert queue == pytest.approx(len(waits) / total * mean, rel=5e-3)


LIMITS = (
    RankLimits(8, 64, 1e6),
    RankLimits(8, 64, 400, 2.5),
    RankLimits(4, 40, 1e6, prompt_chunk=16),
    RankLimits(8, 64, 1e6, prefill_first=True),
    RankLimits(8, 64, 400, 2.5, prefill_first=True),
    RankLimits(6, 50, 500, reserves_output=True),
)


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_stretch_of_steps_ends_when_its_steps_one_by_one_would(
    limits: RankLimits, ranks: int
) -> None:
    for seed in range(5):
        rate = 12.0 if ranks == 1 else 30.0
        whole = random_requests(Random(seed), 150, rate)
        single = random_requests(Random(seed), 150, rate)
        run(one_engine(limits, ranks), whole)
        run(one_engine(limits, ranks, 1), single)
        for one, other in zip(times_of(whole), times_of(single), strict=True):
            assert one == pytest.approx(other, rel=1e-9)


@pytest.mark.parametrize("limits", LIMITS[:-1])
def test_a_scheduler_without_shortcuts_serves_each_request_at_the_same_times(
    limits: RankLimits,
) -> None:
    preemptions = 0
    for seed in range(4):
        requests = random_requests(Random(seed), 120, 12.0)
        plain = PlainScheduler(requests, limits)
        expected = plain.run()
        engine = one_engine(limits)
        run(engine, requests)
        assert engine.ranks[0].preemptions == plain.preemptions
        preemptions += plain.preemptions
        for one, other in zip(times_of(requests), expected, strict=True):
            assert one == pytest.approx(other, rel=1e-9)
    assert (preemptions > 0) == (limits.cache_tokens < 1000)


def test_a_running_request_waits_for_all_chunks_of_a_prompt_only_if_prompts_run_first() -> None:
    first_starts = []
    for prefill_first in (False, True):
        limits = RankLimits(8, 64, 1e6, prefill_first=prefill_first)
        running, prompt = Request(0.0, 64, 100), Request(0.1, 192, 1)
        run(one_engine(limits), [running, prompt])
        chunks = [StepBatch(0, 0, 64, 64 * part + 32) for part in range(3)]
        added = running.finish - service_seconds(64, 100)
        alone = sum(map(linear_seconds, chunks))
        # Without steps of its own, a prompt adds no fixed time per step, and takes more steps.
        assert (added == pytest.approx(alone)) is prefill_first
        first_starts.append(prompt.first)
    assert first_starts[1] < first_starts[0]


@pytest.mark.parametrize("limits", LIMITS)
def test_all_requests_end_once_and_leave_an_empty_cache(limits: RankLimits) -> None:
    requests = random_requests(Random(3), 300, 20.0)
    engine = one_engine(limits, 2)
    done = run(engine, requests)
    assert {id(one) for one in done} == {id(one) for one in requests}
    assert len(done) == len(requests)
    for one in done:
        assert one.arrival < one.first <= one.finish
    for rank in engine.ranks:
        assert (list(rank.running), list(rank.waiting), rank.prefilling) == ([], [], [])
        assert rank.decoding == 0
        assert rank.used == pytest.approx(0, abs=1e-6)
        assert rank.context == pytest.approx(0, abs=1e-6)


def test_a_single_client_waits_for_its_own_work_only() -> None:
    done = serve(
        [one_engine(LIMITS[0])],
        FrontEnd(0.25, 0.0),
        map(lambda now: Request(now, 50, 12), repeat(0.0, 1)),
        lambda now: Request(now, 50, 12),
    )
    for _ in range(10):
        request = next(done)
        prompt = linear_seconds(StepBatch(0, 0, 50, 25))
        assert request.first - request.arrival == pytest.approx(0.25 + prompt)
        whole = 0.25 + service_seconds(50, 12)
        assert request.finish - request.arrival == pytest.approx(whole)


def test_simultaneous_requests_are_balanced_over_the_ranks() -> None:
    engine = one_engine(LIMITS[0], 3)
    requests = [Request(0.0, 10, 5) for _ in range(9)]
    next(serve([engine], FrontEnd(0.0, 0.0), iter(requests)))
    assert sorted(len(rank.running) for rank in engine.ranks) == [2, 3, 3]


def deployment(name: str, layout: ServingLayout) -> Deployment:
    setup = ServingSetup(weights="fp8", kv="fp8", engine=ENGINES["vllm"])
    return build_deployment(model(name), cluster("hgx-h200"), setup, layout)


def statistics(one: Deployment, traffic: Traffic) -> ServiceStatistics:
    found = simulate(one, traffic)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("llama-3.1-70b", ServingLayout(tp=4)),
        ("mistral-7b-v0.1", ServingLayout()),
        ("llama-3.1-70b", ServingLayout(tp=2, pp=2)),
        ("deepseek-v3", ServingLayout(tp=8, ep=8)),
    ],
)
def test_tables_of_step_times_deviate_by_at_most_one_percent(
    name: str, layout: ServingLayout
) -> None:
    found, random = deployment(name, layout), Random(1)
    times, shared = build_step_times(found, 1000)
    assert shared is None
    for _ in range(300):
        decode, context = random.choice((0, 1, 7, 40, 333)), random.uniform(100, 20_000)
        tokens = random.choice((0, random.randint(1, 200), random.randint(200, 8192)))
        base, slope = times.decode_line(decode, context)
        keys = random.uniform(0.5, 1.5) * times.visible_keys(0, 1000) / 1000
        seconds = base + slope * context + times.prompt_seconds(decode, tokens, tokens * keys)
        seconds = max(seconds, times.least_seconds(decode))
        batch = StepBatch(decode, context if decode else 0, tokens, keys if tokens else 0)
        exact = seconds_through_all_stages(found, batch).total_seconds
        assert seconds == pytest.approx(exact, rel=0.01 if tokens else 1e-9)


def test_beyond_a_window_the_context_costs_less() -> None:
    def windowed(batch: StepBatch) -> float:
        return 1e-3 + 1e-6 * batch.decode * min(batch.context, 100)

    times = StepTimes(windowed, 50, Keys(window=100.0))
    engine = Engine([Rank(LIMITS[0], times)])
    (request,) = run(engine, [Request(0.0, 60, 101)])
    decode = sum(windowed(StepBatch(1, 60 + done)) for done in range(100))
    assert request.finish - request.first == pytest.approx(decode)


@pytest.mark.parametrize("replicas", [1, 20])
def test_at_a_light_load_the_simulation_and_the_estimate_agree(replicas: int) -> None:
    one = deployment("llama-3.1-70b", ServingLayout(tp=4, replicas=replicas))
    traffic = Traffic(1000, 200, None, 0.05 * replicas)
    found, expected = statistics(one, traffic), estimate_deployment(one, traffic)
    assert found.ttft_seconds.mean == pytest.approx(expected.ttft_seconds, rel=0.1)
    assert found.tpot_seconds.mean == pytest.approx(expected.tpot_seconds, rel=0.02)
    assert found.requests_per_second == pytest.approx(0.05 * replicas, rel=0.1)
    assert found.preemptions == 0


def test_bursts_and_spread_lengths_raise_the_99th_percentile_more_than_the_median() -> None:
    one = deployment("llama-3.1-70b", ServingLayout(tp=4))
    lengths = Lengths(1.0, 1.0)
    even = statistics(one, Traffic(1000, 200, None, 4.0))
    spread = statistics(one, Traffic(1000, 200, None, 4.0, 0.2, lengths))
    tail, even_tail = (one.ttft_seconds.p99 / one.ttft_seconds.p50 for one in (spread, even))
    assert tail > 1.5 * even_tail
    assert simulate(one, Traffic(1000, 200, None, 4.0), Sampling(1)) != even
    assert simulate(one, Traffic(1000, 200, None, 4.0), Sampling(0)) == even


def test_cached_prefixes_shorten_the_time_to_the_first_token() -> None:
    one = deployment("llama-3.1-70b", ServingLayout(tp=4))
    cold = statistics(one, Traffic(8000, 50, None, 1.0))
    warm = statistics(one, Traffic(8000, 50, None, 1.0, prefix_hit=0.9))
    assert warm.ttft_seconds.p99 < 0.5 * cold.ttft_seconds.p99


def trace_of(requests: list[TraceRequest]) -> Trace:
    return Trace("trace", "", len(requests), requests[-1].seconds, tuple(requests))


@pytest.mark.parametrize("rate", [None, 2.0])
def test_a_sample_of_requests_is_drawn_once_and_read_repeatedly(rate: float | None) -> None:
    traffic = Traffic(1000, 200, request_rate=rate, lengths=Lengths(0.5, 1.0, 0.0))
    sample = RequestSample(traffic, 1)
    first, second = iter(sample), iter(sample)
    # Both readers alternate, and the second one is ahead at times.
    ahead = list(islice(second, 700))
    found = [next(first) for _ in range(500)]
    assert found == ahead[:500] == list(islice(RequestSample(traffic, 1), 500))
    assert found != list(islice(RequestSample(traffic, 2), 500))
    gaps, prompts, outputs = zip(*ahead, strict=True)
    assert fmean(gaps) == pytest.approx(0 if rate is None else 1, abs=0.15)
    assert fmean(prompts) == pytest.approx(1000, rel=0.1)
    assert fmean(outputs) == pytest.approx(200, rel=0.15)


def test_a_trace_is_replayed_at_the_rate_of_the_traffic() -> None:
    recorded = trace_of([TraceRequest(*one) for one in ((0.0, 30, 3), (4.0, 10, 1), (6.0, 20, 2))])
    traffic = Traffic(20, 2, trace=recorded)
    maker = request_maker(traffic, RequestSample(traffic, 0), 25, PrefixCaches(1e6))
    replayed = trace_arrivals(recorded, 2.0, maker)
    found = [(one.arrival, one.prompt, one.output) for one in islice(replayed, 4)]
    # Three requests take 1.5 s. The first one is cut to the 25 tokens that fit.
    assert found == [(0.0, 24, 1), (2 / 3, 10, 1), (1.0, 20, 2), (1.5, 24, 1)]


def test_prefixes_of_a_trace_are_found_until_the_cache_evicts_them() -> None:
    shared, other = (1, 2, 3), (4, 5)
    blocks = (shared, shared, other, shared)
    recorded = trace_of(
        [TraceRequest(float(n), 512 * len(one), 1, one) for n, one in enumerate(blocks)]
    )
    traffic = Traffic(1000, 1, trace=recorded)
    sample = RequestSample(traffic, 0)
    cached = {
        size: [maker(0.0).cached for _ in blocks]
        for size in (3, 5)
        for maker in [request_maker(traffic, sample, 10_000, PrefixCaches(512.0 * size))]
    }
    # At least the last token of a prompt is computed.
    assert cached == {3: [0, 1535, 0, 0], 5: [0, 1535, 0, 1535]}


def test_a_trace_with_prefixes_is_served_faster_than_one_without() -> None:
    one = deployment("llama-3.1-70b", ServingLayout(tp=4))
    lines = [(float(n), 8192, 20, tuple(range(16)) if n else ()) for n in range(50)]
    warm, cold = (
        statistics(one, Traffic(8192, 20, request_rate=1.0, trace=trace_of(recorded)))
        for recorded in (
            [TraceRequest(*line) for line in lines],
            [TraceRequest(*line[:3]) for line in lines],
        )
    )
    assert warm.ttft_seconds.p50 < 0.5 * cold.ttft_seconds.p50
    assert warm.requests_per_second == pytest.approx(1.0, rel=0.01)


def test_data_parallel_ranks_with_experts_wait_for_each_other() -> None:
    lone = statistics(deployment("deepseek-v3", ServingLayout(dp=8, ep=8)), Traffic(1000, 100, 1))
    full = statistics(deployment("deepseek-v3", ServingLayout(dp=8, ep=8)), Traffic(1000, 100, 8))
    assert full.tpot_seconds.mean > lone.tpot_seconds.mean
    assert full.tokens_per_second > 3 * lone.tokens_per_second


def test_a_service_that_fits_no_request_has_no_statistics() -> None:
    assert simulate(deployment("deepseek-v3", ServingLayout()), Traffic(1000, 100, 1)) is None
