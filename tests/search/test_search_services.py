"""The layouts that are chosen: published advice, limits, and the count of what was dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.backends.registry import engine
from parc.compiler.cost.serving.simulation.simulate import Sampling
from parc.compiler.evaluate.evaluate_service import (
    estimate_at,
    evaluate_service,
    first_missed_limit,
    rank_services,
    simulate_service,
)
from parc.compiler.evaluate.service_rules import service_rules
from parc.compiler.evaluate.simulated_limits import missed_in_simulation
from parc.compiler.ir import ServingLayout
from parc.compiler.search import search_serving_layouts
from parc.compiler.search.enumerate_serving_layouts import enumerate_serving_layouts
from parc.compiler.search.simulate_finalists import SAMPLES
from parc.compiler.topology.arrange_hosts import service_hosts
from tests.search.serving_specs import CHAT, Tree, codes, plan_of, planned, problem_of, spec
from tests.search.traced_layout import TracedLayout

FP8 = {"precision": "fp8", "kv_precision": "fp8"}
A100_4 = {"base": "dgx-a100", "gpus_per_node": 4}
THROUGHPUT = {"maximize": "throughput"}


def degrees(layout: ServingLayout) -> tuple[int, int, int, int, int]:
    return layout.tp, layout.pp, layout.dp, layout.ep, layout.replicas


def job(**changes: object) -> dict[str, object]:
    traffic = {**CHAT, **changes}
    return {"traffic": {key: value for key, value in traffic.items() if value is not None}}


@pytest.mark.parametrize("concurrency", [1, 16, 64, 256])
def test_llama_2_70b_on_four_a100_takes_all_four_as_tensor_ranks(concurrency: int) -> None:
    plan = plan_of(spec("llama-2-70b", A100_4, job=job(concurrency=concurrency), goals=THROUGHPUT))
    assert degrees(plan.layout) == (4, 1, 1, 1, 1)


@pytest.mark.parametrize("goal", ["throughput", "latency", "fewest-gpus"])
def test_llama_405b_on_two_hosts_keeps_tensor_ranks_inside_a_host(goal: str) -> None:
    plan = plan_of(spec("llama-3.1-405b", "hgx-h100", 2, goals={"maximize": goal}))
    assert degrees(plan.layout) == (8, 2, 1, 1, 1)


@pytest.mark.parametrize("node", ["l40s-8", "rtx-pro-6000-8"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-32b", "llama-3.1-70b"])
def test_a_loaded_host_without_nvlink_has_no_tensor_ranks_and_the_plan_says_why(
    model: str, node: str
) -> None:
    tree = spec(model, node, job={**FP8, **job(concurrency=512)}, goals=THROUGHPUT)
    plan = plan_of(tree)
    assert plan.layout.tp == 1
    assert "V30" in codes(tree)


def test_deepseek_v3_under_load_spreads_attention_by_request_and_experts_by_rank() -> None:
    traffic = job(input_tokens=2000, concurrency=2048)
    tree = spec("deepseek-v3", "hgx-h200", 2, job={**FP8, **traffic}, goals=THROUGHPUT)
    plan = plan_of(tree)
    assert plan.layout.dp >= 4
    assert plan.layout.ep == plan.layout.tp * plan.layout.dp


def test_latency_takes_wider_engines_than_throughput_under_load() -> None:
    many = plan_of(spec("llama-3.1-8b", "hgx-h100", job={**FP8, **job(concurrency=1024)}))
    one = spec("llama-3.1-8b", "hgx-h100", job={**FP8, **job(concurrency=1)})
    few = plan_of(one | {"goals": {"maximize": "latency"}})
    assert few.layout.tp > many.layout.tp


def test_fewest_gpus_meet_every_limit_and_one_engine_less_would_not() -> None:
    traffic = job(concurrency=None, request_rate=26.0)
    goals = {"maximize": "fewest-gpus", "ttft": "1s", "tpot": "30ms"}
    # With fewer tokens per step, one engine less may be enough.
    steps = {"max_num_batched_tokens": 8192}
    tree = spec("llama-3.1-70b", "hgx-h100", 4, job={**FP8, **traffic, **steps}, goals=goals)
    plan = plan_of(tree)
    assert plan.estimate.tpot_seconds <= 0.03
    assert plan.estimate.ttft_seconds <= 1.0
    assert plan.estimate.requests_per_second >= 0.97 * 26
    layout = plan.layout
    assert layout.replicas > 1
    fewer = {"limits": {"replicas": {"max": layout.replicas - 1}}}
    pins = {"tp": layout.tp, "pp": layout.pp}
    assert codes(tree | {"layout": pins, "goals": goals | fewer}) == ["G03"]


def test_every_layout_is_ranked_or_counted_under_a_rule() -> None:
    tree = spec("deepseek-v3", "hgx-h200", 2, job=FP8)
    plan, problem = plan_of(tree), problem_of(tree)
    layouts = list(enumerate_serving_layouts(problem, engine("vllm"), widest_tp=8))
    search = plan.search
    assert search.enumerated == len(layouts)
    kept = search.enumerated - sum(count for _, count in search.dropped)
    assert len(search.ranked) == min(kept, 40)


def test_experts_are_not_cut_across_the_blocks_that_share_a_scale() -> None:
    plan = plan_of(spec("qwen3-30b-a3b", "hgx-h100", job=FP8))  # 768 wide, blocks of 128
    assert dict(plan.search.dropped)["V07"] > 0
    for one in plan.search.ranked:
        assert 768 // one.layout.ranks_per_expert % 128 == 0


def test_limits_that_nothing_keeps_are_an_error_that_names_the_best() -> None:
    tree = spec("llama-3.1-70b", "hgx-h100", job=FP8, goals={"tpot": "100us"})
    plan, sink = planned(tree)
    assert plan is None
    (found,) = sink.diagnostics
    assert found.code == "PARC-G03"
    assert "tpot" in found.finding.label


def test_a_given_load_gets_the_fewest_gpus_that_keep_no_request_waiting() -> None:
    tree = spec("llama-3.1-70b", "hgx-h100", 64, job=job(concurrency=128))
    plan = plan_of(tree)
    assert plan.layout.gpus < 8
    assert plan.estimate.waiting == 0
    fewer = {"limits": {"replicas": {"only": [1]}}, "maximize": "throughput"}
    for gpus in range(1, plan.layout.gpus):
        for tp in (n for n in (1, 2, 4) if gpus % n == 0):
            pins = {"tp": tp, "pp": gpus // tp}
            one, _ = planned(tree | {"layout": pins, "goals": fewer})
            assert one is None or one.estimate.waiting > 0
    assert codes(tree) == []  # idle hosts are what the goal asks for


@pytest.mark.parametrize("rate", [210.0, 265.0])
def test_engines_that_share_hosts_occupy_the_fewest_hosts_that_serve_the_load(rate: float) -> None:
    # 9 engines lie on 3 hosts with 3 each, and 10 on 2 hosts with 5 each.
    traffic = job(concurrency=None, request_rate=rate, output_tokens=200)
    tree = spec("llama-3.1-8b", "hgx-h100", 8, job=traffic, layout={"tp": 1, "pp": 1})
    problem = problem_of(tree)
    found = evaluate_service(problem, ServingLayout())
    serving = []
    for replicas in range(1, 65):
        one = estimate_at(problem, ServingLayout(replicas=replicas))
        if first_missed_limit(problem, one) is None and one.waiting < 1e-6:
            serving.append((service_hosts(one.layout, 8), replicas))
    fewest, _ = min(serving)
    assert min(replicas for _, replicas in serving) < found.layout.replicas
    assert service_hosts(found.layout, 8) == fewest
    assert found.layout.replicas == min(one for hosts, one in serving if hosts == fewest)


def test_a_load_above_the_capacity_gets_the_deployment_that_serves_the_most_of_it() -> None:
    tree = spec("llama-3.1-70b", "hgx-h100", job=job(concurrency=100_000))
    plan = plan_of(tree)
    assert plan.estimate.waiting > 0
    most = plan_of(tree | {"goals": THROUGHPUT})
    assert plan.estimate.tokens_per_second >= most.estimate.tokens_per_second / 1.03


def test_limits_without_a_load_give_the_largest_load_within_them() -> None:
    goals = {"ttft": "500ms", "tpot": "40ms"}
    open_load = job(concurrency=None)
    tree = spec("llama-3.1-70b", "hgx-h100", 2, job=open_load, goals=goals)
    plan = plan_of(tree)
    rate = plan.estimate.solved_request_rate
    assert rate is not None
    assert plan.estimate.requests_per_second == pytest.approx(rate, rel=1e-3)
    layout = {name: getattr(plan.layout, name) for name in ("tp", "pp", "replicas")}
    for factor, found in ((0.999, []), (1.3, ["G03"])):
        given = job(concurrency=None, request_rate=rate * factor)
        assert codes(tree | {"job": tree["job"] | given, "layout": layout}) == found


def test_the_search_for_the_load_leaves_out_no_layout_that_could_be_the_best() -> None:
    goals = {"ttft": "300ms", "tpot": "25ms"}
    tree = spec("qwen3-30b-a3b", "hgx-h100", job=FP8 | job(concurrency=None), goals=goals)
    problem = problem_of(tree)
    rules = service_rules(problem, engine("vllm"))
    layouts = tuple(enumerate_serving_layouts(problem, engine("vllm"), widest_tp=8))
    every = [
        evaluate_service(problem, layout)
        for layout in layouts
        if not any(rule.broken(problem, layout) for rule in rules)
    ]
    kept = [one for one in every if first_missed_limit(problem, one) is None]
    evaluator = search_serving_layouts._Evaluator(problem)
    found = search_serving_layouts._evaluate_layouts(evaluator, rules, layouts).valid
    best = rank_services(problem, found)[:10]
    assert best == rank_services(problem, kept)[:10]


VARIED = {"input_tokens": 1000, "output_tokens": 300, "lengths": {"input_cv": 1, "output_cv": 1}}


LIMITS = {
    "p99 of one latency": {"ttft": {"p99": "300ms"}},
    "percentile and mean": {"tpot": {"p90": "25ms"}, "ttft": "150ms"},
    "goodput": {"ttft": "300ms", "tpot": "25ms", "goodput": "95%"},
    "whole requests": {"e2e": {"p90": "15s"}},
}


# A load that PARC searches takes many simulations; test_kept_limits.py has more of them.
@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("percentile and mean", 60.0),
        ("goodput", 60.0),
        ("percentile and mean", None),
        pytest.param("p99 of one latency", 60.0, marks=pytest.mark.conformance),
        pytest.param("whole requests", 60.0, marks=pytest.mark.conformance),
        pytest.param("goodput", None, marks=pytest.mark.conformance),
    ],
)
def test_a_plan_keeps_its_limits_in_the_simulation(name: str, rate: float | None) -> None:
    goals = LIMITS[name]
    traffic = VARIED if rate is None else VARIED | {"request_rate": rate}
    pins = {"tp": 1, "pp": 1}
    tree = spec("llama-3.1-8b", "hgx-h100", job={"traffic": traffic}, goals=goals, layout=pins)
    plan = plan_of(tree)
    problem, statistics = plan.problem, plan.estimate.simulated
    assert statistics is not None
    for limit in problem.goals.latency_limits:
        if limit.statistic != "each":
            found = getattr(statistics, f"{limit.latency}_seconds")
            assert getattr(found, limit.statistic) <= limit.seconds
    if problem.goals.goodput is not None:
        assert statistics.within_limits is not None
        assert statistics.within_limits >= problem.goals.goodput
    if rate is not None and plan.layout.replicas > 1:
        fewer = replace(plan.layout, replicas=plan.layout.replicas - 1)
        estimate = estimate_at(problem, fewer)
        samples = [simulate_service(problem, fewer, None, Sampling(seed)) for seed in SAMPLES]
        found = [replace(estimate, simulated=sample) for sample in samples]
        assert any(first_missed_limit(problem, one) for one in found) or any(
            missed_in_simulation(problem, one) for one in found
        )


def test_a_percentile_needs_more_gpus_or_allows_less_load_than_the_same_mean() -> None:
    pins = {"tp": 1, "pp": 1, "replicas": 1}
    tree = spec("llama-3.1-8b", "hgx-h100", job={"traffic": VARIED}, layout=pins)
    mean = plan_of(tree | {"goals": {"ttft": "500ms"}}).estimate.solved_request_rate
    tail = plan_of(tree | {"goals": {"ttft": {"p99": "500ms"}}}).estimate.solved_request_rate
    assert mean is not None
    assert tail is not None
    assert tail < mean


@pytest.mark.parametrize(
    ("goals", "where"),
    [({"ttft": {}}, "goals.ttft"), ({"goodput": "90%"}, "goals.goodput")],
)
def test_goals_without_a_limit_are_an_error(goals: Tree, where: str) -> None:
    _, sink = planned(spec("llama-3.1-8b", "hgx-h100", goals=goals))
    assert [(one.code, one.path) for one in sink.diagnostics] == [("PARC-X08", where)]


def test_tensor_ranks_leave_the_nvlink_domain_only_if_no_other_layout_is_valid() -> None:
    goals = {"limits": {"pp": {"max": 1}}}
    wide = plan_of(spec("llama-3.1-405b", "hgx-h100", 4, goals=goals))
    assert (wide.layout.tp, wide.layout.pp) == (16, 1)
    narrow = plan_of(spec("llama-3.1-405b", "hgx-h100", 4, goals=THROUGHPUT))
    assert all(one.layout.tp <= 8 for one in narrow.search.ranked)
    rack = plan_of(spec("llama-3.1-405b", "gb200-nvl72", 8, goals={"maximize": "latency"}))
    assert rack.layout.tp > 8


def test_a_request_rate_above_the_capacity_is_an_error_that_names_the_rate() -> None:
    tree = spec("llama-3.1-8b", "hgx-h100", job=job(concurrency=None, request_rate=1e6))
    (found,) = planned(tree)[1].diagnostics
    assert found.code == "PARC-G03"
    assert "a lower request rate" in found.finding.help


def test_ties_go_to_the_simpler_layout() -> None:
    search = plan_of(spec("llama-3.1-8b", "hgx-h100", job=FP8, goals=THROUGHPUT)).search
    best = max(one.tokens_per_second for one in search.ranked)
    assert search.ranked[0].tokens_per_second >= best / 1.03
    assert search.ranked[0].layout.pp == 1


def test_an_axis_under_a_limit_is_not_tried_beyond_it() -> None:
    limits = {"limits": {"tp": {"max": 2}, "replicas": {"only": [1, 2]}}}
    search = plan_of(spec("llama-3.1-8b", "hgx-h100", goals=limits)).search
    assert {one.layout.tp for one in search.ranked} == {1, 2}
    assert {one.layout.replicas for one in search.ranked} <= {1, 2}


def test_a_longer_request_than_fits_is_shortened_only_if_the_spec_does_not_set_it() -> None:
    node = {"base": "dgx-h100", "gpus_per_node": 2}
    plan = plan_of(spec("llama-3.1-70b", node))
    assert 1500 <= plan.limits.max_model_len < 131072
    fits = plan.limits.max_model_len
    assert plan.limits.full_requests >= 1
    crowded = ["G06"]  # few of the requests of CHAT fit into so small a cache
    assert codes(spec("llama-3.1-70b", node, job={"max_model_len": fits})) == crowded
    assert codes(spec("llama-3.1-70b", node, job={"max_model_len": fits + 16})) == ["V01"]


def test_layers_move_to_the_middle_if_memory_is_tight_and_the_script_sets_it() -> None:
    traffic = {"traffic": {**CHAT, "concurrency": 256}, "max_model_len": 2048}
    layout = {"tp": 1, "pp": 4}
    plan = plan_of(spec("qwen2.5-72b", "l40s-8", job=traffic, layout=layout))
    assert plan.layout.stages == (19, 21, 21, 19)
    environment = {name: value for name, value, _ in engine("vllm").environment(plan)}
    assert environment["VLLM_PP_LAYER_PARTITION"] == "19,21,21,19"
    even = plan_of(
        spec("qwen2.5-72b", "l40s-8", job=traffic, layout={**layout, "stage_layers": [20] * 4})
    )
    assert min(one.blocks for one in plan.stages) > min(one.blocks for one in even.stages)
    assert plan.estimate.tokens_per_second > even.estimate.tokens_per_second
    assert "VLLM_PP_LAYER_PARTITION" not in {n for n, _, _ in engine("vllm").environment(even)}


LONG = {**FP8, "traffic": {"input_tokens": 30_000, "output_tokens": 1000, "concurrency": 256}}


def test_ranks_that_would_hold_copies_of_a_cache_share_it_where_that_pays() -> None:
    pins = {"tp": 8, "pp": 1, "dp": 1}
    tree = spec("deepseek-v3", "hgx-h200", job=LONG, layout=pins)
    plan = plan_of(tree)
    dcp, limits = plan.layout.dcp, plan.limits
    assert dcp > 1
    assert limits.cache_tokens == dcp * limits.blocks * limits.block_tokens
    alone = plan_of(tree | {"layout": {**pins, "dcp": 1}})
    assert plan.estimate.tokens_per_second > 1.1 * alone.estimate.tokens_per_second
    banned = plan_of(tree | {"goals": {"limits": {"dcp": {"max": 2}}}})
    assert banned.layout.dcp <= 2


def test_a_cache_that_is_not_copied_is_not_shared() -> None:
    problem = problem_of(spec("llama-3.1-70b", "hgx-h200", 2))
    tried = {(one.tp, one.dcp) for one in enumerate_serving_layouts(problem, engine("vllm"))}
    assert {tp for tp, dcp in tried if dcp > 1} == {16}
    assert {dcp for tp, dcp in tried if tp == 16} == {1, 2}


def test_ranks_that_share_prompts_are_tried_where_they_are_left_open() -> None:
    problem = problem_of(spec("deepseek-v3", "hgx-h200", 2, job=FP8, layout={"pcp": "auto"}))
    tried = {one.pcp for one in enumerate_serving_layouts(problem, engine("vllm"))}
    assert tried == {1, 2, 4, 8}
    dense = problem_of(spec("llama-3.1-70b", "hgx-h200", layout={"pcp": "auto"}))
    assert {one.pcp for one in enumerate_serving_layouts(dense, engine("vllm"))} == {1}


def test_the_smallest_layout_is_reported_if_all_are_too_large() -> None:
    tree = spec("nemotron-3-nano-30b-a3b", "hgx-h100", layout={"dp": 8, "replicas": 2})
    _, sink = planned(tree)
    (found,) = sink.diagnostics
    assert (found.code, found.finding.fix) == ("PARC-T11", "layout.replicas: 1")


def test_a_limit_that_even_one_request_misses_is_reported() -> None:
    tree = spec("llama-3.1-70b", "hgx-h100") | {"goals": {"ttft": "20ms"}}
    tree["job"]["traffic"] = {"input_tokens": 1000, "output_tokens": 500}
    _, sink = planned(tree)
    (found,) = sink.diagnostics
    assert (found.code, "for a single request" in found.finding.help) == ("PARC-G03", True)


def test_hosts_of_one_gpu_join_none_over_pcie() -> None:
    layout = {"tp": 4, "replicas": 1}
    assert codes(spec("llama-3.1-8b", "gh200-1", 4, layout=layout)) == ["T01"]


@pytest.mark.parametrize("pins", [{}, {"redundant_experts": 32, "all2all": "deepep_low_latency"}])
@pytest.mark.parametrize("model", ["deepseek-v2", "llama-3.1-8b", "nemotron-3-nano-30b-a3b"])
def test_a_serving_rule_reads_no_field_that_it_does_not_name(
    model: str, pins: dict[str, object]
) -> None:
    problem = problem_of(spec(model, "hgx-h100", 2, job=FP8, layout=pins))
    backend = engine(problem.framework)
    for layout in enumerate_serving_layouts(problem, backend):
        # Memory rules come last and read all fields.
        for rule in service_rules(problem, backend)[:-2]:
            traced = TracedLayout(layout)
            rule.broken(problem, traced)  # type: ignore[arg-type]
            assert traced.seen <= set(rule.reads), (rule.code, traced.seen)
