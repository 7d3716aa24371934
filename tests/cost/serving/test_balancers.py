"""Choice of the data-parallel rank of a simulated request: in turn, at random, or by load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pytest

from benchmarks.accuracy.serving.engines import ENGINES
from parc.compiler.cost.serving.deployment import build_deployment
from parc.compiler.cost.serving.simulation.engine import Engine
from parc.compiler.cost.serving.simulation.front_end import FrontEnd, create_balancer, serve
from parc.compiler.cost.serving.simulation.scheduler import Rank, RankLimits, Request
from parc.compiler.cost.serving.simulation.simulate import Sampling, front_end, simulate
from parc.compiler.cost.serving.simulation.step_times import StepTimes
from parc.compiler.cost.serving.step import StepBatch
from parc.compiler.ir.engine_constants import RankBalancer
from parc.compiler.ir.serving import (
    Lengths,
    Pool,
    ServiceStatistics,
    ServingLayout,
    ServingSetup,
    Traffic,
)
from tests.cost.serving.serving_cases import cluster, model

LIMITS = RankLimits(1000, 10_000, 1e9)
TRAFFIC = Traffic(2000, 300, request_rate=12, lengths=Lengths(input_cv=0.8, output_cv=0.8))


def seconds(batch: StepBatch) -> float:
    return 5e-3 + 1e-4 * batch.decode + 2e-5 * batch.prefill


def idle_engine(ranks: int) -> Engine:
    times = StepTimes(seconds, 100.0)
    return Engine([Rank(LIMITS, times) for _ in range(ranks)])


def waiting_after(name: RankBalancer, engines: Sequence[Engine], requests: int) -> list[list[int]]:
    """Return the indexes of the requests of each rank after all ``requests`` arrived at once."""
    asked = [Request(0.0, 10, 5 + index) for index in range(requests)]
    front = FrontEnd(0.0, 0.0, balancer=create_balancer(name, 1))
    next(serve(engines, front, iter(asked)))
    present = [[*rank.running, *rank.waiting] for engine in engines for rank in engine.ranks]
    ended = {id(one) for one in asked} - {id(one) for ranks in present for one in ranks}
    assert len(ended) == 1
    return [[one.output - 5 for one in ranks] for ranks in present]


def test_round_robin_gives_each_rank_every_nth_request() -> None:
    found = waiting_after("round_robin", [idle_engine(3)], 9)
    assert [sorted(one) for one in found] == [[3, 6], [1, 4, 7], [2, 5, 8]]


def test_round_robin_ignores_the_load_of_the_ranks() -> None:
    engine = idle_engine(2)
    # Requests with an even index take long, the others one token.
    asked = [Request(0.1 * index, 10, 1 if index % 2 else 500) for index in range(10)]
    front = FrontEnd(0.0, 0.0, balancer=create_balancer("round_robin"))
    list(islice(serve([engine], front, iter(asked)), 5))
    assert [len(rank.running) for rank in engine.ranks] == [5, 0]
    engine, front = idle_engine(2), FrontEnd(0.0, 0.0)
    list(islice(serve([engine], front, iter(asked)), 5))
    assert sorted(len(rank.running) for rank in engine.ranks) == [2, 3]


def test_several_engines_take_turns_by_their_load_and_each_has_turns_of_its_own() -> None:
    for name in ("round_robin", "random"):
        found = waiting_after(name, [idle_engine(2), idle_engine(2)], 40)
        first, second = (len(found[0]) + len(found[1]), len(found[2]) + len(found[3]))
        assert {first, second} <= {19, 20}
        if name == "round_robin":
            assert {len(one) for one in found} <= {9, 10}


def test_random_choices_are_uniform_and_repeat_with_the_seed() -> None:
    engine, count = idle_engine(4), 8000
    for balancer in (create_balancer("random", 5), create_balancer("random", 6)):
        chosen = Counter(id(balancer.choose_rank(engine)) for _ in range(count))
        expected = count / 4
        # The chi-squared statistic of 3 degrees of freedom is below 16.3 with 99.9 %.
        assert sum((chosen[id(one)] - expected) ** 2 / expected for one in engine.ranks) < 16.3
    first, again, other = (create_balancer("random", seed) for seed in (5, 5, 6))
    ranks = [first.choose_rank(engine) for _ in range(50)]
    assert ranks == [again.choose_rank(engine) for _ in range(50)]
    assert ranks != [other.choose_rank(engine) for _ in range(50)]


def statistics(balancer: RankBalancer, pool: Pool = "both", seed: int = 0) -> ServiceStatistics:
    engine = ENGINES["sglang"]
    field = "prefill_pool_balancer" if pool == "prefill" else "rank_balancer"
    scheduling = replace(engine.scheduling, **{field: balancer})
    setup = ServingSetup(
        weights="fp8", kv="fp8", engine=replace(engine, scheduling=scheduling), pool=pool
    )
    layout = ServingLayout(tp=2, dp=4, ep=8)
    deployment = build_deployment(model("deepseek-v3"), cluster("hgx-h200"), setup, layout)
    traffic = replace(TRAFFIC, output_tokens=1) if pool == "prefill" else TRAFFIC
    found = simulate(deployment, traffic, Sampling(seed))
    assert found is not None
    return found


@pytest.mark.parametrize("pool", ["both", "prefill"])
def test_random_choices_delay_requests_and_turns_do_not(pool: Pool) -> None:
    least, turn, random = (
        sum(statistics(name, pool, seed).ttft_seconds.p50 for seed in range(3))
        for name in ("least_loaded", "round_robin", "random")
    )
    assert turn == pytest.approx(least, rel=0.03)
    assert random > 1.08 * max(least, turn)


def test_the_balancer_is_that_of_the_engine_and_of_its_pool() -> None:
    for engine, pool, expected in (
        ("vllm", "both", "LeastLoaded"),
        ("trtllm", "both", "LeastLoaded"),
        ("sglang", "both", "RoundRobin"),
        ("sglang", "decode", "RoundRobin"),
        ("sglang", "prefill", "RandomRank"),
    ):
        setup = ServingSetup(weights="fp8", kv="fp8", engine=ENGINES[engine], pool=pool)
        layout = ServingLayout(tp=2, dp=4, ep=8)
        found = build_deployment(model("deepseek-v3"), cluster("hgx-h200"), setup, layout)
        assert type(front_end(found, TRAFFIC, 1).balancer).__name__ == expected
