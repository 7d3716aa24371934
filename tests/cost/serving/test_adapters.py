"""LoRA adapters and copies of the KV cache in host memory: memory, time, and loaded prefixes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.cost.serving.deployment import Deployment, build_deployment
from parc.compiler.cost.serving.shard import adapter_width, weights_bytes
from parc.compiler.cost.serving.simulation.requests import (
    PrefixCaches,
    RequestSample,
    request_maker,
)
from parc.compiler.cost.serving.steady_state import reloaded_bytes
from parc.compiler.cost.serving.step import StepBatch, engine_step_seconds
from parc.compiler.cost.serving.traffic import estimate_deployment
from parc.compiler.ir import ServingProblem
from parc.compiler.ir.serving import ServingLayout, Trace, TraceRequest, Traffic
from tests.search import serving_specs

TP_2 = ServingLayout(2)
TWO = {"one": "/one", "two": "/two"}


def problem(**job: object) -> ServingProblem:
    return serving_specs.problem_of(serving_specs.spec("llama-3.1-8b", "dgx-h100", job=job))


def deployed(found: ServingProblem) -> Deployment:
    return build_deployment(found.model, found.cluster, found.service.setup, TP_2)


def test_an_adapter_has_the_parameters_that_peft_counts() -> None:
    # peft prints this number of trainable parameters for r=16 and all linear layers.
    model = problem().model
    assert 16 * 32 * adapter_width(model, 1) == 41_943_040


def test_gpu_memory_stores_the_active_adapters_in_16_bit() -> None:
    plain, loaded = problem(), problem(lora={"adapters": TWO, "rank": 8, "active": 2})
    model = plain.model
    more = weights_bytes(model, TP_2, loaded.service.setup)
    more -= weights_bytes(model, TP_2, plain.service.setup)
    assert more == pytest.approx(2 * 2 * 8 * model.layers * adapter_width(model, 2))


def test_a_step_is_slower_with_more_adapters_of_a_larger_rank() -> None:
    batch = StepBatch(16, 1000)
    seconds = [
        engine_step_seconds(deployed(problem(**job)), batch).total_seconds
        for job in (
            {},
            {"lora": {"adapters": TWO, "active": 1, "rank": 8}},
            {"lora": {"adapters": TWO, "active": 2, "rank": 8}},
            {"lora": {"adapters": TWO, "active": 2, "rank": 64}},
        )
    ]
    assert seconds == sorted(set(seconds))


def test_prefixes_in_host_memory_are_loaded_instead_of_computed() -> None:
    found = problem(kv_offload={"size": "200GB", "prefix_hit": "50%"})
    deployment, traffic = deployed(found), found.service.traffic
    tokens = traffic.input_tokens / 2
    assert traffic.computed_input_tokens == tokens
    # 32 layers x 4 of 8 key-value heads x 128 x (key, value) x 2 bytes
    assert reloaded_bytes(deployment, traffic) == tokens * 32 * 4 * 128 * 2 * 2
    cold = estimate_deployment(deployment, replace(traffic, host_hit=0.0))
    warm = estimate_deployment(deployment, traffic)
    free = estimate_deployment(deployment, replace(traffic, host_hit=0.0, prefix_hit=0.5))
    assert free.ttft_seconds < warm.ttft_seconds < cold.ttft_seconds


def test_blocks_that_leave_gpu_memory_are_found_in_host_memory() -> None:
    def cached(host_tokens: float) -> list[tuple[int, float]]:
        requests = tuple(TraceRequest(n, 1025, 1, (2 * n % 4, 2 * n % 4 + 1)) for n in range(4))
        traffic = Traffic(1025, 1, trace=Trace("t", "", 4, 3.0, requests))
        sample = RequestSample(traffic, 0)
        make = request_maker(traffic, sample, 9999, PrefixCaches(1024, host_tokens, 0.001))
        return [(one.cached, one.delay) for one in (make(0.0) for _ in requests)]

    assert cached(0.0) == [(0, 0.0)] * 4
    assert cached(2048) == [(0, 0.0), (0, 0.0), (1024, 1.024), (1024, 1.024)]
