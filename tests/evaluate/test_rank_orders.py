"""Tensor-parallel groups are compared with NVLink domains in the framework's own rank order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.diagnostics import Diagnostic
from parc.compiler.ir import Plan
from tests.backends import minitrain
from tests.backends.minitrain import BACKEND, VERIFIER, install_minitrain
from tests.backends.plugin_distributions import scanned
from tests.compiled import plan_of, planned

CP_FIRST = "cp-tp-ep-pp-dp"
ORDER = 'orders = ("tp-cp-ep-dp-pp",)'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of ``sys.path`` with Minitrain, in whose ranks cp varies fastest."""
    with scanned(tmp_path, monkeypatch):
        edits = (
            (BACKEND, ORDER, f'orders = ("{CP_FIRST}", "tp-cp-ep-pp-dp")'),
            (BACKEND, '"tp": "mesh.tp",', '"tp": "mesh.tp", "cp-p2p": "mesh.cp",'),
            (BACKEND, '{"tp": layout.tp,', '{"cp": layout.cp, "tp": layout.tp,'),
            (VERIFIER, '("tp", "pp", "dp")', '("cp", "tp", "pp", "dp")'),
            (VERIFIER, '"tp-cp-ep-dp-pp"', f'"{CP_FIRST}"'),
        )
        install_minitrain(tmp_path, *edits)
        yield tmp_path


def spec(**layout: Any) -> dict[str, Any]:
    return minitrain.spec(
        model="llama-3-70b",
        cluster={"node": "hgx-h100", "nodes": 8},
        job={"sequence_length": 8192, "global_batch": 256},
        layout=layout,
    )


def errors(**layout: Any) -> list[Diagnostic]:
    found = planned(spec(**layout))[1].diagnostics
    return [one for one in found if one.severity == "error"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("layout", [{"tp": 8}, {"tp": 4, "pp": 4}])
def test_the_search_chooses_layouts_whose_groups_fit_into_a_domain(layout: dict[str, Any]) -> None:
    plan = plan_of(spec(**layout))
    assert isinstance(plan, Plan)
    assert plan.layout.order == CP_FIRST
    groups = plan.placement.dense.groups_along("tp")
    assert all(len({rank // 8 for rank in group}) == 1 for group in groups)


@pytest.mark.usefixtures("folder")
def test_a_fixed_layout_across_domains_names_the_faster_axis() -> None:
    (found,) = errors(tp=8, cp=4)
    assert found.code == "PARC-T02"
    assert (
        f"because cp 4 varies faster than tp in the rank order {CP_FIRST}" in found.finding.message
    )
    assert found.finding.help == "valid tp with cp 4: 1, 2"
    assert found.finding.fix == "layout.cp: 1"
    assert errors(tp=8, cp=1) == []
    assert errors(tp=2, cp=4) == []


@pytest.mark.usefixtures("folder")
def test_the_other_order_of_the_framework_is_accepted_by_name() -> None:
    assert errors(tp=8, cp=2, order="tp-cp-ep-pp-dp") == []


@pytest.mark.usefixtures("folder")
def test_an_order_that_the_framework_lacks_is_refused_with_the_valid_ones() -> None:
    (found,) = errors(tp=8, order="tp-cp-ep-dp-pp")
    assert (found.code, found.finding.fix) == ("PARC-E11", f"layout.order: {CP_FIRST}")
    assert f"valid order: {CP_FIRST}, tp-cp-ep-pp-dp" in found.finding.help
    assert "megatron" in found.finding.help


@pytest.mark.parametrize("target", ["fsdp", "torchtitan", "accelerate", "deepspeed"])
def test_frameworks_with_one_order_refuse_others(target: str) -> None:
    tree = spec(order="tp-cp-ep-pp-dp") | {"emit": [target]}
    codes = {one.code for one in planned(tree)[1].diagnostics if one.severity == "error"}
    assert codes == {"PARC-E11"}


def test_megatron_refuses_an_unknown_order() -> None:
    tree = spec(order="pp-tp") | {"emit": ["megatron"]}
    (found,) = [one for one in planned(tree)[1].diagnostics if one.severity == "error"]
    assert found.finding.help.startswith("valid order: tp-cp-ep-dp-pp, tp-cp-ep-pp-dp")
