"""Hints at faster layouts whose memory is uncertain."""

from __future__ import annotations

import re
from typing import Any

import parc
from tests.compiled import changed

TIGHT: dict[str, Any] = {
    "parc": 1,
    "name": "tight",
    "model": "llama-2-13b",
    "cluster": {"node": "dgx-a100", "nodes": 4},
    "job": {"sequence_length": 2048, "global_batch": 512},
    "layout": {"pp": 1, "tp": 2, "zero_stage": 1},
    "goals": {"memory_headroom": 0.12},
    "emit": ["deepspeed"],
}


def codes(spec: dict[str, Any]) -> set[str]:
    """Return the codes of all findings on ``spec``."""
    return {found.code for found in parc.check(spec)}


def test_the_headroom_that_the_hint_names_allows_the_faster_layout() -> None:
    (finding,) = [found.finding for found in parc.check(TIGHT) if found.code == "PARC-G05"]
    promised = re.search(r"is (\d+) % faster", finding.message)
    headroom = re.search(r"memory_headroom (0[.\d]+)", finding.help)
    assert promised
    assert headroom
    now = parc.estimate(TIGHT)
    then = parc.estimate(changed(TIGHT, {"goals.memory_headroom": float(headroom[1])}))
    gain = 1 - then.time.total_seconds / now.time.total_seconds
    assert 100 * gain >= int(promised[1]) - 1
    assert then.high_bytes <= then.limit_bytes
    assert now.high_bytes <= now.limit_bytes < then.high_bytes


def test_the_riskier_layout_itself_gets_the_warning_about_memory() -> None:
    pinned = changed(TIGHT, {"layout.micro_batch": 1, "layout.recompute": "none"})
    assert "PARC-G02" in codes(pinned)
    assert "PARC-G05" not in codes(pinned)


def test_a_plan_with_ample_memory_gets_no_hint() -> None:
    assert "PARC-G05" not in codes(changed(TIGHT, {"model": "llama-3-8b"}))
