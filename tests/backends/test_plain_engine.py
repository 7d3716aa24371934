"""Defaults of ``PlainEngine`` follow from the strategies that an engine declares."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from parc.backends.plain_engine import PlainEngine
from parc.compiler.ir import ServingLayout
from tests.search.serving_specs import problem_of, spec

LAYOUT = ServingLayout(tp=2, pp=2, dp=4, pcp=3, replicas=2)


class Engine(PlainEngine):
    """An engine with pipelines and expert parallelism, whose data-parallel ranks are near."""

    name = "mylab"
    versions = ("1.0", "1.1")
    order = "tp-dp-cp-pp-replica"
    strategies: ClassVar[dict[str, str]] = {"tp": "--tp", "1f1b": "--pp", "ep": "--ep"}


class EngineWithoutExperts(Engine):
    """An engine with pipelines, without expert parallelism."""

    strategies: ClassVar[dict[str, str]] = {"tp": "--tp", "1f1b": "--pp"}


def test_experts_are_distributed_over_a_stage_if_the_engine_declares_it() -> None:
    assert Engine().expert_parallel_sizes(LAYOUT) == (1, 2 * 3 * 4)
    assert Engine().expert_parallel_sizes(ServingLayout(pp=2)) == (1,)
    assert EngineWithoutExperts().expert_parallel_sizes(LAYOUT) == (1,)


@pytest.mark.parametrize(
    ("model", "ep", "names"),
    [
        ("mixtral-8x7b", 4, ["replica", "dp", "pp", "cp", "tp", "ep"]),
        ("mixtral-8x7b", 1, ["replica", "dp", "pp", "cp", "tp"]),
        ("llama-3-8b", 1, ["replica", "dp", "pp", "cp", "tp"]),
    ],
)
def test_every_axis_is_a_column_of_the_rank_map(model: str, ep: int, names: list[str]) -> None:
    problem = problem_of(spec(model, "dgx-h100"))
    families = Engine().group_families(problem, replace(LAYOUT, ep=ep))
    assert [one.name for one in families if one.column] == names


def test_ranks_follow_the_order_of_the_axes() -> None:
    mesh = Engine().mesh(LAYOUT)
    assert [axis.name for axis in mesh.axes] == ["tp", "dp", "cp", "pp", "replica"]
    assert mesh.groups_along("tp", "dp")[0] == list(range(8))


def test_the_newest_version_is_the_default() -> None:
    assert Engine().default_version == "1.1"
