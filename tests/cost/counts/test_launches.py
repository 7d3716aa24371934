"""Host launches of a layer: which parts of a layer add to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.cost.counts.launches import (
    captured_launches,
    forward_launches,
    replayed_launches,
    unfused_launches,
)
from parc.compiler.ir import LayerKind
from tests.cost.step.test_dispatch import DENSE, ROUTED, priced


def test_unfused_kernels_need_more_launches_than_fused_ones() -> None:
    model = priced().problem.model
    assert unfused_launches(DENSE) > forward_launches(model, DENSE, 0.0, low_precision=False)
    # The operators that were recorded for a dense layer of Megatron-Core's local specification.
    assert unfused_launches(DENSE) == 57


@pytest.mark.parametrize("kind", [DENSE, ROUTED])
def test_casts_of_operands_are_launches_of_their_own(kind: LayerKind) -> None:
    model = priced().problem.model
    plain, low = (forward_launches(model, kind, 4.0, low_precision=one) for one in (False, True))
    assert low > plain


def test_a_routed_layer_needs_the_launches_of_router_experts_and_shared_experts() -> None:
    model = priced().problem.model
    assert model.experts is not None
    dense = forward_launches(model, DENSE, 0.0, low_precision=False)
    few, many = (forward_launches(model, ROUTED, one, low_precision=False) for one in (1.0, 9.0))
    assert dense < few < many
    shared = replace(model, experts=replace(model.experts, shared_size=1024))
    alone = replace(model, experts=replace(model.experts, shared_size=0))
    counts = [forward_launches(one, ROUTED, 1.0, low_precision=False) for one in (alone, shared)]
    assert counts[1] > counts[0]


def test_a_replayed_layer_keeps_only_the_launches_outside_of_its_graph() -> None:
    model = priced().problem.model
    whole = frozenset({"attention", "mlp"})
    # A dense layer is one graph: a tenth of its 29 launches remains.
    assert forward_launches(model, DENSE, 0.0, low_precision=False) == 29
    assert replayed_launches(model, DENSE, 0.0, False, whole) == 3
    part = frozenset({"attention", "router", "preparation"})
    plain = forward_launches(model, ROUTED, 8.0, low_precision=False)
    # 14 operators and 2 linear layers of attention, 32 operators of the router, 7 of preparation.
    assert captured_launches(model, ROUTED, False, part) == 14 + 2 * 3 + 32 + 7
    assert replayed_launches(model, ROUTED, 8.0, False, part) == plain - 59 + 3
    assert replayed_launches(model, ROUTED, 8.0, False, frozenset()) == plain
