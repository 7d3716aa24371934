"""Engines on hosts: whole racks first, even shares, and the numbering of vLLM."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.backends.registry import engine
from parc.compiler.ir import ServingLayout
from parc.compiler.topology.arrange_hosts import engine_hosts, replica_counts, service_hosts
from tests.search.serving_specs import plan_of, spec

degree = st.sampled_from([1, 2, 3, 4, 6, 8, 16])


def naive_groups(layout: ServingLayout) -> dict[str, list[list[int]]]:
    """The grid DP x PP x PCP x TP of parallel_state.py, by plain loops over one engine."""
    sizes = (layout.dp, layout.pp, layout.pcp, layout.tp)
    place = dict(enumerate(product(*map(range, sizes))))
    shared = {"tp": (0, 1, 2), "pp": (0, 2, 3), "dp": (1, 2, 3), "cp": (0, 1, 3), "ep": (1,)}
    groups: dict[str, list[list[int]]] = {}
    for name, axes in shared.items():
        found: dict[tuple[int, ...], list[int]] = {}
        for rank, where in place.items():
            found.setdefault(tuple(where[axis] for axis in axes), []).append(rank)
        groups[name] = list(found.values())
    return groups


@given(tp=degree, pp=degree, dp=degree, pcp=st.sampled_from([1, 2]))
def test_groups_are_those_of_the_rank_grid(tp: int, pp: int, dp: int, pcp: int) -> None:
    layout = ServingLayout(tp=tp, pp=pp, dp=dp, pcp=pcp)
    mesh = engine("vllm").mesh(layout)
    expected = naive_groups(layout)
    axes = {"tp": ("tp",), "pp": ("pp",), "dp": ("dp",), "cp": ("cp",), "ep": ("tp", "cp", "dp")}
    for name, over in axes.items():
        assert sorted(map(sorted, mesh.groups_along(*over))) == sorted(expected[name])


@given(tp=degree, pp=degree, dp=degree, host=st.sampled_from([4, 6, 8]))
def test_hosts_of_an_engine_hold_as_many_ranks_and_whole_groups(
    tp: int, pp: int, dp: int, host: int
) -> None:
    layout = ServingLayout(tp=tp, pp=pp, dp=dp)
    hosts = engine_hosts(layout, host)
    if hosts is None:
        return
    assert layout.engine_gpus % hosts == 0
    local = layout.engine_gpus // hosts
    assert local <= host
    if hosts > 1:
        assert local % tp == 0 or tp % local == 0


@given(tp=st.sampled_from([1, 2, 4, 8]), hosts=st.integers(1, 6))
def test_every_number_of_replicas_that_is_offered_lies_on_the_hosts(tp: int, hosts: int) -> None:
    for count in replica_counts(ServingLayout(tp=tp), 8, hosts):
        used = service_hosts(ServingLayout(tp=tp, replicas=count), 8)
        assert used is not None
        assert used <= hosts


def racks(*sizes: int) -> dict[str, Any]:
    """Racks a, b, ... of so many hosts."""
    listed = [
        {"name": name, "nodes": f"{name}[1-{size}]"}
        for name, size in zip("abcdef", sizes, strict=False)
    ]
    return {"node": "hgx-h100", "racks": listed}


@pytest.mark.parametrize(
    ("sizes", "cut"), [((3, 3), 0), ((2, 4), 0), ((3, 2, 1), 1), ((1, 4, 1), 0)]
)
def test_the_hosts_of_an_engine_share_a_rack_where_racks_allow_it(
    sizes: tuple[int, ...], cut: int
) -> None:
    layout = {"tp": 8, "pp": 2, "replicas": 2}
    plan = plan_of(spec("llama-3.1-405b", "hgx-h100", layout=layout) | {"cluster": racks(*sizes)})
    hosts = plan.placement.hosts
    pairs = [hosts[start : start + 2] for start in (0, 2)]
    assert sum(first.rack != second.rack for first, second in pairs) <= cut


def test_engines_on_part_of_the_hosts_leave_a_warning_about_the_rest() -> None:
    plan = plan_of(spec("llama-3.1-8b", "dgx-h100", 3, layout={"tp": 4, "replicas": 3}))
    assert plan.placement.ranks_per_node == 4
    assert len(plan.placement.hosts) == 3
