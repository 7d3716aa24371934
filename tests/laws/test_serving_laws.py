"""Properties of serving plans: no crash, no effect of key order, more memory loses no layout."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.diagnostics import Sink
from parc.compiler.pipeline import emit_plan
from tests.property_settings import examples
from tests.search.serving_specs import plan_of, planned, spec

pytestmark = pytest.mark.usefixtures("few_requests")

degree = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 31, 64, 100, 2**20])
model = st.sampled_from(
    [
        "llama-3.1-8b",
        "qwen3-30b-a3b",
        "deepseek-v2-lite",
        "gemma-3-12b",
        "gpt-oss-20b",
        "mixtral-8x7b",
    ]
)
node = st.sampled_from(["dgx-h100", "l40s-8", "gb200-nvl72", "dgx-a100-40gb", "mi300x-8"])
layout = st.fixed_dictionaries(
    {},
    optional={
        "tp": degree,
        "pp": degree,
        "dp": degree,
        "pcp": degree,
        "dcp": degree,
        "replicas": degree,
        "ep": st.one_of(st.sampled_from(["on", "off", "auto"]), degree),
        "stage_layers": st.lists(degree, max_size=5),
        "redundant_experts": st.integers(-3, 200),
        "all2all": st.sampled_from(["deepep_low_latency", "nixl_ep", "auto"]),
    },
)
job = st.fixed_dictionaries(
    {},
    optional={
        "precision": st.sampled_from(["bf16", "fp16", "fp8", "int4", "nvfp4"]),
        "quantize": st.booleans(),
        "kv_precision": st.sampled_from(["auto", "fp8", "fp16", "bf16"]),
        "max_model_len": st.sampled_from([1, 512, 40_000, 10**9]),
        "max_num_seqs": degree,
        "max_num_batched_tokens": degree,
        "block_tokens": st.sampled_from([1, 16, 128]),
    },
)
goals = st.fixed_dictionaries(
    {},
    optional={
        "maximize": st.sampled_from(["throughput", "latency", "fewest-gpus"]),
        "ttft": st.sampled_from(["1us", "1s", "1h"]),
        "tpot": st.sampled_from(["1us", "50ms", "1h"]),
        "memory_headroom": st.sampled_from(["0%", "8%", "95%"]),
    },
)
launch = st.fixed_dictionaries(
    {},
    optional={
        "load_balancer": st.sampled_from(["internal", "hybrid", "external"]),
        "port": st.sampled_from([1, 8000, 29550, 65535]),
        "network_interface": st.sampled_from(["eth0", "lo", "a b"]),
        "args": st.lists(st.text(max_size=8), max_size=3),
    },
)


@examples(30)
@given(model=model, node=node, nodes=st.integers(1, 5), parts=st.tuples(layout, job, goals, launch))
def test_any_serving_spec_gives_a_verified_plan_or_an_error(
    model: str, node: str, nodes: int, parts: tuple[Any, ...]
) -> None:
    pins, own, aims, start = parts
    tree = spec(model, node, nodes, job=own, layout=pins, goals=aims, launch=start)
    tree["job"]["checkpoint"] = "/models/x"
    plan, sink = planned(tree | {"emit": ["rankmap", "slurm", "vllm"]})
    assert (plan is None) == sink.failed()
    if plan is not None:
        found = Sink()
        emit_plan(plan, found)
        assert not found.failed(), [one.finding.message for one in found.diagnostics]


@examples(6)
@given(model=model, nodes=st.integers(1, 3))
def test_the_order_of_keys_changes_nothing(model: str, nodes: int) -> None:
    tree = spec(model, "dgx-h100", nodes, layout={"pp": 1, "replicas": 1})
    tree["job"]["checkpoint"] = "/models/x"
    turned = {key: tree[key] for key in reversed(tree)}
    turned["job"] = dict(reversed(tree["job"].items()))
    assert plan_of(tree).layout == plan_of(turned).layout
    assert plan_of(tree).problem.digest == plan_of(turned).problem.digest


@examples(6)
@given(model=model, more=st.sampled_from([1.1, 1.5, 3.0]))
def test_more_memory_loses_no_layout(model: str, more: float) -> None:
    tree = spec(model, {"base": "dgx-h100"}, 1)
    tree["job"]["checkpoint"] = "/models/x"
    larger = copy.deepcopy(tree)
    larger["cluster"]["gpu"] = {"base": "h100-sxm-80gb", "memory": f"{85 * more} GB"}
    before, after = plan_of(tree).search, plan_of(larger).search
    assert sum(count for _, count in after.dropped) <= sum(count for _, count in before.dropped)
