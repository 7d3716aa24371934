"""Bytes and exposed seconds of the variants of context parallelism."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.links import GroupSpan
from parc.compiler.cost.step.context_exchange import (
    attention_exchange_seconds,
    context_exchange_bytes,
    key_value_bytes,
    query_output_bytes,
    ring_exchange_seconds,
    ulysses_exchange_seconds,
)
from parc.compiler.ir import DENSE, ContextComm, Layout
from tests.every_layout import enumerate_layouts
from tests.search.search_reference import cost_model_of

SPEC = {
    "parc": 1,
    "name": "long",
    "model": "llama-3-70b",
    "cluster": {"node": "dgx-h100", "nodes": 8},
    "job": {"sequence_length": 65536, "global_batch": 8},
    "layout": {"tp": 2, "cp": 16, "pp": 1},
    "emit": ["megatron"],
}


def priced(comm: ContextComm, inner: int = 1) -> tuple[CostModel, Layout]:
    """Return a layout on 32 ranks with ``comm``: 2 tensor ranks, 16 context ranks on four hosts."""
    cost_model = cost_model_of(SPEC)
    layout = next(enumerate_layouts(cost_model.problem, cost_model.framework))[0]
    return cost_model, replace(layout, cp_comm=comm, cp_a2a=inner)


def test_a_hierarchy_exchanges_heads_among_neighbors_and_keys_in_a_ring() -> None:
    cost_model, layout = priced("a2a+p2p", 4)
    keys, queries = key_value_bytes(cost_model, layout), query_output_bytes(cost_model, layout)
    # 4 of 8 key-value heads of 128 dims, K and V, 16 bit; 32 of 64 heads, Q and O; 4096 tokens
    assert (keys, queries) == (4096 * 4 * 128 * 4, 4096 * 32 * 128 * 4)
    assert context_exchange_bytes(cost_model, layout, DENSE) == {
        "cp_a2a": 2 * (keys + queries) * 3 / 4,
        "cp_p2p": 3 * 3 * keys,
    }


def test_the_exchange_among_neighbors_stays_in_the_domain() -> None:
    cost_model, layout = priced("a2a+p2p", 4)
    groups = cost_model.group_spans(layout)
    assert (groups.cp_a2a, groups.cp_p2p) == (GroupSpan(4, 4), GroupSpan(4, 1))
    assert groups.cp == GroupSpan(16, 4)
    cost_model, layout = priced("p2p")
    assert cost_model.group_spans(layout).cp_p2p == groups.cp


def test_time_of_a_hierarchy_is_a_shorter_ring_plus_an_exchange_of_neighbors() -> None:
    cost_model, layout = priced("a2a+p2p", 4)
    groups, core = cost_model.group_spans(layout), 1e-4
    ring = ring_exchange_seconds(cost_model, layout, groups, core)
    swaps = ulysses_exchange_seconds(cost_model, layout, groups.cp_a2a)
    assert attention_exchange_seconds(cost_model, layout, groups, core) == ring + swaps
    whole = attention_exchange_seconds(
        *priced("p2p"), cost_model.group_spans(priced("p2p")[1]), core
    )
    assert 0 < swaps.total < ring.total < whole.total


def test_a_hierarchy_of_all_ranks_is_ulysses_and_of_one_rank_a_ring() -> None:
    cost_model, layout = priced("a2a+p2p", 4)
    ring = replace(layout, cp_comm="p2p", cp_a2a=1)
    moved = context_exchange_bytes(cost_model, layout, DENSE)
    swaps = context_exchange_bytes(
        cost_model, replace(layout, cp=4, cp_comm="a2a", cp_a2a=1), DENSE
    )["cp"]
    # Four times the tokens a rank, so four times the bytes.
    assert moved["cp_a2a"] == swaps / 4
    assert moved["cp_p2p"] / context_exchange_bytes(cost_model, ring, DENSE)["cp"] == pytest.approx(
        3 / 15
    )


def test_without_context_parallelism_nothing_is_exchanged() -> None:
    cost_model = cost_model_of(
        {
            "parc": 1,
            "name": "alone",
            "model": "llama-3-8b",
            "cluster": {"node": "dgx-h100", "nodes": 2},
            "job": {"sequence_length": 4096, "global_batch": 64},
        }
    )
    families = enumerate_layouts(cost_model.problem, cost_model.framework)
    one = next(one for family in families for one in family if one.cp == 1)
    assert (
        attention_exchange_seconds(cost_model, one, cost_model.group_spans(one), 1.0).total == 0.0
    )
