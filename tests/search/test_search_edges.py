"""Edges of the search: simplicity of layouts, stage splits of last resort, ties of services."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate import evaluate_service, service_rules
from parc.compiler.evaluate.estimate_layout import traffic_by_axis
from parc.compiler.evaluate.evaluate_service import SERVICE_TIE, rank_services
from parc.compiler.pipeline import plan_spec
from parc.compiler.search.enumerate_layouts import LayoutPoint, _pp_choices, truncated_split
from parc.compiler.search.rank_layouts import simplicity_key
from tests import compiled
from tests.laws.test_mutated_specs import time_limit
from tests.search.search_reference import cost_model_of
from tests.search.serving_specs import Tree, codes, plan_of, spec

TRAINING = {
    "parc": 1,
    "name": "edges",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 4},
    "job": {"sequence_length": 4096, "global_batch": 128},
}
ONE = LayoutPoint(*(1,) * 8, 0)


@pytest.mark.parametrize("axis", ["tp", "cp", "pp", "ep"])
def test_an_axis_in_use_is_less_simple_than_a_higher_recompute_or_another_axis(axis: str) -> None:
    used = ONE._replace(**{axis: 2})
    assert simplicity_key(0, ONE, 2) < simplicity_key(0, used, 0)
    for other in {"tp", "cp", "pp", "ep"} - {axis}:
        assert simplicity_key(0, used, 2) < simplicity_key(0, used._replace(**{other: 2}), 0)
        # Two axes of 2 are less simple than one of 4.
        wide = used._replace(**{axis: 4})
        assert simplicity_key(0, wide, 2) < simplicity_key(0, used._replace(**{other: 2}), 0)


@pytest.mark.parametrize(("layers", "pp", "vpp"), [(8, 1, 1), (9, 4, 1), (17, 4, 2), (32, 2, 4)])
def test_a_split_of_last_resort_has_one_embedding_one_loss_and_consecutive_chunks(
    layers: int, pp: int, vpp: int
) -> None:
    split = truncated_split(layers, pp, vpp)
    places = {
        (virtual, stage): chunk
        for stage, chunks in enumerate(split.chunks)
        for virtual, chunk in enumerate(chunks)
    }
    assert [place for place, chunk in places.items() if chunk.embedding] == [(0, 0)]
    assert [place for place, chunk in places.items() if chunk.loss] == [(vpp - 1, pp - 1)]
    # The chunks in the order in which a micro-batch passes them.
    ordered = [places[place] for place in sorted(places)]
    assert [chunk.first_layer for chunk in ordered] == [
        number * (layers // (pp * vpp)) for number in range(pp * vpp)
    ]


@pytest.mark.parametrize(
    ("first", "second", "tied"),
    [
        (1.0, 1.0, True),
        (1 + SERVICE_TIE / 2, 1 + SERVICE_TIE / 2, True),
        (1 + 2 * SERVICE_TIE, 1.0, False),
        (1.0, 1 + 2 * SERVICE_TIE, False),
    ],
)
def test_services_tie_within_3_percent_of_both_objectives(
    first: float, second: float, tied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(spec("llama-3.1-8b", "hgx-h100", goals={"maximize": "throughput"}))
    best = plan.estimate
    simple = replace(best, layout=replace(best.layout, tp=1, pp=1, dp=1, replicas=1))
    complex_ = replace(best, layout=replace(best.layout, tp=8, pp=1, dp=1, replicas=1))
    values = {8: (1.0, 1.0), 1: (first, second)}
    monkeypatch.setattr(
        evaluate_service, "objective_value", lambda _, found: values[found.layout.tp]
    )
    assert [found.layout.tp for found in rank_services(plan.problem, [complex_, simple])] == (
        [1, 8] if tied else [8, 1]
    )


def test_fewer_gpus_win_even_if_the_difference_is_below_3_percent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(spec("llama-3.1-8b", "hgx-h100", goals={"maximize": "fewest-gpus"}))
    found = [replace(plan.estimate, layout=replace(plan.layout, tp=tp)) for tp in (1, 8)]
    values = {8: (1000.0, 1.0), 1: (1001.0, 1.0)}
    monkeypatch.setattr(
        evaluate_service, "objective_value", lambda _, found: values[found.layout.tp]
    )
    assert [one.layout.tp for one in rank_services(plan.problem, found)] == [8, 1]


def test_an_engine_on_a_part_of_a_host_occupies_its_gpus_and_a_larger_one_whole_hosts() -> None:
    plan = plan_of(spec("llama-3.1-8b", "hgx-h100", 4))
    for layout, gpus in (
        (replace(plan.layout, tp=2, pp=1, dp=1, replicas=1), 2),
        (replace(plan.layout, tp=2, pp=1, dp=1, replicas=4), 8),
        (replace(plan.layout, tp=2, pp=1, dp=1, replicas=6), 16),
        (replace(plan.layout, tp=8, pp=2, dp=1, replicas=1), 16),
        # 12 GPUs spread evenly need 3 hosts, because tensor groups of 4 are not split.
        (replace(plan.layout, tp=4, pp=3, dp=1, replicas=1), 24),
    ):
        assert evaluate_service._counted_gpus(plan.problem, layout) == gpus


@pytest.mark.parametrize(("blocks", "expected"), [(0, True), (1, False), (2, False)])
def test_a_stage_needs_at_least_one_cache_block(
    blocks: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(spec("llama-3.1-8b", "hgx-h100"))
    few = SimpleNamespace(blocks=blocks)
    monkeypatch.setattr(service_rules, "stage_caches", lambda problem, layout: (few,))
    (rule,) = [one for one in service_rules._memory_rules() if one.code == "V02"]
    assert rule.broken(plan.problem, plan.layout) is expected


@pytest.mark.parametrize(
    ("dp", "remaining", "expected"), [(None, 6, (1, 2, 3, 6)), (2, 6, (1, 3)), (8, 6, (1,))]
)
def test_pipeline_sizes_divide_the_ranks_that_a_given_dp_leaves(
    dp: int | None, remaining: int, expected: tuple[int, ...]
) -> None:
    problem = cost_model_of(TRAINING).problem
    fixed = replace(problem, pins=replace(problem.pins, dp=dp, pp=None))
    assert _pp_choices(fixed, remaining) == expected


def test_a_router_unlike_that_of_torchtitans_registered_model_is_reported() -> None:
    experts = {"count": 128, "top_k": 8, "size": 768, "pre_softmax": True}
    whole = TRAINING | {"model": {"base": "qwen3-30b-a3b", "experts": experts}}
    _, sink = compiled.planned(whole | {"emit": ["torchtitan"]})
    found = [one.path for one in sink.diagnostics if one.code == "PARC-E12"]
    assert found == ["model.experts.pre_softmax"]


def test_the_traffic_of_every_axis_in_use_has_its_level_and_the_rate_of_its_links() -> None:
    cost_model = cost_model_of(TRAINING | {"layout": {"tp": 4, "pp": 2, "cp": 1, "micro_batch": 1}})
    plan = compiled.plan_of(TRAINING | {"layout": {"tp": 4, "pp": 2, "cp": 1, "micro_batch": 1}})
    rows = {row.axis: row for row in traffic_by_axis(cost_model, plan.layout)}
    assert rows.keys() == {"tp", "pp", "dp_cp"}
    assert all(row.bytes_per_rank > 0 for row in rows.values())
    # Stages are 16 GPUs apart, that is, on different hosts of 8.
    assert {axis: row.level for axis, row in rows.items()} == {
        "tp": "nvlink",
        "pp": "fabric",
        "dp_cp": "fabric",
    }
    # Collectives reach a part of the rate of NVLink, which is several times that of the network.
    nvlink, network = rows["tp"].gb_per_s, rows["pp"].gb_per_s
    assert network * 4 < nvlink < cost_model.problem.cluster.node.link_gb_per_s


@pytest.mark.parametrize("sizes", [{"pp": 1_000_003}, {"vpp": 1_000_003}, {"pp": 4096, "vpp": 64}])
@pytest.mark.parametrize("target", ["megatron", "deepspeed", "fsdp", "torchtitan", "accelerate"])
def test_a_pin_of_far_too_many_stages_is_one_error_at_once(
    sizes: dict[str, int], target: str
) -> None:
    sink = Sink()
    with time_limit(2):
        assert not plan_spec(
            compiled.source_of({**TRAINING, "layout": sizes, "emit": [target]}), (), sink
        )
    (found,) = [one for one in sink.diagnostics if one.severity == "error"]
    assert found.path.startswith("layout.")


few_requests = pytest.mark.usefixtures("few_requests")


def service_with_copies(size: str, **parts: Any) -> Tree:
    """Return a service on a host with 2,000 GB of memory, whose ranks copy ``size`` of caches."""
    load = {"input_tokens": 1000, "output_tokens": 100, "concurrency": 640}
    job = {"traffic": load, "kv_offload": {"size": size}}
    return spec("llama-3.1-8b", "dgx-h100", 1, job=job) | parts


@pytest.mark.parametrize(("size", "ranks"), [("225GB", 8), ("226GB", 7), ("900GB", 2)])
def test_copies_of_the_cache_of_all_ranks_fit_in_the_memory_of_a_host(
    size: str, ranks: int
) -> None:
    chosen = plan_of(service_with_copies(size, goals={"maximize": "throughput"})).layout
    assert 1 <= chosen.replicas * chosen.dp <= ranks
    layout = {"tp": 1, "replicas": 8}
    found = codes(service_with_copies(size, layout=layout))
    assert ("V47" in found) == (ranks < 8)


def test_a_rank_over_several_hosts_has_a_part_of_its_copies_on_each() -> None:
    layout = {"tp": 8, "pp": 2, "replicas": 1}
    two = {"cluster": {"node": "dgx-h100", "nodes": 2}, "layout": layout}
    assert "V47" not in codes(service_with_copies("3600GB", **two))
    assert "V47" in codes(service_with_copies("3601GB", **two))


def test_unknown_host_memory_is_reported_where_copies_need_it() -> None:
    node = {"cluster": {"node": "hgx-h100", "nodes": 1}}
    assert "R15" in codes(service_with_copies("100GB", **node))
    assert "R15" not in codes(service_with_copies("100GB"))


@few_requests
@pytest.mark.parametrize(
    ("emit", "engines", "occupied"),
    [(["vllm"], 10, 16), (["vllm", "slurm"], 10, 16), (["vllm", "kubernetes"], 9, 9)],
)
def test_only_pods_leave_the_other_gpus_of_a_host_to_other_jobs(
    emit: list[str], engines: int, occupied: int
) -> None:
    load = {"input_tokens": 1000, "output_tokens": 200, "request_rate": 208}
    tree = spec("llama-3.1-8b", "dgx-h100", 8, job={"traffic": load}, layout={"tp": 1})
    tree |= {"goals": {"ttft": "2s", "tpot": "40ms"}, "emit": emit}
    tree["launch"] = {"kubernetes": {"image": "registry.example/image:1"}}
    tree["cluster"]["price_per_gpu_hour"] = 2
    plan = plan_of(tree)
    assert (plan.layout.replicas, plan.occupied_gpus) == (engines, occupied)
    assert plan.cost_per_hour == 2 * occupied
