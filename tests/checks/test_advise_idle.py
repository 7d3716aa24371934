"""Hints to leave GPUs idle: conditions, and the gain that they promise."""

from __future__ import annotations

from typing import Any

import pytest

import parc
from tests.compiled import changed

AWKWARD: dict[str, Any] = {
    "parc": 1,
    "name": "awkward",
    "model": "llama-3-70b",
    "cluster": {"node": "dgx-h100", "nodes": 63},
    "job": {"sequence_length": 8192, "global_batch": 1024},
}


def hints(spec: dict[str, Any]) -> list[str]:
    """Return the edits that G04 suggests."""
    return [found.finding.fix for found in parc.check(spec) if found.code == "PARC-G04"]


def test_the_hint_promises_a_shorter_step_on_fewer_gpus() -> None:
    (edit,) = hints(AWKWARD)
    pinned = changed(AWKWARD, {"layout.dp": int(edit.removeprefix("layout.dp: "))})
    now, then = parc.estimate(AWKWARD), parc.estimate(pinned)
    assert then.time.total_seconds < 0.95 * now.time.total_seconds
    assert "PARC-T15" in {found.code for found in parc.check(pinned)}
    assert hints(pinned) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster.nodes": 64},
        {"layout.pp": 63},
        {"goals.maximize": "fewest-gpus"},
    ],
)
def test_smooth_sizes_pinned_sizes_and_fewest_gpus_get_no_hint(changes: dict[str, Any]) -> None:
    assert hints(changed(AWKWARD, changes)) == []
