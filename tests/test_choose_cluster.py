"""Choice between the clusters of a list."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler import serving_pipeline
from parc.compiler.ir import Plan, ServingPlan
from tests import compiled

pytestmark = pytest.mark.usefixtures("few_requests")

Tree = dict[str, Any]
H100 = {"node": "hgx-h100", "nodes": 4, "price_per_gpu_hour": 2.5}
H200 = {"node": "hgx-h200", "nodes": 4, "price_per_gpu_hour": 3.2}
B200 = {"node": "hgx-b200", "nodes": 4, "price_per_gpu_hour": 4.2}
TOO_SMALL = {"node": "gh200-1", "nodes": 1, "price_per_gpu_hour": 1.0}
CHAT = {"input_tokens": 1024, "output_tokens": 512, "request_rate": 20.0}


def service(*clusters: Any, **goals: Any) -> Tree:
    """Return a spec of a service with ``clusters``: a list, or the only one."""
    return {
        "parc": 1,
        "name": "chosen",
        "model": "llama-3.1-70b",
        "cluster": clusters[0] if len(clusters) == 1 else list(clusters),
        "job": {"kind": "serve", "traffic": CHAT},
        "goals": {"tpot": "50ms", **goals},
    }


def plan_of(tree: Tree) -> ServingPlan:
    plan, sink = compiled.planned(tree)
    assert isinstance(plan, ServingPlan), compiled.messages_of(sink)
    return plan


def codes(tree: Tree) -> list[str]:
    return [one.code.removeprefix("PARC-") for one in compiled.planned(tree)[1].diagnostics]


def test_each_cluster_of_a_list_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    search = serving_pipeline.search_serving_layouts

    def counted(problem: Any, *more: Any) -> Any:
        searched.append(problem.cluster.gpu.name)
        return search(problem, *more)

    monkeypatch.setattr(serving_pipeline, "search_serving_layouts", counted)
    plan, sink = compiled.planned(service(H100, H200, maximize="lowest-cost"))
    assert plan is not None
    assert len(searched) == len(set(searched)) == 2
    assert "PARC-G08" in [one.code for one in sink.diagnostics]
    # A change of the cluster is planned again.
    changed = plan_of(service({**H100, "nodes": 2}, H200, maximize="lowest-cost"))
    assert changed.problem.cluster != plan.problem.cluster
    assert len(searched) == 4


@pytest.mark.parametrize("goal", ["lowest-cost", "fewest-gpus", "throughput"])
def test_the_chosen_cluster_is_the_best_of_those_planned_one_by_one(goal: str) -> None:
    clusters = (H100, TOO_SMALL, H200, B200)
    chosen = plan_of(service(*clusters, maximize=goal))
    single = [plan_of(service(one, maximize=goal)) for one in clusters if one is not TOO_SMALL]

    def value(plan: ServingPlan) -> float:
        if goal == "throughput":
            return -plan.estimate.tokens_per_second
        if goal == "fewest-gpus":
            return plan.occupied_gpus
        assert plan.cost_per_hour is not None
        return plan.cost_per_hour

    best = min(single, key=value)
    assert chosen.layout == best.layout
    assert chosen.problem.cluster.gpu.name == best.problem.cluster.gpu.name
    assert "G08" in codes(service(*clusters, maximize=goal))


def test_the_price_decides_between_equal_clusters() -> None:
    dear = H100 | {"price_per_gpu_hour": 9.0}
    assert plan_of(service(dear, H100, maximize="lowest-cost")).problem.cluster.price_per_gpu_hour
    for clusters in ((dear, H100), (H100, dear)):
        plan = plan_of(service(*clusters, maximize="lowest-cost"))
        assert plan.problem.cluster.price_per_gpu_hour == 2.5
        assert plan.cost_per_hour == 2.5 * plan.occupied_gpus


def test_without_a_load_the_lowest_cost_is_that_of_a_token() -> None:
    tree = service(H100, H200, maximize="lowest-cost") | {"layout": {"tp": 4, "pp": 1}}
    tree["job"]["traffic"] = {"input_tokens": 1024, "output_tokens": 512}
    chosen = plan_of(tree)
    costs = {}
    for one in (H100, H200):
        plan = plan_of(tree | {"cluster": one})
        assert plan.cost_per_hour is not None
        costs[plan.problem.cluster.gpu.name] = plan.cost_per_hour / plan.estimate.tokens_per_second
    assert chosen.problem.cluster.gpu.name == min(costs, key=lambda name: costs[name])


def test_a_price_that_is_missing_is_reported_at_its_cluster() -> None:
    free = {"node": "hgx-h100", "nodes": 4}
    _, sink = compiled.planned(service(H200, free, maximize="lowest-cost"))
    (found,) = [one for one in sink.diagnostics if one.severity == "error"]
    assert (found.code, found.path) == ("PARC-X08", "cluster[1]")


def test_errors_of_all_clusters_are_shown_at_their_entries() -> None:
    unknown = {"node": "hgx-h900", "nodes": 4}
    _, sink = compiled.planned(service(TOO_SMALL, unknown))
    lines = {one.code: one.span.line for one in sink.diagnostics if one.span is not None}
    assert {"PARC-V02", "PARC-K01"} <= set(lines)
    text = sink.positions.lines[sink.positions.file]
    assert "hgx-h900" in text[lines["PARC-K01"] - 1]


@pytest.mark.parametrize(
    "entry",
    [{"node": "hgx-h10", "nodes": 4}, "dgx-superpod-h10", None, H100 | {"price_per_gpu_hour": -1}],
)
def test_an_entry_that_describes_no_cluster_is_an_error_though_another_has_a_plan(
    entry: Any,
) -> None:
    plan, sink = compiled.planned(service(H100, entry))
    assert plan is None
    errors = {one.code for one in sink.diagnostics if one.path.startswith("cluster")}
    assert errors & {"PARC-K01", "PARC-X02", "PARC-X11"}


def test_a_cluster_that_is_too_small_only_loses() -> None:
    assert plan_of(service(TOO_SMALL, H200)).problem.cluster.gpu.name == "h200-sxm-141gb"


@pytest.mark.parametrize("clusters", [[], [1, 2], [[H100]], [None]])
def test_a_list_of_something_else_is_an_error(clusters: Any) -> None:
    tree = service(H100) | {"cluster": clusters}
    plan, sink = compiled.planned(tree)
    assert plan is None
    assert {one.code for one in sink.diagnostics} <= {"PARC-X02", "PARC-X08"}


def test_training_takes_the_cluster_with_the_shortest_step() -> None:
    tree = {
        "parc": 1,
        "name": "trained",
        "model": "llama-3.1-8b",
        "cluster": [{"node": "dgx-a100", "nodes": 2}, {"node": "hgx-h100", "nodes": 2}],
        "job": {"sequence_length": 4096, "global_batch": 128},
    }
    plan, _ = compiled.planned(tree)
    assert isinstance(plan, Plan)
    assert plan.problem.cluster.gpu.name.startswith("h100")
