"""Bytes and exposed seconds of the variants of context parallelism."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.cost.setup.links import GroupSpan
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.step.context_exchange import (
    context_bytes,
    exchange_seconds,
    key_value_bytes,
    query_output_bytes,
    ring_exchange_seconds,
    ulysses_seconds,
)
from parc.compiler.ir import DENSE, ContextComm, Layout
from tests.every_layout import enumerate_layouts
from tests.search.search_reference import pricing_of

SPEC = {
    "parc": 1,
    "name": "long",
    "model": "llama-3-70b",
    "cluster": {"node": "dgx-h100", "nodes": 8},
    "job": {"sequence_length": 65536, "global_batch": 8},
    "layout": {"tp": 2, "cp": 16, "pp": 1},
    "emit": ["megatron"],
}


def priced(comm: ContextComm, inner: int = 1) -> tuple[Pricing, Layout]:
    """Return a layout on 32 ranks with ``comm``: 2 tensor ranks, 16 context ranks on four hosts."""
    pricing = pricing_of(SPEC)
    layout = next(enumerate_layouts(pricing.problem, pricing.framework))[0]
    return pricing, replace(layout, cp_comm=comm, cp_a2a=inner)


def test_a_hierarchy_exchanges_heads_among_neighbours_and_keys_in_a_ring() -> None:
    pricing, layout = priced("a2a+p2p", 4)
    keys, queries = key_value_bytes(pricing, layout), query_output_bytes(pricing, layout)
    # 4 of 8 key-value heads of 128 dims, K and V, 16 bit; 32 of 64 heads, Q and O; 4096 tokens
    assert (keys, queries) == (4096 * 4 * 128 * 4, 4096 * 32 * 128 * 4)
    assert context_bytes(pricing, layout, DENSE) == {
        "cp_a2a": 2 * (keys + queries) * 3 / 4,
        "cp_p2p": 3 * 3 * keys,
    }


def test_the_exchange_among_neighbours_stays_in_the_domain() -> None:
    pricing, layout = priced("a2a+p2p", 4)
    groups = pricing.groups(layout)
    assert (groups.cp_a2a, groups.cp_p2p) == (GroupSpan(4, 4), GroupSpan(4, 1))
    assert groups.cp == GroupSpan(16, 4)
    pricing, layout = priced("p2p")
    assert pricing.groups(layout).cp_p2p == groups.cp


def test_time_of_a_hierarchy_is_a_shorter_ring_plus_an_exchange_of_neighbours() -> None:
    pricing, layout = priced("a2a+p2p", 4)
    groups, core = pricing.groups(layout), 1e-4
    ring = ring_exchange_seconds(pricing, layout, groups, core)
    swaps = ulysses_seconds(pricing, layout, groups.cp_a2a)
    assert exchange_seconds(pricing, layout, groups, core) == ring + swaps
    whole = exchange_seconds(*priced("p2p"), pricing.groups(priced("p2p")[1]), core)
    assert 0 < swaps < ring < whole


def test_a_hierarchy_of_all_ranks_is_ulysses_and_of_one_rank_a_ring() -> None:
    pricing, layout = priced("a2a+p2p", 4)
    ring = replace(layout, cp_comm="p2p", cp_a2a=1)
    moved = context_bytes(pricing, layout, DENSE)
    swaps = context_bytes(pricing, replace(layout, cp=4, cp_comm="a2a", cp_a2a=1), DENSE)["cp"]
    # Four times the tokens a rank, so four times the bytes.
    assert moved["cp_a2a"] == swaps / 4
    assert moved["cp_p2p"] / context_bytes(pricing, ring, DENSE)["cp"] == pytest.approx(3 / 15)


def test_without_context_parallelism_nothing_is_exchanged() -> None:
    pricing = pricing_of(
        {
            "parc": 1,
            "name": "alone",
            "model": "llama-3-8b",
            "cluster": {"node": "dgx-h100", "nodes": 2},
            "job": {"sequence_length": 4096, "global_batch": 64},
        }
    )
    families = enumerate_layouts(pricing.problem, pricing.framework)
    one = next(one for family in families for one in family if one.cp == 1)
    assert exchange_seconds(pricing, one, pricing.groups(one), 1.0) == 0.0
