"""The layouts that are chosen: published advice, limits, and the count of what was dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.cost.serving_search import (
    ServingLimits,
    ServingTask,
    engine_layouts,
    search_serving,
)
from parc.compiler.ir.serving import ServingLayout, ServingSetup, Traffic
from tests.cost.serving_cases import cluster, model

FP8 = ServingSetup(weights="fp8", kv="fp8")
CHAT = Traffic(1000, 500, concurrency=64)


def task(name: str, node: str, nodes: int = 1, setup: ServingSetup = FP8) -> ServingTask:
    """Chat traffic on whole hosts."""
    return ServingTask(model(name), cluster(node, nodes), setup, CHAT)


def chosen(given: ServingTask) -> ServingLayout:
    """The first of the ranked."""
    best = search_serving(given).best
    assert best is not None
    return best.layout


@pytest.mark.parametrize("concurrency", [1, 16, 64, 256])
def test_llama_2_70b_on_four_a100_takes_all_four_as_tensor_ranks(concurrency: int) -> None:
    given = task("llama-2-70b", "dgx-a100", setup=ServingSetup())
    traffic = Traffic(1024, 512, concurrency=concurrency)
    assert chosen(replace(given, traffic=traffic, limits=ServingLimits(gpus=4))) == ServingLayout(4)


@pytest.mark.parametrize("goal", ["throughput", "latency", "fewest-gpus"])
def test_llama_405b_on_two_hosts_keeps_tensor_ranks_inside_a_host(goal: str) -> None:
    given = task("llama-3.1-405b", "hgx-h100", 2, ServingSetup())
    assert chosen(replace(given, goal=goal)) == ServingLayout(tp=8, pp=2)  # type: ignore[arg-type]


@pytest.mark.parametrize("node", ["l40s-8", "rtx-pro-6000-8"])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-32b", "llama-3.1-70b"])
def test_a_loaded_host_without_nvlink_has_no_tensor_ranks(name: str, node: str) -> None:
    given = replace(task(name, node), traffic=Traffic(1000, 500, concurrency=512))
    assert chosen(given).tp == 1


def test_deepseek_v3_under_load_spreads_attention_by_request_and_experts_by_rank() -> None:
    given = replace(task("deepseek-v3", "hgx-h200", 2), traffic=Traffic(2000, 500, 1024))
    layout = chosen(given)
    assert layout.dp >= 4
    assert layout.ep == 8


def test_latency_takes_wider_engines_than_throughput_under_load() -> None:
    given = replace(task("llama-3.1-8b", "hgx-h100"), traffic=Traffic(1000, 500, 1024))
    few = replace(given, goal="latency", traffic=Traffic(1000, 500, concurrency=1))
    assert chosen(few).tp > chosen(given).tp


def test_fewest_gpus_meet_every_limit_and_one_less_would_not() -> None:
    limits = ServingLimits(ttft_seconds=1.0, tpot_seconds=0.03)
    given = replace(
        task("llama-3.1-70b", "hgx-h100", 4),
        traffic=Traffic(1000, 500, request_rate=20.0),
        limits=limits,
        goal="fewest-gpus",
    )
    best = search_serving(given).best
    assert best is not None
    assert best.tpot_seconds <= 0.03
    assert best.ttft_seconds <= 1.0
    assert best.requests_per_second >= 0.97 * 20
    fewer = replace(given, limits=replace(limits, gpus=best.layout.gpus - 1))
    assert search_serving(fewer).best is None


def test_every_layout_is_ranked_or_counted_under_a_rule() -> None:
    given = task("deepseek-v3", "hgx-h200", 2)
    found = search_serving(given)
    layouts = list(engine_layouts(given.model, given.cluster, given.cluster.gpus))
    assert len(found.ranked) + sum(count for _, count in found.dropped) == len(layouts)


def test_experts_are_not_cut_across_the_blocks_that_share_a_scale() -> None:
    found = search_serving(task("qwen3-30b-a3b", "hgx-h100"))  # 768 wide, blocks of 128
    assert dict(found.dropped)["quantisation blocks do not divide the expert width"] > 0
    assert all(768 // one.layout.expert_tp % 128 == 0 for one in found.ranked)


def test_limits_that_nothing_meets_leave_nothing() -> None:
    given = replace(task("llama-3.1-70b", "hgx-h100"), limits=ServingLimits(tpot_seconds=1e-4))
    found = search_serving(given)
    assert found.best is None
    assert dict(found.dropped)["time per output token"] > 0


def test_ties_go_to_the_simpler_layout() -> None:
    found = search_serving(task("llama-3.1-8b", "hgx-h100"))
    first, best = found.ranked[0], max(one.tokens_per_second for one in found.ranked)
    assert first.tokens_per_second >= best / 1.03
    assert first.layout.pp == 1


def test_a_straddling_engine_is_dropped() -> None:
    given = replace(task("qwen3-32b", "hgx-h100", 2), limits=ServingLimits(gpus=12))
    found = search_serving(given)
    assert dict(found.dropped)["engine straddles hosts"] > 0
    assert all(8 % one.layout.engine_gpus == 0 for one in found.ranked)
