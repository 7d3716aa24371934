"""Groups that ``RankOrderVerifier`` derives are those of the meshes of ``PlainFramework``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.backends.plain_framework import PlainFramework
from parc.backends.verifier import DerivedGroups
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.rank_order import RankOrderVerifier
from tests.placement.placement_plans import layout

FILE = "mylab/sizes.json"


class Framework(PlainFramework):
    name = "mylab"
    orders = ("tp-cp-ep-dp-pp",)


def derived(order: str, world: int, sizes: dict[str, Any]) -> tuple[DerivedGroups | None, Sink]:
    verifier = RankOrderVerifier(
        file=FILE, builder="mylab", read_sizes=json.loads, read_order=lambda _: order
    )
    sink = Sink()
    return verifier.derive_groups({FILE: json.dumps(sizes)}, world, sink), sink


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "cp-tp-ep-pp-dp"])
@pytest.mark.parametrize(
    "sizes",
    [
        {"tp": 2, "cp": 2, "pp": 2, "dp": 4, "ep": 4, "etp": 1},
        {"tp": 4, "cp": 1, "pp": 3, "dp": 2, "ep": 2, "etp": 2},
        {"tp": 2, "cp": 3, "pp": 1, "dp": 2, "ep": 1, "etp": 2},
    ],
)
def test_groups_are_those_of_the_meshes(order: str, sizes: dict[str, int]) -> None:
    planned = layout(layers=6, order=order, **sizes)
    dense, expert = Framework().device_meshes(planned)
    found, sink = derived(order, planned.world, sizes)
    assert found is not None, sink.diagnostics
    assert found.sizes["edp"] == planned.edp
    for family in Framework().group_families(planned):
        mesh = dense if family.mesh == "dense" else expert
        groups = {tuple(sorted(one)) for one in mesh.groups_along(*family.axes)}
        one = found.families[family.name]
        assert {tuple(base + member for member in one.members) for base in one.bases} == groups


@pytest.mark.parametrize(
    "sizes", [{"tp": 2, "dp": 4}, {"tp": 2, "dp": 8, "ep": 3}], ids=["ranks", "experts"]
)
def test_sizes_that_do_not_give_the_ranks_are_reported(sizes: dict[str, int]) -> None:
    found, sink = derived("tp-cp-ep-dp-pp", 16, sizes)
    assert found is None
    assert [one.code for one in sink.diagnostics] == ["PARC-A05"]


def test_without_experts_the_expert_tensor_size_is_that_of_dense_layers() -> None:
    found, _ = derived("tp-cp-ep-dp-pp", 16, {"tp": 4, "dp": 4})
    assert found is not None
    assert found.sizes["edp"] == 4
