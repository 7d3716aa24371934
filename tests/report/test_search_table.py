"""Tests of the search table: it shows the time that the placement of a candidate adds."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest

from parc.compiler.ir import Plan
from parc.compiler.report.formatting import format_seconds
from parc.compiler.report.text.search_table import search_csv, search_text
from parc.compiler.report.text.summary import format_placement, summary_text
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
    chosen, *others = plan.search.ranked
    assert plan.estimate.time.total_seconds == chosen.step_seconds
    least = chosen.step_seconds - chosen.placed_seconds
    wider = [one for one in others if one.layout.ep > 8]
    # Without their placement, these candidates would be faster.
    faster = [one for one in wider if one.step_seconds - one.placed_seconds < least]
    assert faster
    assert all(one.placed_seconds > one.step_seconds / 3 for one in faster)


def test_the_step_of_a_candidate_contains_its_placement(plan: Plan) -> None:
    rows = list(csv.DictReader(io.StringIO(search_csv(plan, 20))))
    seconds = [float(row["step_seconds"]) for row in rows]
    assert seconds[0] <= min(seconds) * 1.03
    assert any(float(row["placed_seconds"]) for row in rows)
    assert "placement" in search_text(plan, 20).splitlines()[2].split()


def test_only_columns_that_distinguish_candidates_are_shown(plan: Plan) -> None:
    dense = {
        **{"parc": 1, "name": "dense", "model": "llama-3.2-1b", "emit": ["fsdp"]},
        "cluster": {"node": "hgx-h100", "nodes": 1},
        "job": {"sequence_length": 1024, "global_batch": 64},
    }
    head = search_text(plan_of(dense), 10).splitlines()[2].split()
    assert "zero_stage" in head
    assert not {"dp_replicate", "ep", "etp"} & set(head)
    assert {"ep", "etp"} < set(search_text(plan, 10).splitlines()[2].split())


def test_the_step_time_contains_a_placement_that_prolongs_the_step() -> None:
    wide = plan_of(changed(TAILS, {"layout.ep": 16}))
    time = wide.estimate.time
    assert time.placement_seconds > 0.2 * time.seconds_before_placement
    assert time.total_seconds == time.seconds_before_placement + time.placement_seconds
    assert re.search(
        r"links between hosts \(counted as ([a-z, ]+ and )?placement\)", format_placement(wide)
    )
    assert f"step      {format_seconds(time.total_seconds)} (" in summary_text(wide)
    # Length, throughput and MFU of the run follow from the same step.
    assert wide.run.productive_seconds == wide.run.steps * time.total_seconds
    tokens = wide.run.tokens / wide.run.steps
    assert wide.estimate.tokens_per_second == pytest.approx(tokens / time.total_seconds)
    assert wide.estimate.mfu < 0.9 * _mfu_at_full_bandwidth(wide)
    assert wide.estimate.step_low_seconds < time.total_seconds < wide.estimate.step_high_seconds


def _mfu_at_full_bandwidth(plan: Plan) -> float:
    time = plan.estimate.time
    return plan.estimate.mfu * time.total_seconds / time.seconds_before_placement


def test_no_placement_time_is_shown_if_hosts_share_no_link() -> None:
    level = plan_of(
        changed(
            TAILS,
            {"cluster": {"node": "dgx-h100", "nodes": 64}, "job.precision": "bf16", "layout": {}},
        )
    )
    assert format_placement(level).startswith("one rack, ")
    assert level.estimate.time.placement_seconds == 0
    assert "of the step" not in format_placement(level)
    assert "placement" not in search_text(level, 5)


def test_a_wait_that_would_be_shown_as_zero_is_not_shown() -> None:
    tiny = plan_of(
        {
            **{"parc": 1, "name": "tiny", "model": "llama-3.1-8b", "emit": ["megatron"]},
            "cluster": {"node": "hgx-h100", "nodes": 2},
            "job": {"sequence_length": 4, "global_batch": 32},
            "layout": {"pp": 4, "tp": 1},
        }
    )
    assert 0 < tiny.placement.proof.exposed_seconds < 5e-6
    assert "no waits on links between hosts" in format_placement(tiny)
