"""Tests of the search table: it shows the time that the placement of a candidate adds."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from parc.compiler.ir import Plan
from parc.compiler.report.text.search_table import search_csv, search_text
from parc.compiler.report.text.summary import format_placement
from tests.compiled import changed, plan_of

TAILS: dict[str, Any] = {
    "parc": 1,
    "name": "tails",
    "model": "deepseek-v3",
    "cluster": {
        "node": "gb200-nvl72",
        "racks": [{"name": f"k{i}", "nodes": f"k{i}n[01-18]"} for i in range(8)],
    },
    "job": {"sequence_length": 4096, "global_batch": 4096, "precision": "mxfp8"},
    "layout": {"tp": 1, "cp": 1, "pp": 9},
}
"""Spec for NVLink domains of 72 GPUs: they fit 9 expert groups of 8, but no whole number of 16."""


@pytest.fixture(name="plan", scope="module")
def _plan() -> Plan:
    return plan_of(TAILS)


def test_expert_groups_that_do_not_fit_into_domains_lose(plan: Plan) -> None:
    assert plan.layout.ep == 8
    faster = [
        one for one in plan.search.ranked if one.step_seconds < plan.search.ranked[0].step_seconds
    ]
    wider = [one for one in faster if one.layout.ep > 8]
    assert wider
    assert all(one.placed_seconds > one.step_seconds / 2 for one in wider)


def test_the_table_shows_the_placement_time_of_candidates(plan: Plan) -> None:
    rows = list(csv.DictReader(io.StringIO(search_csv(plan, 20))))
    totals = [float(row["step_seconds"]) + float(row["placed_seconds"]) for row in rows]
    assert totals[0] <= min(totals) * 1.03
    assert "placement" in search_text(plan, 20).splitlines()[2].split()


def test_the_summary_shows_a_placement_that_prolongs_the_step(plan: Plan) -> None:
    wide = plan_of(changed(TAILS, {"layout.ep": 16}))
    assert format_placement(wide).endswith(" s to the step")
    level = plan_of(
        changed(
            TAILS,
            {"cluster": {"node": "dgx-h100", "nodes": 64}, "job.precision": "bf16", "layout": {}},
        )
    )
    assert format_placement(level).startswith("one rack, ")
    assert "adds" not in format_placement(level)
    assert "placement" not in search_text(level, 5)
