"""Pools of a disaggregated service: transfer of the KV cache, and the two pools in sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.accuracy.serving.engines import ENGINES
from parc.backends.registry import engine as engine_of
from parc.compiler.cost.serving.deployment import Deployment, build_deployment
from parc.compiler.cost.serving.kv_transfer import transfer_bytes, transfer_seconds
from parc.compiler.cost.serving.simulation.engine import Engine
from parc.compiler.cost.serving.simulation.front_end import FrontEnd, serve
from parc.compiler.cost.serving.simulation.requests import RequestSample, open_arrivals
from parc.compiler.cost.serving.simulation.scheduler import Rank, Request
from parc.compiler.cost.serving.simulation.simulate import rank_limits, simulate
from parc.compiler.cost.serving.simulation.step_times import build_step_times
from parc.compiler.cost.serving.traffic import estimate_deployment
from parc.compiler.ir.serving import Pool, ServiceStatistics, ServingLayout, ServingSetup, Traffic
from parc.compiler.report.page.report_page import report_artifact
from parc.compiler.report.text.serving_tables import serving_estimate_text
from parc.compiler.report.text.summary import summary_text
from parc.compiler.resolve.resolve_traffic import traffic_of_pool
from tests.cli.specs import parc
from tests.cost.serving.serving_cases import cluster, model
from tests.search.serving_specs import plan_of, spec

WHOLE = Traffic(4000.0, 200.0, request_rate=4.0)


def deployed(pool: Pool, replicas: int = 1, name: str = "llama-3.1-8b") -> Deployment:
    setup = ServingSetup(ENGINES["vllm"], memory_share=0.92, max_running=256, pool=pool)
    setup = replace(setup, max_batched_tokens=8192)
    return build_deployment(
        model(name), cluster("dgx-h100"), setup, ServingLayout(tp=1, replicas=replicas)
    )


def statistics(one: Deployment, traffic: Traffic) -> ServiceStatistics:
    found = simulate(one, traffic)
    assert found is not None
    return found


def test_a_rank_receives_its_part_of_the_cache_over_its_own_adapter() -> None:
    whole = deployed("decode")
    # 32 layers, keys and values, 8 heads of 128, 2 bytes
    assert transfer_bytes(whole, WHOLE) == 32 * 2 * 8 * 128 * 2 * 4000
    split = replace(whole, layout=ServingLayout(tp=4))
    assert transfer_bytes(split, WHOLE) == transfer_bytes(whole, WHOLE) / 4
    links = whole.links
    rate = links.network_gb_per_s * 1e9
    expected = links.network_seconds + transfer_bytes(whole, WHOLE) / rate
    assert transfer_seconds(whole, WHOLE) == pytest.approx(expected)


def test_each_rank_receives_the_whole_latent_cache() -> None:
    one = deployed("decode", name="deepseek-v3")
    # 61 layers of 512 latent and 64 rotary elements, 2 bytes
    assert transfer_bytes(one, WHOLE) == 61 * 576 * 2 * 4000
    split = replace(one, layout=ServingLayout(tp=8))
    assert transfer_bytes(split, WHOLE) == transfer_bytes(one, WHOLE)


@pytest.mark.parametrize("pool", ["both", "prefill"])
def test_only_the_decode_pool_waits_for_a_transfer(pool: Pool) -> None:
    assert transfer_seconds(deployed(pool), WHOLE) == 0.0


def test_the_first_token_of_the_decode_pool_needs_the_transfer_and_a_step() -> None:
    pool, traffic = deployed("decode"), traffic_of_pool("decode", WHOLE)
    light = replace(traffic, request_rate=0.1)
    found = estimate_deployment(pool, light)
    least = transfer_seconds(pool, light) + found.decode.total_seconds
    least += pool.engine.arrivals.front_seconds
    assert least < found.ttft_seconds < least + found.decode.total_seconds
    simulated = statistics(pool, light)
    assert simulated.ttft_seconds.mean == pytest.approx(found.ttft_seconds, rel=0.1)


def test_slow_links_limit_the_rate_of_the_decode_pool() -> None:
    pool = deployed("decode")
    slow = replace(pool, links=replace(pool.links, network_gb_per_s=1.0))
    traffic = replace(traffic_of_pool("decode", WHOLE), request_rate=None, concurrency=64.0)
    seconds = transfer_seconds(slow, traffic)
    found = estimate_deployment(slow, traffic)
    assert found.requests_per_second == pytest.approx(1 / seconds, rel=0.01)
    simulated = statistics(slow, traffic)
    assert simulated.requests_per_second == pytest.approx(1 / seconds, rel=0.02)


def engines_of(one: Deployment, traffic: Traffic) -> list[Engine]:
    limits = rank_limits(one, traffic)
    own, _ = build_step_times(one, traffic.input_tokens)
    return [Engine([Rank(limits, own)]) for _ in range(one.layout.replicas)]


def in_sequence(
    prefill: Deployment, decode: Deployment, count: int
) -> list[tuple[Request, Request]]:
    """Serve requests in two pools; return (request of the first pool, of the second) pairs."""
    first, second = traffic_of_pool("prefill", WHOLE), traffic_of_pool("decode", WHOLE)
    arrivals = prefill.engine.arrivals
    transfer = transfer_seconds(decode, second)
    fronts = (
        FrontEnd(arrivals.front_seconds, 0.0),
        FrontEnd(arrivals.front_seconds + transfer, transfer / decode.layout.replicas),
    )
    asked = open_arrivals(4.0, RequestSample(WHOLE, 1), lambda now: Request(now, 4000, 1))
    sent: dict[int, Request] = {}

    def handed_over() -> Iterator[Request]:
        done = serve(engines_of(prefill, first), fronts[0], asked)
        for _, request in zip(range(count), done, strict=False):
            following = Request(request.finish, 4000, 200, 3999)
            sent[id(following)] = request
            yield following

    ended = list(serve(engines_of(decode, second), fronts[1], handed_over()))
    return [(sent[id(request)], request) for request in ended]


def test_requests_pass_both_pools_once_and_in_order() -> None:
    pairs = in_sequence(deployed("prefill", 2), deployed("decode", 2), 600)
    assert len(pairs) == len({id(first) for first, _ in pairs}) == 600
    transfer = transfer_seconds(deployed("decode", 2), WHOLE)
    for first, second in pairs:
        assert first.arrival < first.finish == second.arrival
        assert second.arrival + transfer < second.first < second.finish


def test_littles_law_holds_in_the_sequence_of_the_pools() -> None:
    pairs = in_sequence(deployed("prefill", 2), deployed("decode", 2), 600)
    start, end = pairs[0][0].arrival, max(second.finish for _, second in pairs)
    events = sorted(
        (time, change)
        for first, second in pairs
        for time, change in ((first.arrival, 1), (second.finish, -1))
    )
    present = area = 0.0
    before = min(start, events[0][0])
    for time, change in events:
        area += present * (time - before)
        present, before = present + change, time
    seconds = end - events[0][0]
    rate, time = 600 / seconds, fmean(second.finish - first.arrival for first, second in pairs)
    assert area / seconds == pytest.approx(rate * time)


def test_pools_that_are_planned_apart_keep_their_latencies_in_sequence() -> None:
    prefill, decode = deployed("prefill", 2), deployed("decode", 2)
    pairs = in_sequence(prefill, decode, 1500)
    alone = (
        statistics(prefill, traffic_of_pool("prefill", WHOLE)),
        statistics(decode, traffic_of_pool("decode", WHOLE)),
    )
    ttft = fmean(second.first - first.arrival for first, second in pairs)
    assert ttft == pytest.approx(sum(one.ttft_seconds.mean for one in alone), rel=0.05)
    tpot = fmean((second.finish - second.first) / 199 for _, second in pairs)
    assert tpot == pytest.approx(alone[1].tpot_seconds.mean, rel=0.05)


def test_ideally_split_pools_have_the_throughput_of_engines_that_serve_whole_requests() -> None:
    busy = replace(WHOLE, request_rate=None, concurrency=64.0)
    whole = estimate_deployment(deployed("both"), busy)
    decode = deployed("decode")
    free = replace(decode, links=replace(decode.links, network_gb_per_s=1e9, network_seconds=0.0))
    rates = (
        estimate_deployment(deployed("prefill"), traffic_of_pool("prefill", busy)),
        # as many requests decode in the decode pool as in an engine that also runs prompts
        estimate_deployment(
            free, replace(traffic_of_pool("decode", busy), concurrency=whole.running)
        ),
    )
    together = 1 / sum(1 / one.requests_per_second for one in rates)
    # Steps that contain prompts and decoding requests read the weights once instead of twice.
    assert 0.93 * whole.requests_per_second < together <= whole.requests_per_second


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_commands_of_a_pool_import_as_the_pool(engine: str, tmp_path: Path) -> None:
    for pool in ("prefill", "decode"):
        tree = spec("llama-3.1-8b", "dgx-h100", job={"pool": pool}, layout={"tp": 4})
        (script,) = engine_of(engine).emit_serving(plan_of(tree | {"emit": [engine]}))
        path = tmp_path / "serve.sh"
        path.write_text(script.text)
        fragment = parc("import", f"{engine}-args", str(path)).stdout
        assert f"  pool: {pool}\n" in fragment
        assert "not carried over" not in fragment


def test_a_prefill_plan_counts_prompts_and_has_no_time_per_token() -> None:
    job = {
        "pool": "prefill",
        "traffic": {"input_tokens": 4000, "output_tokens": 500, "request_rate": 8},
    }
    plan = plan_of(spec("llama-3.1-8b", "dgx-h100", job=job, layout={"tp": 4}))
    for text in (summary_text(plan), serving_estimate_text(plan)):
        assert "prompts/s" in text
        assert "tokens/s" not in text
        assert "tpot " not in text.lower()
        assert "time per token" not in text
    page = report_artifact(plan).text
    assert "prompts/s" in page
    assert "time per token (estimate)" not in page
