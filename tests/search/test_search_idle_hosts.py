"""Plans that leave hosts idle because fewer hosts are faster or have the only layout."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

import pytest

import parc
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Candidate, Plan, Problem, Search
from parc.compiler.search import search_idle_hosts
from parc.compiler.search.search_idle_hosts import (
    MIN_GAIN,
    may_leave_hosts_idle,
    search_other_problem,
    search_with_idle_hosts,
)
from parc.compiler.search.search_layouts import search_layouts
from tests.compiled import changed, emitted, plan_of, planned, verification_codes
from tests.search.search_reference import cost_model_of

BAD_COUNT: dict[str, Any] = {
    "parc": 1,
    "name": "awkward",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 36},
    "job": {"sequence_length": 8192, "global_batch": 256},
    "layout": {"cuda_graphs": False},
}
"""288 = 2^5 x 9 GPUs and a batch of 2^8."""
SMALL = changed(BAD_COUNT, {"model": "gpt2-small", "cluster.nodes": 5, "job.sequence_length": 1024})
FORBID = {"goals.idle_hosts": "forbid"}


def codes(spec: dict[str, Any]) -> set[str]:
    """Return the codes of all findings of the plan of ``spec``."""
    return {one.code.removeprefix("PARC-") for one in planned(spec)[1].diagnostics}


def step_seconds(spec: dict[str, Any]) -> float:
    return plan_of(spec).search.ranked[0].step_seconds


def test_a_faster_layout_on_fewer_hosts_is_chosen_and_the_idle_hosts_are_named() -> None:
    plan = plan_of(BAD_COUNT)
    assert (plan.layout.world, len(plan.placement.hosts)) == (256, 32)
    whole = plan_of(changed(BAD_COUNT, FORBID))
    assert whole.layout.world == 288
    assert plan.search.ranked[0].step_seconds < 0.85 * step_seconds(changed(BAD_COUNT, FORBID))
    assert whole.search.ranked[0] in plan.search.ranked
    (found,) = (one for one in parc.check(BAD_COUNT) if one.code == "PARC-G04")
    seconds = f"{plan.search.ranked[0].step_seconds:.3g} s instead of"
    assert seconds in found.finding.label
    assert "idle hosts: node[0033-0036]" in found.finding.label


def test_the_step_on_all_hosts_is_that_of_a_plan_without_idle_hosts() -> None:
    # 18 hosts per NVLink domain: groups of 4 or 16 hosts fit into 16 of them.
    cluster = {"node": "gb200-nvl72", "nodes": 36, "nodes_per_rack": 18}
    changes = {"model": "qwen3-30b-a3b", "cluster": cluster, "job.global_batch": 1024}
    spec = changed(BAD_COUNT, {**changes, "job.sequence_length": 4096})
    plan, whole = plan_of(spec), plan_of(changed(spec, FORBID))
    assert plan.layout.world < whole.layout.world == 144
    assert whole.search.ranked[0] in plan.search.ranked
    assert whole.search.ranked[0].step_seconds == whole.estimate.time.total_seconds
    (found,) = (one for one in parc.check(spec) if one.code == "PARC-G04")
    assert f"instead of {whole.estimate.time.total_seconds:.3g} s" in found.finding.label


def test_batches_with_which_hosts_stay_idle_are_not_suggested() -> None:
    cluster = {"node": "gb200-nvl72", "nodes": 72, "nodes_per_rack": 18}
    job = {"sequence_length": 4096, "global_batch": 3072, "precision": "mxfp8"}
    layout = {"tp": 1, "cp": 1, "pp": 16, "micro_batch": 1}
    spec = {**BAD_COUNT, "model": "deepseek-v3", "cluster": cluster, "job": job, "layout": layout}
    (found,) = (one for one in parc.check(spec) if one.code == "PARC-G04")
    assert "suits dp" not in found.finding.help
    assert plan_of(changed(spec, {"job.global_batch": 3024})).layout.world < 288


FEW_TOKENS: dict[str, dict[str, Any]] = {
    "pipeline bubble": {
        **{"model": "deepseek-v2-lite", "cluster": {"node": "gcp-a3-ultra", "nodes": 3}},
        "job": {"sequence_length": 4096, "global_batch": 32},
    },
    "slow links": {
        **{"model": "mistral-nemo-12b", "cluster": {"node": "rtx-pro-6000-8", "nodes": 8}},
        **{"job": {"sequence_length": 1024, "global_batch": 8}, "emit": ["fsdp"]},
        "layout": {"pp": 1},
    },
}


@pytest.mark.parametrize("name", FEW_TOKENS)
def test_more_hosts_do_not_make_a_step_with_few_tokens_longer(name: str) -> None:
    spec = {"parc": 1, "name": "few", **FEW_TOKENS[name]}
    all_hosts = step_seconds(spec)
    counts = [n for n in (1, 2, 4) if n < spec["cluster"]["nodes"]]
    fewer = [planned(changed(spec, {"cluster.nodes": n}))[0] for n in counts]
    plans = [plan for plan in fewer if isinstance(plan, Plan)]
    assert plans
    # Fewer hosts are used if they save 5 % of the step.
    assert all(all_hosts <= plan.search.ranked[0].step_seconds / 0.95 for plan in plans)


def test_a_model_that_fits_on_an_even_number_of_hosts_also_fits_on_one_more() -> None:
    spec = {
        **{"parc": 1, "name": "odd", "model": "nemotron-4-340b", "emit": ["deepspeed"]},
        "cluster": {"node": "gh200-quad", "nodes": 2},
        "job": {"sequence_length": 4096, "global_batch": 128},
    }
    assert len(plan_of(spec).placement.hosts) == 2
    assert len(plan_of(changed(spec, {"cluster.nodes": 3})).placement.hosts) == 2


def test_hosts_stay_idle_where_the_framework_can_only_replicate_the_model() -> None:
    spec = {
        **{"parc": 1, "name": "copies", "model": "mixtral-8x7b", "emit": ["fsdp"]},
        "cluster": {"node": "hgx-a800", "nodes": 16},
        "job": {"sequence_length": 2048, "global_batch": 32},
        "layout": {"micro_batch": 1},
    }
    assert plan_of(spec).layout.world == 32
    assert "B01" in codes(changed(spec, FORBID))


@pytest.mark.parametrize("model", ["llama-3-8b", "llama-3-70b"])
def test_without_a_layout_on_all_hosts_fewer_hosts_are_used(model: str) -> None:
    spec = changed(BAD_COUNT, {"model": model, "cluster.nodes": 250, "job.global_batch": 1024})
    assert 200 < len(plan_of(spec).placement.hosts) < 250
    assert "G04" in codes(spec)
    assert "B01" in codes(changed(spec, FORBID))


@cache
def search_of_whole_cluster(nodes: int) -> tuple[CostModel, Search | None]:
    """Return the problem on ``nodes`` hosts, and its search that leaves none of them idle."""
    cost_model = cost_model_of(changed(BAD_COUNT, {"cluster.nodes": nodes}))
    return cost_model, search_layouts(cost_model, Sink())


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 6, 7, 8, 9, 11])
def test_hosts_stay_idle_exactly_if_the_step_is_shorter_by_the_smallest_gain(nodes: int) -> None:
    cost_model, whole = search_of_whole_cluster(nodes)
    found = search_with_idle_hosts(cost_model, Sink())
    assert found is not None
    if whole is None or found.ranked[0].layout.world < cost_model.problem.cluster.gpus:
        limit = (1 - MIN_GAIN) * whole.ranked[0].step_seconds if whole else float("inf")
        assert found.ranked[0].step_seconds <= limit
    else:
        assert found == whole
        # No number of hosts has a much faster layout.
        fewer = [
            search.ranked[0].step_seconds
            for count in range(1, nodes)
            if (search := search_of_whole_cluster(count)[1])
        ]
        assert all(one > (1 - 2 * MIN_GAIN) * whole.ranked[0].step_seconds for one in fewer)


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster.nodes": 32},
        FORBID,
        {"goals.maximize": "fewest-gpus"},
        {"layout.pp": 9, "layout.dp": 32},
    ],
)
def test_good_counts_and_decisions_of_the_spec_are_left_alone(changes: dict[str, Any]) -> None:
    assert "G04" not in codes(changed(BAD_COUNT, changes))


def test_parallel_sizes_that_do_not_divide_the_gpus_stay_an_error() -> None:
    spec = changed(SMALL, {"layout": {"tp": 4, "pp": 3}})
    plan, sink = planned(spec)
    assert plan is None
    assert "PARC-D09" in {one.code for one in sink.diagnostics}


def test_a_model_that_fits_nowhere_is_searched_once() -> None:
    cost_model = cost_model_of(changed(SMALL, {"model": "llama-3.1-405b"}))
    assert may_leave_hosts_idle(cost_model.problem)
    sink = Sink()
    assert search_with_idle_hosts(cost_model, sink) is None
    assert [one.code for one in sink.diagnostics] == ["PARC-R17"]


def test_fewer_hosts_are_used_if_a_large_model_fits_only_with_their_better_splits() -> None:
    cluster = {"node": "gb200-nvl72", "nodes": 19}
    layout = {"recompute": "full", "micro_batch": 1}
    spec = changed(BAD_COUNT, {"model": "deepseek-v3", "cluster": cluster, "layout": layout})
    assert len(plan_of(spec).placement.hosts) == 18
    assert "R17" in codes(changed(spec, FORBID))


@pytest.mark.parametrize(
    "emit",
    [
        ["megatron", "slurm", "torchrun", "preflight", "rankmap"],
        ["deepspeed", "slurm"],
        ["fsdp", "torchrun"],
        ["torchtitan", "slurm"],
        ["accelerate", "torchrun"],
    ],
)
def test_every_target_starts_only_the_hosts_in_use(emit: list[str]) -> None:
    names = [f"gpu{number:02}" for number in range(1, 10)]
    racks = [{"name": "r1", "nodes": "gpu[01-09]"}]
    cluster = {"node": "dgx-h100", "racks": racks}
    spec = changed(BAD_COUNT, {"cluster": cluster, "job.sequence_length": 4096, "emit": emit})
    plan = plan_of(spec)
    used = {host.name for host in plan.placement.hosts}
    assert len(used) == 8
    (idle,) = set(names) - used
    text = "\n".join(
        text
        for path, text in emitted(plan).items()
        if path.split("/")[0] in emit and "rankmap" not in path
    )
    assert not re.search(rf"\b{idle}\b", text)
    assert verification_codes(emitted(plan)) == set()


def test_kubernetes_starts_as_many_pods_as_hosts_in_use() -> None:
    launch = {"kubernetes": {"image": "example.com/train:1"}}
    changes = {
        "cluster.nodes": 9,
        "job.sequence_length": 4096,
        "emit": ["megatron", "kubernetes"],
        "launch": launch,
    }
    plan = plan_of(changed(BAD_COUNT, changes))
    assert len(plan.placement.hosts) == 8
    files = emitted(plan)
    assert "completions: 8" in "\n".join(files.values())
    assert verification_codes(files) == set()


def test_only_fixed_sizes_that_divide_the_gpus_allow_idle_hosts() -> None:
    problem = cost_model_of(BAD_COUNT).problem
    assert may_leave_hosts_idle(replace(problem, pins=replace(problem.pins, tp=2, pp=3)))
    assert not may_leave_hosts_idle(replace(problem, pins=replace(problem.pins, tp=2, pp=5)))


def test_host_counts_without_a_layout_do_not_use_up_the_trials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cost_model = cost_model_of(SMALL)
    tried: list[int] = []

    def search(problem: Problem, framework: object) -> object:
        tried.append(problem.cluster.nodes)
        return None if problem.cluster.nodes > 2 else problem

    monkeypatch.setattr(search_idle_hosts, "search_other_problem", search)
    found = search_idle_hosts._try_parts_of_cluster(cost_model, [4, 3, 2, 1])
    assert tried == [4, 3, 2, 1]
    assert len(found) == 2


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of hosts of all later searches; no result of an earlier one is kept."""
    monkeypatch.setattr(search_idle_hosts, "_recent", OrderedDict())
    hosts: list[int] = []

    def search(*arguments: Any) -> Search | None:
        hosts.append(arguments[0].problem.cluster.nodes)
        return search_layouts(*arguments)

    monkeypatch.setattr(search_idle_hosts, "search_layouts", search)
    return hosts


