"""Queueing delay before the prefill of a request, by arrival process."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.accuracy.serving.engines import ENGINES
from parc.compiler.cost.serving.request_waits import (
    RequestQueue,
    closed_loop_queue,
    poisson_queue,
    seconds_until_prompt_runs,
)
from parc.compiler.cost.serving.traffic import estimate_serving
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


@pytest.mark.parametrize("engine", ENGINES)
def test_a_request_that_is_alone_waits_for_the_front_end_only(engine: str) -> None:
    found = served(engine, Traffic(1000, 500, concurrency=1))
    own = found.prefill_seconds + found.decode.total_seconds
    assert found.ttft_seconds == pytest.approx(own + ENGINES[engine].arrivals.front_seconds)


@pytest.mark.parametrize("engine", ENGINES)
def test_with_rare_arrivals_half_a_step_is_waited_for(engine: str) -> None:
    found = served(engine, Traffic(1000, 500, request_rate=1e-3))
    own = found.prefill_seconds + 1.5 * found.decode.total_seconds
    assert found.ttft_seconds == pytest.approx(
        own + ENGINES[engine].arrivals.front_seconds, rel=1e-2
    )


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


def test_the_queue_of_open_arrivals_is_that_of_one_server_with_constant_service() -> None:
    assert poisson_queue(0.0, 1.0).prompts == 0
    assert poisson_queue(0.5, 1.0).prompts == pytest.approx(0.5)
    assert poisson_queue(100.0, 1.0).prompts == pytest.approx(0.95 / 0.1)


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
    arrivals = replace(
        ENGINES["vllm"].arrivals,
        front_seconds=1.0,
        admission_seconds=0.5,
        poll_steps=0.0,
    )
    queue = RequestQueue(prompts=3, arrivals=4, steps=5)
    assert (
        seconds_until_prompt_runs(arrivals, queue, 10.0, 100.0)
        == 1.0 + 4 * 0.5 + 5 * 100.0 + 3 * 10.0
    )
