"""The exchange of context ranks where no pin names one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.context_exchange import attention_exchange_seconds
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import ContextComm, Layout
from parc.compiler.search.choose_context_exchange import (
    MIN_SAVING,
    fastest_exchange,
    with_all_to_all_size,
)
from parc.compiler.search.search_layouts import search_layouts
from tests.compiled import Spec, changed
from tests.every_layout import enumerate_layouts
from tests.search.search_reference import cost_model_of

BASE: Spec = {
    "parc": 1,
    "name": "long",
    "model": {
        "name": "wide",
        "layers": 8,
        "hidden": 4096,
        "ffn": 8192,
        "heads": 32,
        "kv_heads": 32,
        "head_dim": 128,
        "vocab": 32000,
        "position": {"kind": "rope", "max_positions": 1048576},
    },
    "cluster": {"node": "dgx-h100", "nodes": 4},
    "job": {"sequence_length": 16384, "global_batch": 8},
    "layout": {"tp": 1, "cp": 16, "pp": 1},
    "emit": ["megatron"],
}
THIN = {"cluster.node": {"base": "dgx-h100", "nics": 1, "nic_speed": "100Gb/s"}}

LATENT = {"base": "deepseek-v2-lite"}
FEW = THIN | {"model.kv_heads": 8}


def first(changes: dict[str, Any]) -> tuple[CostModel, Layout]:
    cost_model = cost_model_of(changed(BASE, changes))
    return cost_model, next(enumerate_layouts(cost_model.problem, cost_model.framework))[0]


def seconds(cost_model: CostModel, layout: Layout, comm: ContextComm, core: float) -> float:
    name, inner = with_all_to_all_size(cost_model.problem, layout, comm)
    made = replace(layout, cp_comm=name, cp_a2a=inner, micro_batch=1)
    return attention_exchange_seconds(cost_model, made, cost_model.group_spans(made), core).total


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # A ring of two on NVLink, which the attention core hides.
        ({"layout.cp": 2, "job.sequence_length": 131072}, ("p2p", 1)),
        # One NIC a host: fewest bytes, as every rank has two heads.
        (THIN, ("a2a", 1)),
        # Of 8 key-value heads one for each neighbor: a ring over two hosts.
        (FEW, ("a2a+p2p", 8)),
        # Of 12 key-value heads four neighbors have three each.
        (THIN | {"model.heads": 36, "model.kv_heads": 12}, ("a2a+p2p", 4)),
        # Of three, none: the ring is what is left.
        (THIN | {"model.heads": 33, "model.kv_heads": 3}, ("p2p", 1)),
        # Neighbors beside tp.
        (FEW | {"layout.tp": 2}, ("a2a+p2p", 4)),
        # A window cannot go round a ring; 16 ranks swap 32 heads.
        ({"model.window": 1024, "job.sequence_length": 131072}, ("a2a", 1)),
        # Nor can it swap what does not divide.
        ({"model.window": 1024, "model.heads": 36, "model.kv_heads": 36}, ("all_gather", 1)),
        # Latent attention has keys wider than values: no plain Ulysses.
        (THIN | {"model": LATENT, "model.layers": 8}, ("a2a+p2p", 8)),
    ],
)
def test_what_is_chosen(changes: dict[str, Any], expected: tuple[ContextComm, int]) -> None:
    cost_model, layout = first(changes)
    rules = all_rules(cost_model.problem, cost_model.framework)
    assert fastest_exchange(cost_model, rules)(layout) == expected


@pytest.mark.parametrize(
    "model",
    [
        {"base": "nemotron-h-8b", "layers": 8, "pattern": "M" * 8},
        {
            "base": "qwen3-next-80b-a3b",
            "layers": 8,
            "linear_attention": {"full_attention_every": 9},
        },
    ],
)
def test_a_model_in_which_no_layer_attends_has_keys_and_values_to_exchange_nowhere(
    model: dict[str, Any],
) -> None:
    changes = {"model": model, "layout.cp": 2, "job.global_batch": 32}
    cost_model, layout = first(changes)
    assert fastest_exchange(cost_model, ())(layout) == ("p2p", 1)
    assert search_layouts(cost_model, Sink()) is not None


def test_what_is_chosen_saves_its_share_of_a_layer() -> None:
    cost_model, layout = first(FEW)
    rules = all_rules(cost_model.problem, cost_model.framework)
    chosen, inner = fastest_exchange(cost_model, rules)(layout)
    ring, other = (seconds(cost_model, layout, comm, 1e-3) for comm in ("p2p", chosen))  # type: ignore[arg-type]
    assert (chosen, inner) == ("a2a+p2p", 8)
    assert ring - other > MIN_SAVING * ring


def test_pins_are_kept() -> None:
    cost_model, layout = first(FEW | {"layout.cp_a2a": 2})
    assert (layout.cp_comm, layout.cp_a2a) == ("a2a+p2p", 2)
    found = search_layouts(cost_model, Sink())
    assert found is not None
    assert {(one.layout.cp_comm, one.layout.cp_a2a) for one in found.ranked} == {("a2a+p2p", 2)}
    cost_model, _ = first(THIN | {"layout.cp_comm": "p2p"})
    found = search_layouts(cost_model, Sink())
    assert found is not None
    assert {one.layout.cp_comm for one in found.ranked} == {"p2p"}


def test_the_search_takes_the_fastest() -> None:
    cost_model, _ = first(FEW)
    found = search_layouts(cost_model, Sink())
    assert found is not None
    assert {(one.layout.cp_comm, one.layout.cp_a2a) for one in found.ranked} == {("a2a+p2p", 8)}


def test_layers_without_attention_exchange_nothing() -> None:
    mamba = {"heads": 64, "head_dim": 64, "state_size": 64, "groups": 16}
    cost_model, layout = first({"model.pattern": "MMMM----", "model.mamba": mamba})
    chosen = fastest_exchange(cost_model, all_rules(cost_model.problem, cost_model.framework))
    assert chosen(layout) == ("p2p", 1)