def test_equal_clusters_of_a_sweep_are_searched_once(
    searched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [changed(SMALL, {"cluster.nodes": nodes}) for nodes in (2, 3, 4, 5, 5)]
    found = [search_with_idle_hosts(cost_model_of(spec), Sink()) for spec in specs]
    assert len(searched) == len(set(searched))
    monkeypatch.setattr(search_idle_hosts, "_recent", OrderedDict())
    assert search_with_idle_hosts(cost_model_of(specs[-1]), Sink()) == found[-1]
    # Another batch is another problem.
    search_with_idle_hosts(cost_model_of(changed(SMALL, {"job.global_batch": 320})), Sink())
    assert searched.count(5) == 3


def test_a_search_without_a_layout_runs_once_and_explains_each_spec(searched: list[int]) -> None:
    tree = changed(SMALL, {"cluster.nodes": 1, "layout.tp": 3})
    for number in (1, 2):
        sink = Sink()
        assert search_with_idle_hosts(cost_model_of(tree), sink) is None
        assert sink.failed()
        assert len(searched) == number


def test_the_number_of_results_that_are_kept_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    recent: OrderedDict[Any, Any] = OrderedDict()
    monkeypatch.setattr(search_idle_hosts, "_recent", recent)
    monkeypatch.setattr(search_idle_hosts, "MAX_RECENT", 2)
    monkeypatch.setattr(search_idle_hosts, "FEW_TOKENS", 0)  # no half of the hosts is tried
    for nodes in (1, 2, 1, 4):
        search_with_idle_hosts(cost_model_of(changed(SMALL, {"cluster.nodes": nodes})), Sink())
    assert [key[0].cluster.nodes for key in recent] == [1, 4]


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ((18, 17, 15, 17), {"a": 16, "b": 16, "d": 16}),
        ((18, 9, 8, 8), {"a": 8, "b": 8, "c": 8, "d": 8}),
        ((16, 16, 16, 16), {}),
    ],
)
def test_equal_nvlink_domains_have_a_power_of_two_of_hosts(
    sizes: tuple[int, ...], kept: dict[str, int]
) -> None:
    racks = [
        {"name": name, "nodes": f"{name}[1-{size}]", "nvlink_domain": name}
        for name, size in zip("abcd", sizes, strict=True)
    ]
    cluster = {"node": "gb200-nvl72", "racks": racks}
    problem = cost_model_of(changed(SMALL, {"cluster": cluster})).problem
    found = search_idle_hosts._with_equal_domains(problem.cluster)
    assert [{rack.name: len(rack.hosts) for rack in one.racks} for one in found] == (
        [kept] if kept else []
    )


