"""Host launches of a layer: which parts of a layer add to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.cost.counts.launches import (
    Exchange,
    LaunchFacts,
    captured_launches,
    forward_launches,
    replayed_launches,
    unfused_launches,
)
from parc.compiler.cost.kernels.layer_kernels import element_wise_bytes
from parc.compiler.cost.kernels.scaling import SCALINGS
from parc.compiler.ir import FUSED_KERNELS, LayerKind
from tests.cost.step.test_dispatch import DENSE, ROUTED, priced
from tests.placement.placement_plans import layout as layout_of

WIDE = LaunchFacts()
ALL_TO_ALL = LaunchFacts(exchange="alltoall", local_experts=8.0)


def test_unfused_kernels_need_more_launches_than_fused_ones() -> None:
    model = priced().problem.model
    assert unfused_launches(DENSE) > forward_launches(model, DENSE, WIDE)
    # The operators that were recorded for a dense layer of Megatron-Core's local specification.
    assert unfused_launches(DENSE) == 57


@pytest.mark.parametrize("kind", [DENSE, ROUTED])
def test_casts_of_operands_are_launches_of_their_own(kind: LayerKind) -> None:
    model = priced().problem.model
    facts = (LaunchFacts(low_precision=low, local_experts=4.0) for low in (False, True))
    plain, low = (forward_launches(model, kind, one) for one in facts)
    assert low > plain


def test_scales_of_present_values_cost_four_kernels_per_expert_and_layer() -> None:
    # On one GB300 host, Qwen3-30B with 32 local experts takes 33.4 s in bf16 and 53.1 s with one
    # scale per tensor: 6.4 ms per layer and micro-batch, of which the experts are the largest part.
    model = priced().problem.model
    kernels = {name: scaling.cast_kernels for name, scaling in SCALINGS.items()}
    assert (kernels["fp8"], kernels["mxfp8"], kernels["delayed"]) == (4, 1, 0)
    facts = [
        ALL_TO_ALL._replace(low_precision=True, cast_kernels=kernels[name])
        for name in ("delayed", "mxfp8", "fp8")
    ]
    delayed, blocks, tensors = (forward_launches(model, ROUTED, one) for one in facts)
    # Two grouped layers of 8 experts, and a third of a launch for each kernel.
    assert blocks - delayed == pytest.approx(2 * 8 / 3)
    assert tensors - delayed == pytest.approx(4 * 2 * 8 / 3)
    fused = facts[-1]._replace(fused_experts=True)
    assert forward_launches(model, ROUTED, fused) < delayed


def test_norms_of_queries_and_keys_are_kernels_of_their_own() -> None:
    model = priced().problem.model
    plain, normed = (
        replace(model, attention=replace(model.attention, qk_norm=one)) for one in ("none", "head")
    )
    assert forward_launches(normed, DENSE, WIDE) - forward_launches(plain, DENSE, WIDE) == 2
    # One read and one write per element of queries and keys, and twice these bytes backward.
    layout, tokens = layout_of(tp=2), 4096.0
    elements = tokens * (model.attention.heads + model.attention.kv_heads)
    elements *= model.attention.head_dim / layout.tp
    without, moved = (
        element_wise_bytes(one, layout, DENSE, tokens, FUSED_KERNELS) for one in (plain, normed)
    )
    assert moved.forward - without.forward == pytest.approx(4 * elements)
    assert moved.backward - without.backward == pytest.approx(8 * elements)


def test_an_all_to_all_needs_more_launches_than_deepep_and_hybridep() -> None:
    model = priced().problem.model
    exchanges: tuple[Exchange, ...] = ("hybridep", "deepep", "alltoall")
    facts = [ALL_TO_ALL._replace(exchange=one) for one in exchanges]
    counts = [forward_launches(model, ROUTED, one) for one in facts]
    assert counts == sorted(counts)
    # The rows of a single expert need not be sorted.
    sorts = [ALL_TO_ALL._replace(local_experts=one) for one in (1.0, 2.0)]
    alone, two = (forward_launches(model, ROUTED, one) for one in sorts)
    assert two - alone == 4 + 1.5


def test_a_routed_layer_needs_the_launches_of_router_experts_and_shared_experts() -> None:
    model = priced().problem.model
    assert model.experts is not None
    dense = forward_launches(model, DENSE, WIDE)
    few, many = (
        forward_launches(model, ROUTED, WIDE._replace(local_experts=one)) for one in (1.0, 9.0)
    )
    assert dense < few < many
    shared = replace(model, experts=replace(model.experts, shared_size=1024))
    alone = replace(model, experts=replace(model.experts, shared_size=0))
    counts = [forward_launches(one, ROUTED, WIDE) for one in (alone, shared)]
    assert counts[1] > counts[0]


def test_a_replayed_layer_keeps_only_the_launches_outside_of_its_graph() -> None:
    model = priced().problem.model
    whole = frozenset({"attention", "mlp"})
    # A dense layer is one graph: a tenth of its 31 launches remains, 2 of which are norms of
    # queries and keys.
    assert forward_launches(model, DENSE, WIDE) == 31
    assert replayed_launches(model, DENSE, WIDE, whole) == 3
    part = frozenset({"attention", "router", "preparation"})
    plain = forward_launches(model, ROUTED, ALL_TO_ALL)
    # 16 operators and 2 linear layers of attention, 32 operators of the router, 14 of preparation.
    assert captured_launches(model, ROUTED, ALL_TO_ALL, part) == 16 + 2 * 3 + 32 + 14
    assert replayed_launches(model, ROUTED, ALL_TO_ALL, part) == plain - 68 + 3
    assert replayed_launches(model, ROUTED, ALL_TO_ALL, frozenset()) == plain
