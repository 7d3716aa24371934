"""Steps and ranks to profile must be part of the run (X11)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compiled import Spec, changed, findings_of

BASE: Spec = {
    "parc": 1,
    "name": "profile",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {"sequence_length": 4096, "global_batch": 64, "steps": 100},
    "layout": {"tp": 1, "pp": 1, "cp": 1},
}


@pytest.mark.parametrize(
    ("profile", "fixes"),
    [
        ({}, []),
        ({"first_step": 99, "last_step": 100, "ranks": [0, 7]}, []),
        ({"ranks": [0, 8]}, ["launch.profile.ranks: [0]"]),
        ({"first_step": 20}, ["launch.profile.last_step: 22"]),
        ({"first_step": 12}, ["launch.profile.last_step: 14"]),
        ({"first_step": 99, "last_step": 50}, ["launch.profile.first_step: 48"]),
        ({"last_step": 101}, ["launch.profile.last_step: 100"]),
    ],
)
def test_what_is_recorded_is_a_part_of_the_run(profile: dict[str, Any], fixes: list[str]) -> None:
    found = findings_of(changed(BASE, {"launch.profile": profile}), "PARC-X11")
    assert [one.fix for one in found] == fixes
