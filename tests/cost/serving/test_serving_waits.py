"""Queueing delay before the prefill of a request, by arrival process."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import log, sqrt
from random import Random

import pytest

from benchmarks.accuracy.serving.engines import ENGINES
from parc.compiler.cost.serving.common_steps import CommonSteps, mean_waves
from parc.compiler.cost.serving.deployment import build_deployment
from parc.compiler.cost.serving.request_waits import (
    RequestQueue,
    StepSeconds,
    closed_loop_queue,
    poisson_queue,
    seconds_outside_steps,
    seconds_until_prompt_runs,
)
from parc.compiler.cost.serving.simulation.simulate import Sampling, simulate
from parc.compiler.cost.serving.traffic import estimate_deployment, estimate_serving
from parc.compiler.ir.engine_constants import EngineConstants
from parc.compiler.ir.serving import (
    Lengths,
    ServingEstimate,
    ServingLayout,
    ServingSetup,
    Traffic,
)
from tests.cost.serving.serving_cases import cluster, model


def served(engine: str, traffic: Traffic) -> ServingEstimate:
    setup = ServingSetup(weights="fp8", kv="fp8", engine=ENGINES[engine])
    layout = ServingLayout(tp=4)
    return estimate_serving(model("llama-3.1-70b"), cluster("hgx-h200"), setup, layout, traffic)


DENSE = model("llama-3.1-8b")
EQUAL = Lengths(range_ratio=0.0)


def without_delays(engine: str, **delays: float) -> EngineConstants:
    """Return an engine whose arrivals have only the given delays."""
    none = dict.fromkeys(
        ("front_seconds", "admission_seconds", "poll_steps", "prompt_expert_seconds"), 0.0
    )
    found = ENGINES[engine]
    return replace(found, arrivals=replace(found.arrivals, **(none | delays)))


def own_prompt_seconds(engine: str, found: ServingEstimate) -> float:
    """Return the time of the step with the prompt of a request that is alone."""
    decode = 0.0 if ENGINES[engine].scheduling.prefill_first else found.decode.total_seconds
    return found.prefill_seconds + decode


@pytest.mark.parametrize("engine", ENGINES)
def test_a_request_that_is_alone_waits_for_the_front_end_only(engine: str) -> None:
    found = served(engine, Traffic(1000, 500, concurrency=1))
    own = own_prompt_seconds(engine, found)
    assert found.ttft_seconds == pytest.approx(own + ENGINES[engine].arrivals.front_seconds)


@pytest.mark.parametrize("engine", ENGINES)
def test_with_rare_arrivals_no_step_is_waited_for(engine: str) -> None:
    found = served(engine, Traffic(1000, 500, request_rate=1e-3))
    own = own_prompt_seconds(engine, found)
    assert found.ttft_seconds == pytest.approx(
        own + ENGINES[engine].arrivals.front_seconds, rel=1e-2
    )


@pytest.mark.parametrize("rate", [0.3, 3.0])
def test_short_answers_wait_for_prompts_of_others_as_in_the_simulation(rate: float) -> None:
    setup = ServingSetup(weights="bf16", kv="bf16", engine=ENGINES["vllm"])
    deployment = build_deployment(
        model("llama-3.1-70b"), cluster("hgx-h200"), setup, ServingLayout(tp=4)
    )
    traffic = Traffic(1000, 30, request_rate=rate, lengths=EQUAL)
    found = estimate_deployment(deployment, traffic)
    simulated = simulate(deployment, traffic, Sampling(requests=3000))
    assert simulated is not None
    assert found.ttft_seconds == pytest.approx(simulated.ttft_seconds.mean, rel=0.04)
    # At the higher rate, the time would be 20 % too short without the prompts of other requests.
    assert found.tpot_seconds == pytest.approx(simulated.tpot_seconds.mean, rel=0.05)


@pytest.mark.parametrize("engine", ENGINES)
def test_more_requests_wait_longer(engine: str) -> None:
    closed = [served(engine, Traffic(1000, 500, count)).ttft_seconds for count in (2, 8, 32, 128)]
    rates = [0.5, 2.0, 4.0, 8.0]
    opened = [served(engine, Traffic(1000, 500, None, rate)).ttft_seconds for rate in rates]
    assert all(few < many for few, many in pairwise(closed))
    assert all(few < many for few, many in pairwise(opened))


def test_prompts_are_served_no_faster_than_they_can_be_computed() -> None:
    for engine in ENGINES:
        found = served(engine, Traffic(8000, 2, concurrency=64))
        assert found.requests_per_second * found.prefill_seconds <= 1.001


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_without_decoding_the_wait_is_that_of_one_server_with_constant_service(engine: str) -> None:
    one_prompt = ServingSetup(engine=without_delays(engine), max_batched_tokens=1000)
    for load, prompts in ((0.0, 0.0), (0.5, 0.5), (0.8, 2.0), (100.0, 0.95 / 0.1)):
        queue = poisson_queue(one_prompt, Traffic(1000, 1, lengths=EQUAL), rate=load / 3.0)
        found = seconds_until_prompt_runs(one_prompt, DENSE, queue, StepSeconds(3.0, 0.0, 0.0))
        assert found == pytest.approx(3.0 * prompts)


def test_prompts_of_different_lengths_wait_as_at_one_server_with_general_service() -> None:
    one_prompt = ServingSetup(engine=without_delays("vllm"), max_batched_tokens=1000)
    queue = poisson_queue(one_prompt, Traffic(1000, 1, lengths=Lengths(input_cv=2.0)), rate=0.5)
    # Pollaczek and Khinchine: load x mean x (1 + cv^2) / (2 (1 - load))
    found = seconds_until_prompt_runs(one_prompt, DENSE, queue, StepSeconds(1.0, 0.0, 0.0))
    assert found == pytest.approx(0.5 * 5 / (2 * 0.5))


@pytest.mark.parametrize("step_tokens", [500, 1000])
def test_if_prompts_run_first_the_wait_is_that_of_a_server_with_vacations(step_tokens: int) -> None:
    # The engine decodes for a step of d = 2 s whenever no prompt of p = 3 s waits. Half of it is
    # left on average: d / 2 + load x p / (2 (1 - load)).
    one_prompt = ServingSetup(engine=without_delays("sglang"), max_batched_tokens=step_tokens)
    for load in (0.0, 0.3, 0.8):
        queue = poisson_queue(one_prompt, Traffic(1000, 500, lengths=EQUAL), rate=load / 3.0)
        found = seconds_until_prompt_runs(one_prompt, DENSE, queue, StepSeconds(3.0, 2.0, 2.0))
        assert found == pytest.approx(1.0 + load * 3.0 / (2 * (1 - load)))


SERVICES = (
    ("llama-3.1-8b", "hgx-h100", 1, 2000, 200, 16),
    ("qwen3-32b", "hgx-h100", 2, 1000, 500, 32),
    ("llama-3.1-70b", "hgx-h200", 4, 300, 200, 8),
    ("llama-3.1-70b", "hgx-b200", 8, 4000, 500, 16),
    ("llama-3.1-70b", "hgx-b200", 8, 2000, 200, 64),
)


@pytest.mark.parametrize("name", ["vllm", "sglang"])
@pytest.mark.parametrize("is_open", [True, False])
def test_the_wait_is_that_of_the_event_simulation(is_open: bool, name: str) -> None:
    # The front end takes longer than some steps, so that requests arrive at any time in a step.
    engine = without_delays(name, front_seconds=0.023)
    setup = ServingSetup(weights="fp8", kv="bf16", engine=engine)
    ratios = []
    for name, node, tp, prompt, answer, concurrency in SERVICES:
        traffic = Traffic(prompt, answer, concurrency, lengths=Lengths(input_cv=0.1, output_cv=0.4))
        deployment = build_deployment(model(name), cluster(node), setup, ServingLayout(tp=tp))
        found = estimate_deployment(deployment, traffic)
        # The first round of a benchmark starts with all requests, which the simulation leaves out.
        burst = 0.05 * (concurrency - 1) * found.prefill_seconds
        if is_open:
            rate = 0.9 * found.requests_per_second
            traffic = replace(traffic, concurrency=None, request_rate=rate)
            found, burst = estimate_deployment(deployment, traffic), 0.0
        simulated = simulate(deployment, traffic, Sampling(requests=400))
        assert simulated is not None
        ratios.append((found.ttft_seconds - burst) / simulated.ttft_seconds.mean)
        assert found.tpot_seconds == pytest.approx(simulated.tpot_seconds.mean, rel=0.1)
    assert all(abs(ratio - 1) < 0.15 for ratio in ratios), ratios
    assert sum(abs(ratio - 1) for ratio in ratios) / len(ratios) < 0.08, ratios


def test_requests_of_equal_length_wait_for_steps_with_prompts() -> None:
    equal, unequal = (
        served("vllm", Traffic(4000, 500, 8, lengths=Lengths(range_ratio=ratio)))
        for ratio in (0.0, 0.1)
    )
    assert equal.ttft_seconds > unequal.ttft_seconds + 0.4 * equal.prefill_seconds
    assert equal.tpot_seconds == pytest.approx(unequal.tpot_seconds, rel=0.05)


def test_the_routed_experts_of_all_layers_delay_the_first_token() -> None:
    experts = model("deepseek-v3")
    setup = ServingSetup(engine=without_delays("sglang", prompt_expert_seconds=1e-6))
    assert seconds_outside_steps(setup, experts) == pytest.approx(1e-6 * 58 * 256)
    assert seconds_outside_steps(setup, DENSE) == 0
    assert seconds_outside_steps(replace(setup, prefill_apart=True), experts) == 0


def queue_of(
    engine: str, traffic: Traffic, ranks: float = 1, step_tokens: int | None = None
) -> RequestQueue:
    setup = ServingSetup(engine=ENGINES[engine], max_batched_tokens=step_tokens)
    return closed_loop_queue(setup, traffic, ranks, traffic.concurrency or 1.0)


def test_a_front_end_serves_all_data_parallel_ranks() -> None:
    one, four = (queue_of("vllm", Traffic(1000, 500, 8), dp) for dp in (1, 4))
    assert (one.arrivals, four.arrivals) == (7.0, 31.0)
    assert one.prompts == four.prompts


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("cv", [0.0, 1e-4, 0.1])
def test_every_other_request_runs_one_prompt_per_request(engine: str, cv: float) -> None:
    traffic = Traffic(1000, 500, 64, lengths=Lengths(output_cv=cv))
    queue = queue_of(engine, traffic)
    assert queue.prompts + queue.prompts_while_decoding(64) == pytest.approx(63)


def test_half_of_the_prompts_precede_a_request_in_one_of_ten_rounds() -> None:
    assert queue_of("vllm", Traffic(1000, 500, 64)).prompts == pytest.approx(0.05 * 63)


def test_equal_requests_stay_together_if_prompts_run_first() -> None:
    # 64 prompts in 8 steps of 8: a request waits for (64 + 8) / 2 prompts, its own included.
    queue = queue_of("sglang", Traffic(1000, 500, 64), step_tokens=8000)
    assert queue.prompts == pytest.approx(0.1 * 63 / 2 + 0.9 * 35)
    assert queue.spread == 0


def test_requests_of_different_lengths_do_not_stay_together() -> None:
    together = queue_of("sglang", Traffic(1000, 500, 64))
    apart = queue_of("sglang", Traffic(1000, 500, 64, lengths=Lengths(output_cv=0.5)))
    assert apart.prompts == pytest.approx(0.05 * 63)
    assert together.prompts > 8 * apart.prompts


def test_an_option_that_delays_requests_does_so_only_if_the_engine_is_busy() -> None:
    engine = ENGINES["vllm"]
    slow = replace(engine, arrivals=replace(engine.arrivals, option_steps=10.0))
    alone, many = (
        closed_loop_queue(ServingSetup(engine=slow), Traffic(1000, 500), 1, present).steps
        - closed_loop_queue(ServingSetup(engine=engine), Traffic(1000, 500), 1, present).steps
        for present in (1, 100)
    )
    assert alone == 0
    assert many == pytest.approx(9.9)


def test_every_wait_has_its_price() -> None:
    engine = without_delays("vllm", front_seconds=1.0, admission_seconds=0.5)
    queue = RequestQueue(prompts=3, arrivals=4, steps=5)
    seconds = StepSeconds(prefill=10.0, decode=100.0, step=100.0)
    found = seconds_until_prompt_runs(ServingSetup(engine=engine), DENSE, queue, seconds)
    # One half of the running step is left when the request arrives.
    assert found == 1.0 + 4 * 0.5 + 5.5 * 100.0 + 3 * 10.0


@pytest.mark.parametrize("variation", [0.0, 0.8])
@pytest.mark.parametrize("rate", [2.0, 8.0])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_data_parallel_ranks_delay_each_other_as_in_the_simulation(
    rate: float, variation: float, engine: str
) -> None:
    setup = ServingSetup(weights="fp8", kv="bf16", engine=ENGINES[engine])
    layout = ServingLayout(1, dp=8, ep=8)
    asked = (model("qwen3-235b-a22b"), cluster("hgx-h200"), setup, layout)
    lengths = Lengths(range_ratio=0.0, input_cv=variation, output_cv=variation)
    deployment, traffic = build_deployment(*asked), Traffic(2000, 100, None, rate, lengths=lengths)
    found = estimate_deployment(deployment, traffic)
    simulated = simulate(deployment, traffic, Sampling(requests=1000))
    assert simulated is not None
    assert found.ttft_seconds == pytest.approx(simulated.ttft_seconds.mean, rel=0.2)
    assert found.tpot_seconds == pytest.approx(simulated.tpot_seconds.mean, rel=0.2)


@pytest.mark.parametrize(("prompt", "concurrency"), [(2000, 32), (8000, 64)])
def test_data_parallel_ranks_of_a_closed_loop_have_prompts_in_different_steps(
    prompt: int, concurrency: int
) -> None:
    setup = ServingSetup(weights="fp8", kv="bf16", engine=ENGINES["vllm"])
    layout = ServingLayout(1, dp=8, ep=8)
    asked = (model("qwen3-235b-a22b"), cluster("hgx-h200"), setup, layout)
    traffic = Traffic(prompt, 200, concurrency, lengths=Lengths(range_ratio=0.3))
    deployment = build_deployment(*asked)
    found = estimate_deployment(deployment, traffic)
    simulated = simulate(deployment, traffic, Sampling(requests=600))
    assert simulated is not None
    assert found.tpot_seconds == pytest.approx(simulated.tpot_seconds.mean, rel=0.05)
    assert found.tokens_per_second == pytest.approx(simulated.tokens_per_second, rel=0.05)
    # Equal requests start together in all rounds, so that the ranks have prompts in the same steps.
    equal = estimate_deployment(deployment, replace(traffic, lengths=EQUAL))
    assert equal.tpot_seconds < 0.8 * found.tpot_seconds


def test_a_single_request_does_not_wait_for_prompts_of_idle_ranks() -> None:
    setup = ServingSetup(weights="fp8", kv="bf16", engine=without_delays("vllm"))
    layout = ServingLayout(1, dp=8, ep=8)
    asked = (model("qwen3-235b-a22b"), cluster("hgx-h200"), setup, layout)
    for lengths in (EQUAL, Lengths(range_ratio=0.1)):
        deployment, traffic = build_deployment(*asked), Traffic(2000, 100, 1.0, lengths=lengths)
        found = estimate_deployment(deployment, traffic)
        simulated = simulate(deployment, traffic, Sampling(requests=20))
        assert simulated is not None
        assert found.ttft_seconds == pytest.approx(simulated.ttft_seconds.mean, rel=0.1)


def test_an_option_that_holds_prompts_back_aligns_the_ranks() -> None:
    engine, traffic = ENGINES["trtllm"], Traffic(1000, 500, lengths=Lengths(range_ratio=0.1))
    waiting = replace(engine, arrivals=replace(engine.arrivals, option_steps=10.0))
    aligned = [
        closed_loop_queue(ServingSetup(engine=one), traffic, 8, 4).aligned_starts
        for one in (engine, waiting)
    ]
    assert aligned == [False, True]


def test_the_mean_number_of_waves_follows_from_the_poisson_distribution() -> None:
    random = Random(3)
    for prompts, ranks in ((0.5, 8), (6.0, 4), (50.0, 8)):
        counts = []
        for _ in range(20_000):
            number, passed = 0, random.expovariate(1.0)
            while passed < prompts:
                number, passed = number + 1, passed + random.expovariate(1.0)
            counts.append(number)
        whole = sum(number // ranks for number in counts) / len(counts)
        started = sum(-(-number // ranks) for number in counts) / len(counts)
        assert mean_waves(prompts, ranks) == pytest.approx(started, rel=0.02)
        assert mean_waves(prompts, ranks, complete=True) == pytest.approx(whole, rel=0.03, abs=0.01)


def test_the_slowest_of_several_prompts_takes_longer_if_their_lengths_differ() -> None:
    varied = CommonSteps(8, 1.0, 0.0, 100.0, Lengths(input_cv=0.5, range_ratio=0.0), 0.0)
    equal = replace(varied, lengths=EQUAL)
    assert equal.slowest_of(8) == pytest.approx(1.0)
    # Mean maximum of eight lognormal lengths with a coefficient of variation of 0.5.
    random, sigma = Random(1), sqrt(log(1.25))
    samples = [
        max(random.lognormvariate(-(sigma**2) / 2, sigma) for _ in range(8)) for _ in range(9000)
    ]
    assert varied.slowest_of(8) == pytest.approx(sum(samples) / len(samples), rel=0.03)


@pytest.mark.parametrize("prompts", [1, 5, 8])
@pytest.mark.parametrize(("most", "quadratic"), [(0.6, 0.0), (1.3, 0.35), (100.0, 0.8)])
def test_the_slowest_prompt_is_that_of_samples_with_parts_of_prompts_and_attention(
    most: float, quadratic: float, prompts: int
) -> None:
    random, sigma = Random(2), sqrt(log(1.25))
    varied = CommonSteps(8, 1.0, 0.0, most, Lengths(input_cv=0.5, range_ratio=0.0), quadratic)

    def seconds() -> float:
        length = min(random.lognormvariate(-(sigma**2) / 2, sigma), most)
        return (1 - quadratic) * length + quadratic * length**2

    slowest = sum(max(seconds() for _ in range(prompts)) for _ in range(20_000))
    mean = sum(seconds() for _ in range(20_000))
    assert varied.slowest_of(prompts) == pytest.approx(slowest / mean, rel=0.03)


@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_a_prompt_that_fills_several_steps_waits_for_decode_steps_and_prompts(rate: float) -> None:
    setup = ServingSetup(weights="fp8", kv="bf16", engine=ENGINES["vllm"], max_batched_tokens=512)
    asked = (model("llama-3.1-70b"), cluster("hgx-h100"), setup, ServingLayout(4))
    deployment, traffic = build_deployment(*asked), Traffic(4000, 200, None, rate, lengths=EQUAL)
    found = estimate_deployment(deployment, traffic)
    simulated = simulate(deployment, traffic, Sampling(requests=500))
    assert simulated is not None
    assert found.ttft_seconds == pytest.approx(simulated.ttft_seconds.mean, rel=0.1)
    chunks = 4000 / 512
    assert found.ttft_seconds > found.prefill_seconds + (chunks - 1) * found.decode.total_seconds


@pytest.mark.parametrize(("rate", "prompts"), [(5.0, 500), (40.0, 128), (2.0, 4000)])
def test_prompts_of_their_own_steps_delay_decoding_as_in_the_simulation(
    rate: float, prompts: int
) -> None:
    estimates = []
    for prefill_first in (True, False):
        found = ENGINES["sglang"]
        scheduling = replace(found.scheduling, prefill_first=prefill_first)
        engine = replace(found, scheduling=scheduling)
        setup = ServingSetup(weights="fp8", kv="bf16", engine=engine)
        asked = (model("llama-3.1-70b"), cluster("hgx-h200"), setup, ServingLayout(4))
        deployment, traffic = build_deployment(*asked), Traffic(prompts, 100, None, rate)
        estimate = estimate_deployment(deployment, traffic)
        simulated = simulate(deployment, traffic, Sampling(requests=3000))
        assert simulated is not None
        assert estimate.tpot_seconds == pytest.approx(simulated.tpot_seconds.mean, rel=0.12)
        assert estimate.ttft_seconds == pytest.approx(simulated.ttft_seconds.mean, rel=0.12)
        estimates.append(estimate)
    # The fixed part of a step counts twice for prompts that run in steps of their own.
    first, mixed = (one.tpot_seconds for one in estimates)
    assert first / mixed > {128: 1.15, 500: 1.01, 4000: 0.99}[prompts]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_prompts_that_arrive_during_the_own_prompt_delay_the_first_tokens(engine: str) -> None:
    # A prompt takes as long as 100 steps, and another one follows it in a quarter of all cases.
    setup = ServingSetup(weights="fp8", kv="bf16", engine=ENGINES[engine])
    asked = (model("qwen3-32b"), cluster("hgx-h100"), setup, ServingLayout(2))
    deployment, traffic = build_deployment(*asked), Traffic(16000, 100, None, 0.24, lengths=EQUAL)
    found = estimate_deployment(deployment, traffic)
    simulated = simulate(deployment, traffic, Sampling(requests=3000))
    assert simulated is not None
    assert found.tpot_seconds == pytest.approx(simulated.tpot_seconds.mean, rel=0.1)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_long_prompts_delay_others_more_because_attention_grows_with_their_square(
    engine: str,
) -> None:
    setup = ServingSetup(weights="fp8", kv="bf16", engine=ENGINES[engine])
    asked = (model("llama-3.1-8b"), cluster("hgx-h100"), setup, ServingLayout())
    lengths = Lengths(range_ratio=0.0, input_cv=0.8, output_cv=0.8)
    deployment, traffic = build_deployment(*asked), Traffic(12000, 300, None, 0.5, lengths=lengths)
    found = estimate_deployment(deployment, traffic)
    simulated = simulate(deployment, traffic, Sampling(requests=4000))
    assert simulated is not None
    assert found.ttft_seconds == pytest.approx(simulated.ttft_seconds.mean, rel=0.2)
