"""Tests of warnings and advice on valid plans."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.megatron.boundaries import DENSE, PATTERN
from tests.backends.megatron.test_args_file import plan
from tests.compiled import Spec

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("D21", {"model.kv_heads": 2}, {"model.kv_heads": 4}),
    ("D04", {"model.vocab": 600}, {"model.vocab": 1000}),
    ("P08", {"layout.pp": 6, "layout.tp": 1, "job.global_batch": 16}, {"job.global_batch": 48}),
    (
        "P16",
        {"layout.vpp": 1, "job.global_batch": 24},
        {"layout.vpp": 1, "job.global_batch": 48},
    ),
    (
        "P17",
        {"model.vocab": 2000, "layout.first_stage_layers": 4},
        {"model.vocab": 2000, "layout.first_stage_layers": 8},
    ),
]


@pytest.mark.parametrize(("code", "bad", "good"), CASES, ids=[code for code, _, _ in CASES])
def test_a_warning_appears_on_one_side_of_its_threshold(
    code: str, bad: dict[str, Any], good: dict[str, Any]
) -> None:
    found, sink = plan(DENSE, bad)
    assert found is not None, sink.diagnostics
    assert f"PARC-{code}" in {d.code for d in sink.diagnostics}
    found, sink = plan(DENSE, good)
    assert found is not None, sink.diagnostics
    assert f"PARC-{code}" not in {d.code for d in sink.diagnostics}


@pytest.mark.parametrize(
    ("base", "layout", "expected"),
    [
        (DENSE, {"first_stage_layers": 12}, "give stage 0 fewer layers"),
        (DENSE, {"first_stage_layers": 4}, "give the last stage fewer layers"),
        (
            PATTERN,
            {"pp": 6, "tp": 4},
            "the pattern cannot be split more evenly; a smaller pp may be more even",
        ),
        (PATTERN, {"pipeline_layout": "Et*12|t*4L"}, "give stage 0 fewer layers"),
    ],
)
def test_the_advice_names_the_most_loaded_stage(base: Spec, layout: Spec, expected: str) -> None:
    _, sink = plan(base, {f"layout.{key}": value for key, value in layout.items()})
    (found,) = [one.finding for one in sink.diagnostics if one.code == "PARC-P17"]
    assert found.help == expected
    assert "MTP" not in found.label
