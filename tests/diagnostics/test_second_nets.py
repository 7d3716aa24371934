"""Codes that no spec causes today, because an earlier check or the search prevents the error."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.registry import framework
from parc.compiler.diagnostics.codes import code_info
from tests.placement.placement_plans import cluster, layout, problem


def test_copies_of_the_optimizer_must_divide_the_expert_replicas() -> None:
    on = problem(cluster(4))
    (rule,) = (one for one in framework("megatron").rules(on) if one.code == "D15")
    whole = layout(tp=1, dp=32)
    four = replace(whole, dp_replicate=4, dp_shard=8)
    assert not rule.broken(on, whole)
    assert not rule.broken(on, four)
    uneven = replace(whole, dp_replicate=4, dp_shard=8, ep=16)
    assert rule.broken(on, uneven)
    # Without sharding, there are no copies.
    assert not rule.broken(on, replace(uneven, zero_stage=0))
    assert rule.explain(on, uneven).label == "2 % 4 = 2, must be 0"
    assert code_info("D15").severity == "error"
