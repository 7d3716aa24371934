"""Hints to use another dispatcher: conditions, and the gain that they promise."""

from __future__ import annotations

from typing import Any

import pytest

import parc
from tests.compiled import findings_of

LAYOUT = {"tp": 1, "cp": 1, "pp": 1, "ep": 32, "etp": 1, "micro_batch": 1}


def spec(model: str = "qwen3-30b-a3b", ep: int = 32, **job: Any) -> dict[str, Any]:
    """Return a spec of 32 H100 in four hosts."""
    return {
        "parc": 1,
        "name": "advice",
        "model": model,
        "cluster": {"node": "dgx-h100", "nodes": 4},
        "job": {"sequence_length": 4096, "global_batch": 256, **job},
        "layout": {**LAYOUT, "ep": ep},
    }


def hints(document: dict[str, Any]) -> list[str]:
    """Return the labels of M16 for a spec."""
    return [one.label for one in findings_of(document, "PARC-M16")]


SHARED_UPLINKS = {
    "node": "dgx-h100",
    "racks": [{"name": name, "nodes": f"{name}[1-2]"} for name in "ab"],
    "fabric": {"base": "infiniband-ndr", "oversubscription": 4},
}
"""Cluster on which placement adds seconds to the step of each dispatcher."""


@pytest.mark.parametrize("cluster", [{"node": "dgx-h100", "nodes": 4}, SHARED_UPLINKS])
def test_the_hint_gives_the_step_time_of_the_other_dispatcher(cluster: dict[str, Any]) -> None:
    document = {**spec(), "cluster": cluster}
    (label,) = hints(document)
    other = {**spec(moe_dispatcher="hybridep"), "cluster": cluster}
    now, then = parc.estimate(document), parc.estimate(other)
    assert (now.time.placement_seconds > 0) is (cluster is SHARED_UPLINKS)
    assert f"{then.time.total_seconds:.3g} s" in label
    assert f"{now.time.total_seconds:.3g} s" in label
    assert then.time.total_seconds < 0.95 * now.time.total_seconds


@pytest.mark.parametrize("name", ["alltoall", "deepep", "hybridep"])
def test_a_spec_with_an_explicit_dispatcher_gets_no_hint(name: str) -> None:
    assert hints(spec(moe_dispatcher=name)) == []


def test_a_layout_without_expert_parallelism_gets_no_hint() -> None:
    assert hints(spec(ep=1)) == []


def test_a_framework_without_the_libraries_gets_no_hint() -> None:
    document = spec(ep=8)
    document["emit"] = ["deepspeed"]
    assert hints(document) == []


def test_a_network_without_the_libraries_gets_a_hint_only_inside_a_host() -> None:
    document = spec()
    document["cluster"] = {"node": "aws-p5", "nodes": 4}
    assert hints(document) == []
    document["cluster"] = {"node": "aws-p5", "fabric": "roce-400g", "nodes": 4}
    assert hints(document) != []


def test_a_gain_below_the_threshold_gets_no_hint() -> None:
    # Inside one host NVLink carries every copy, and two copies of a token are few. The kernels of
    # such large experts take longer than their launches.
    assert hints(spec("mixtral-8x7b", ep=2)) == []
