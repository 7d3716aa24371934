"""Bytes and seconds of dispatch and combine by link, and kernels of routed experts."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from parc.backends.megatron.traffic import MEGATRON_TRAFFIC
from parc.compiler.cost.kernels.collective_time import (
    OPERATIONS,
    CollectiveFit,
    InterDomainNetwork,
    Operation,
)
from parc.compiler.cost.kernels.layer_kernels import ForwardBackward
from parc.compiler.cost.memory.micro_batches import cached_layer_activations
from parc.compiler.cost.memory.peak import memory_model_at_zero_stage
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.links import GroupSpan, Links
from parc.compiler.cost.step.launch_time import launch_seconds
from parc.compiler.cost.step.layer_time import layer_time
from parc.compiler.cost.step.routed_experts import (
    dispatch_seconds,
    expected_distinct_parts,
    routed_expert_seconds,
    routed_traffic_bytes,
    single_copy_dispatch_seconds,
    token_copies_sent,
)
from parc.compiler.ir import (
    DENSE,
    ROUTED,
    Experts,
    Layout,
    PassBytes,
    ProgramTraffic,
    RoutedBytes,
)
from tests.every_layout import enumerate_layouts
from tests.search.search_reference import cost_model_of


def experts(count: int, top_k: int, groups: int = 1, group_top_k: int = 1) -> Experts:
    return Experts(
        count, top_k, 768, 0, False, (True,), False, "softmax", False, groups, group_top_k, "none",
        1.0, 0.0,
    )  # fmt: skip


def plain(operation: Operation) -> CollectiveFit:
    """Return a fit of 300 GB/s without latency."""
    return CollectiveFit(operation, 300.0, 0.0, 0.0, 300.0, 0.0, 0.0, 1.0)


LINKS = Links(8, {each: plain(each) for each in OPERATIONS}, InterDomainNetwork(40.0, 0.0))


def priced(**job: Any) -> CostModel:
    """Return the memo of Qwen3-30B on 32 H100."""
    return cost_model_of(
        {
            "parc": 1,
            "name": "dispatch",
            "model": "qwen3-30b-a3b",
            "cluster": {"node": "dgx-h100", "nodes": 4},
            "job": {"sequence_length": 4096, "global_batch": 256, **job},
        }
    )


def layout(cost_model: CostModel, ep: int) -> Layout:
    """Return a layout with only data and expert parallelism."""
    families = enumerate_layouts(cost_model.problem, cost_model.framework)
    found = next(one for family in families for one in family if one.tp == one.cp == one.pp == 1)
    return replace(found, ep=ep, etp=1, micro_batch=1)


def exposed(cost_model: CostModel, ep: int) -> float:
    """Return the seconds of dispatch and combine of one layer without computation to overlap."""
    one = layout(cost_model, ep)
    return dispatch_seconds(cost_model, one, cost_model.group_spans(one), 0.0)


@pytest.mark.parametrize(
    ("routed", "parts"),
    [
        (experts(8, 2), 4),
        (experts(12, 3), 3),
        (experts(6, 6), 2),
        (experts(9, 1), 3),
        (experts(8, 2, 4, 2), 4),  # a part is a group
        (experts(12, 3, 6, 3), 3),  # a part consists of two groups
        (experts(12, 2, 3, 2), 6),  # a group consists of two parts
        (experts(8, 2, 4, 1), 1),
        (experts(12, 4, 2, 1), 12),
    ],
)
def test_expected_parts_equal_the_mean_over_all_choices_of_groups_and_experts(
    routed: Experts, parts: int
) -> None:
    part, group = routed.count // parts, routed.count // routed.groups
    choices = [
        {expert // part for expert in chosen}
        for groups in combinations(range(routed.groups), routed.group_top_k)
        for chosen in combinations(
            [expert for expert in range(routed.count) if expert // group in groups], routed.top_k
        )
    ]
    mean = sum(len(hit) for hit in choices) / len(choices)
    assert expected_distinct_parts(routed, parts) == pytest.approx(mean)


@given(some.sampled_from((1, 2, 4, 8, 16, 32)), some.integers(1, 16))
def test_expected_parts_are_at_most_the_parts_and_the_experts_per_token(
    parts: int, top_k: int
) -> None:
    hit = expected_distinct_parts(experts(128, top_k), parts)
    assert 1.0 - 1e-9 <= hit <= min(parts, top_k) + 1e-9


def test_a_token_is_sent_once_per_remote_domain() -> None:
    away = expected_distinct_parts(experts(64, 8), 4) * 3 / 4
    assert single_copy_dispatch_seconds(
        LINKS, 1e9, GroupSpan(32, 8), experts(64, 8)
    ) == pytest.approx(away / 40)


def test_inside_a_domain_a_token_is_sent_once_per_rank() -> None:
    ranks = expected_distinct_parts(experts(64, 8), 8)
    expected = ranks * 7 / 8 / 300
    assert single_copy_dispatch_seconds(
        LINKS, 1e9, GroupSpan(8, 8), experts(64, 8)
    ) == pytest.approx(expected)


def test_group_limited_routing_bounds_the_domains() -> None:
    limited = single_copy_dispatch_seconds(LINKS, 1e9, GroupSpan(64, 8), experts(256, 8, 8, 4))
    away = expected_distinct_parts(experts(256, 8, 8, 4), 8) * 7 / 8
    assert limited == pytest.approx(away / 40)
    assert 3 < away < 4
    assert limited < single_copy_dispatch_seconds(LINKS, 1e9, GroupSpan(64, 8), experts(256, 8))


@pytest.mark.parametrize("ep", [8, 16, 32])
def test_single_copies_are_never_slower_than_all_to_all(ep: int) -> None:
    assert 0 < exposed(priced(moe_dispatcher="deepep"), ep) < exposed(priced(), ep)


def test_without_expert_parallelism_dispatch_takes_no_time() -> None:
    assert exposed(priced(), 1) == 0.0


def test_overlap_hides_a_share_that_is_limited_by_the_computation() -> None:
    cost_model = priced(moe_overlap=True)
    one = layout(cost_model, 16)
    groups, whole = cost_model.group_spans(one), exposed(priced(), 16)
    assert dispatch_seconds(cost_model, one, groups, 0.0) == pytest.approx(whole)
    assert dispatch_seconds(cost_model, one, groups, whole / 5) == pytest.approx(0.9 * whole)
    assert dispatch_seconds(cost_model, one, groups, 100 * whole) == pytest.approx(0.55 * whole)


def test_with_few_tokens_a_routed_layer_takes_its_launch_time() -> None:
    cost_model = priced(precision="fp8")
    cost_model.efficiency = replace(cost_model.efficiency, launch_seconds=1.0)
    floor = launch_seconds(cost_model, layout(cost_model, 8), ROUTED)
    assert floor >= 100
    time = layer_time(cost_model, layout(cost_model, 8), ROUTED)
    assert (time.forward, time.backward) == pytest.approx((floor, 2 * floor))
    assert layer_time(cost_model, layout(cost_model, 8), DENSE).forward < floor


def test_casts_and_unfused_permutations_add_time_and_a_fused_mlp_saves_time() -> None:
    def seconds(cost_model: CostModel) -> float:
        return routed_expert_seconds(cost_model, layout(cost_model, 8), 4096).backward

    low = priced(precision="fp8")
    usual = seconds(low)
    low.efficiency = replace(low.efficiency, fused_experts=True)
    assert seconds(low) < usual
    low.efficiency = replace(low.efficiency, fused_experts=False, fused_routing=False)
    assert seconds(low) > usual


def test_more_expert_parameters_per_rank_take_longer_to_accumulate() -> None:
    cost_model = priced()
    cost_model.efficiency = replace(cost_model.efficiency, launch_seconds=0.0)
    wide, narrow = (layer_time(cost_model, layout(cost_model, ep), ROUTED) for ep in (8, 32))
    assert wide.backward > narrow.backward
    assert wide.forward == pytest.approx(narrow.forward, rel=0.05)


def test_more_experts_per_rank_take_longer_to_launch_except_in_a_fused_kernel() -> None:
    cost_model = priced()

    def launches() -> list[float]:
        return [launch_seconds(cost_model, layout(cost_model, ep), ROUTED) for ep in (32, 16, 8)]

    few, some, many = launches()
    # Each expert adds the same number of launches: 4, 8 and 16 experts per rank.
    assert many - some == pytest.approx(2 * (some - few))
    assert some > few
    cost_model.efficiency = replace(cost_model.efficiency, fused_experts=True)
    assert len(set(launches())) == 1


def test_tokens_of_a_single_expert_per_rank_are_not_sorted_after_an_all_to_all() -> None:
    def sorted_bytes(experts: int, **job: Any) -> float:
        cost_model = priced(**job)
        model = cost_model.problem.model
        assert model.experts is not None
        model = replace(model, experts=replace(model.experts, count=experts))
        cost_model.problem = replace(cost_model.problem, model=model)
        return routed_traffic_bytes(cost_model, layout(cost_model, 8), 4096.0).forward

    model = priced().problem.model
    assert model.experts is not None
    passes = 2 * 4 * model.experts.top_k * 4096.0 * model.hidden
    assert sorted_bytes(16) - sorted_bytes(8) == pytest.approx(passes)
    assert sorted_bytes(128) == sorted_bytes(16)
    library = "hybridep"
    assert sorted_bytes(16, moe_dispatcher=library) == sorted_bytes(8, moe_dispatcher=library)


@pytest.mark.parametrize(
    ("ep", "dispatcher", "expected"),
    [
        (1, None, PassBytes(10.0, 20.0)),
        (8, None, PassBytes(30.0, 40.0)),
        (8, "hybridep", PassBytes(50.0, 60.0)),
    ],
)
def test_the_kernels_that_a_program_states_permute_tokens_unless_they_are_fused(
    ep: int, dispatcher: str | None, expected: PassBytes
) -> None:
    cost_model = priced() if dispatcher is None else priced(moe_dispatcher=dispatcher)
    one, model = layout(cost_model, ep), cost_model.problem.model
    stated = RoutedBytes(PassBytes(10.0, 20.0), PassBytes(30.0, 40.0), PassBytes(50.0, 60.0))
    silent, program = MEGATRON_TRAFFIC, replace(MEGATRON_TRAFFIC, routed=stated)
    assert model.experts is not None

    def moved(traffic: ProgramTraffic, is_fused: bool) -> ForwardBackward:
        cost_model.traffic = lambda _: traffic  # type: ignore[method-assign]
        cost_model.efficiency = replace(cost_model.efficiency, fused_routing=is_fused)
        return routed_traffic_bytes(cost_model, one, 4096.0)

    assert moved(program, True) == moved(silent, True)
    elements = model.experts.top_k * 4096.0 * model.hidden
    nothing = replace(program, routed=RoutedBytes(*[PassBytes(0.0, 0.0)] * 3))
    added = moved(program, False), moved(nothing, False)
    assert added[0].forward - added[1].forward == pytest.approx(expected.forward * elements)
    assert added[0].backward - added[1].backward == pytest.approx(expected.backward * elements)
    # A program without expert parallelism states only its own kernels.
    local = replace(program, routed=RoutedBytes(stated.alone))
    assert moved(local, False).forward - added[1].forward == pytest.approx(10.0 * elements)


def test_biases_of_experts_are_added_to_every_routed_row() -> None:
    cost_model = priced()
    one, model = layout(cost_model, 8), cost_model.problem.model
    assert model.experts is not None
    biased = replace(model, experts=replace(model.experts, bias=True))
    rows = model.experts.top_k * 4096.0
    plain = routed_traffic_bytes(cost_model, one, 4096.0)
    cost_model.problem = replace(cost_model.problem, model=biased)
    added = routed_traffic_bytes(cost_model, one, 4096.0)
    assert added.forward - plain.forward == pytest.approx(28 * rows * model.hidden)
    assert added.backward - plain.backward == pytest.approx(40 * rows * model.hidden)


@pytest.mark.parametrize("ep", [1, 8])
def test_all_ranks_wait_for_the_busiest_expert_parallel_rank(ep: int) -> None:
    even, uneven = priced(), priced(moe_imbalance=1.5)
    for cost_model in (even, uneven):
        cost_model.efficiency = replace(cost_model.efficiency, launch_seconds=0.0)
    one = layout(even, ep)
    program = memory_model_at_zero_stage(even, one.zero_stage)
    first, second = (
        (
            routed_expert_seconds(made, one, 4096.0).forward,
            exposed(made, ep),
            cached_layer_activations(made, one, ROUTED, program).moe_act,
        )
        for made in (even, uneven)
    )
    if ep == 1:
        assert second == first
    else:
        assert second[0] == pytest.approx(1.5 * first[0], rel=0.1)
        assert second[1:] == pytest.approx([1.5 * value for value in first[1:]])


def test_dispatch_libraries_send_fewer_copies_of_a_token_than_all_to_all() -> None:
    some_experts, group = experts(128, 8), GroupSpan(32, 8)
    all_to_all = token_copies_sent(priced().problem.job, some_experts, group)
    once = token_copies_sent(priced(moe_dispatcher="hybridep").problem.job, some_experts, group)
    assert all_to_all == 8 * 31 / 32
    # to the three other hosts at most, and at least to those of one expert
    assert 3 / 4 <= once <= 3


def test_a_gated_expert_activates_one_more_row_of_its_width_per_visit() -> None:
    cost_model = priced()
    one, tokens = layout(cost_model, 8), 4096.0
    model = cost_model.problem.model
    assert model.experts is not None
    both = []
    for gated in (True, False):
        ffn = replace(model.ffn, gated=gated)
        cost_model.problem = replace(cost_model.problem, model=replace(model, ffn=ffn))
        both.append(routed_traffic_bytes(cost_model, one, tokens))
    visits = model.experts.top_k * tokens
    assert both[0].forward - both[1].forward == pytest.approx(2 * visits * model.experts.size)
    assert both[0].backward - both[1].backward == pytest.approx(4 * visits * model.experts.size)