def test_the_warning_names_batches_that_suit_all_hosts() -> None:
    spec = changed(SMALL, {"cluster.nodes": 3, "job.global_batch": 104, "emit": ["fsdp"]})
    (found,) = (one for one in parc.check(spec) if one.code == "PARC-G04")
    assert "no layout on all 3 hosts is valid and fits into memory; " in found.finding.message
    batches = re.match(r"a global batch of (\d+) or (\d+) suits dp 24 ", found.finding.help)
    assert batches is not None
    for batch in batches.groups():
        assert plan_of(changed(spec, {"job.global_batch": int(batch)})).layout.world == 24


@pytest.mark.parametrize(
    ("model", "nodes", "batch"), [("llama-3-8b", 1, 32), ("llama-3-70b", 3, 96)]
)
def test_a_limit_on_the_step_time_keeps_the_best_layout_within_it(
    model: str, nodes: int, batch: int
) -> None:
    spec = {
        **{"parc": 1, "name": "limited", "model": model},
        "cluster": {"node": "dgx-h100", "nodes": nodes},
        "job": {"sequence_length": 8192, "global_batch": batch},
    }
    cost_model = cost_model_of(spec)
    problem, program = cost_model.problem, cost_model.framework

    def best_layout(most_seconds: float) -> Candidate:
        found = search_other_problem(problem, program, most_seconds)
        assert found is not None
        return found.ranked[0]

    best = best_layout(inf)
    assert best_layout(best.step_seconds) == best
    # The best layout has another stage split or partial recompute, which is not searched here.
    assert best_layout(0.9 * best.step_seconds).step_seconds > best.step_seconds
