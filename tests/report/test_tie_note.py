"""Reasons why layouts that are predicted to be faster than the chosen one were not chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parc.compiler.ir import Recompute
from parc.compiler.report.page.report_page import report_artifact
from parc.compiler.report.text.search_table import search_text, simplest_difference, tie_note
from parc.compiler.report.text.summary import summary_text
from tests.compiled import changed, plan_of

OPEN: dict[str, Any] = {
    "parc": 1,
    "name": "tied",
    "model": "llama-3-70b",
    "cluster": {"node": "dgx-h100", "nodes": 32},
    "job": {"sequence_length": 8192, "global_batch": 1024},
    "goals": {"tie": 0.05},
}


def test_a_slower_first_layout_is_explained_wherever_candidates_are_shown() -> None:
    plan = plan_of(OPEN)
    first, second = plan.search.ranked[:2]
    assert second.step_seconds < first.step_seconds
    note = tie_note(plan)
    assert "goals.tie: 5 %" in note
    assert simplest_difference(first.layout, second.layout) in note
    assert note in search_text(plan, 10)
    assert note in report_artifact(plan).text
    assert "goals.tie" in summary_text(plan)


def test_without_a_tie_the_fastest_layout_comes_first_and_no_reason_is_given() -> None:
    plan = plan_of(changed(OPEN, {"goals.tie": 0}))
    seconds = [one.step_seconds for one in plan.search.ranked]
    assert seconds[0] == min(seconds)
    assert tie_note(plan) == ""
    assert "goals.tie" not in summary_text(plan) + search_text(plan, 10)


@pytest.mark.parametrize("tie", [0.0, 0.01, 0.1])
def test_the_first_layout_is_slower_than_the_fastest_by_at_most_the_tie(tie: float) -> None:
    plan = plan_of(changed(OPEN, {"goals.tie": tie}))
    first, *others = (one.step_seconds for one in plan.search.ranked)
    assert first <= min(others) * (1 + tie)


def test_recompute_of_all_layers_is_simpler_than_of_a_number_of_layers() -> None:
    layout = plan_of(OPEN).layout
    whole = replace(layout, recompute=Recompute("full", (), "uniform", 1))
    part = replace(layout, recompute=Recompute("full", (), "block", 2))
    assert simplest_difference(whole, part) == (
        "its recompute setting is simpler (full uniform 1 instead of full block 2)"
    )
