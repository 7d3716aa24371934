"""Simulations that a search runs: none whose result changes nothing."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from parc.compiler.cost.serving.simulation.simulate import Sampling, simulate
from parc.compiler.evaluate import evaluate_service
from parc.compiler.search.simulate_finalists import SAMPLES
from tests.search.serving_specs import CHAT, Tree, plan_of, spec

LENGTHS = {key: value for key, value in CHAT.items() if key != "concurrency"}


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Number of simulations of each sample, none of which is cached from another test."""
    counts: Counter[int] = Counter()

    def counted(deployment: Any, traffic: Any, sampling: Sampling, *more: Any) -> Any:
        counts[sampling.seed] += 1
        # Reports show the queues of the first sample.
        assert sampling.records == (sampling.seed == SAMPLES[0])
        return simulate(deployment, traffic, sampling, *more)

    cached = cache(evaluate_service._simulate.__wrapped__)
    monkeypatch.setattr(evaluate_service, "simulate", counted)
    monkeypatch.setattr(evaluate_service, "_simulate", cached)
    return counts


def served(load: dict[str, float], goals: Tree) -> Tree:
    traffic = {**LENGTHS, **load}
    return spec("llama-3.1-8b", "dgx-h100", job={"traffic": traffic}, goals=goals)


@pytest.mark.parametrize(
    ("load", "goals"),
    [
        # With a given concurrency, closed-form formulas check limits on means.
        ({"concurrency": 64}, {"tpot": "50ms", "ttft": "5s"}),
        ({"concurrency": 64}, {"maximize": "throughput"}),
        ({"request_rate": 4.0}, {}),
    ],
)
def test_a_service_without_limits_for_the_simulation_is_simulated_once_for_the_report(
    load: dict[str, float], goals: Tree, seeds: Counter[int]
) -> None:
    plan = plan_of(served(load, goals))
    assert plan.estimate.simulated is not None
    assert plan.estimate.simulated.tokens_per_second > 0
    assert seeds == {SAMPLES[0]: 1}


@pytest.mark.parametrize(
    ("load", "goals"),
    [
        ({"concurrency": 64}, {"tpot": {"p90": "50ms"}}),
        ({"request_rate": 4.0}, {"tpot": "50ms"}),
        ({"request_rate": 4.0}, {"tpot": "50ms", "ttft": "2s", "goodput": "90%"}),
    ],
)
def test_limits_for_the_simulation_hold_in_each_sample(
    load: dict[str, float], goals: Tree, seeds: Counter[int]
) -> None:
    plan = plan_of(served(load, goals))
    assert plan.estimate.simulated is not None
    assert plan.estimate.simulated.queue.mean > 0  # the first sample
    assert set(seeds) == set(SAMPLES)


def test_simulations_with_and_without_records_have_the_same_latencies() -> None:
    plan = plan_of(served({"request_rate": 40.0}, {"maximize": "throughput"}))
    problem = plan.problem
    deployment = evaluate_service.build_deployment(
        problem.model, problem.cluster, problem.service.setup, plan.layout
    )
    one, other = (
        simulate(deployment, problem.service.traffic, Sampling(3, records=records))
        for records in (True, False)
    )
    assert one is not None
    assert other is not None
    assert (one.ttft_seconds, one.tpot_seconds) == (other.ttft_seconds, other.tpot_seconds)
    assert one.cache.mean > 0 == other.cache.mean
