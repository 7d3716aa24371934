"""The edit that a finding offers removes the finding."""

from __future__ import annotations

import re
from typing import Any

import pytest

from parc.compiler.diagnostics import Diagnostic, Sink
from parc.compiler.pipeline import plan_spec
from parc.compiler.spec.reading.source import Source
from tests.compiled import changed, planned
from tests.diagnostics.test_every_code import FOLDERS, HERE

EDIT = re.compile(r"([a-z_]+(?:[.\[][\w\]]+)*): (\S+|\[.*\]|\{.*\})(?:   \(.*\))?")
"""A path and its value, with an optional remark. A line with two edits does not match."""
OPEN = re.compile(r"\.\.\.|<\w+>|[A-Z]{4,}|/path/")
"""Placeholders that the user must replace."""
STAY = {"X01": "the unknown key stays until the user removes it"}


def diagnostics_after(code: str, *edits: str) -> tuple[Diagnostic, ...]:
    """Return the diagnostics of the bad spec of ``code`` after ``edits``."""
    folder, sink = HERE / code, Sink()
    extra = folder / "set.txt"
    overrides = extra.read_text("utf-8").splitlines() if extra.is_file() else []
    text = (folder / "spec.yaml").read_bytes().decode("utf-8", "replace")
    plan_spec(Source("spec.yaml", text, folder), [*overrides, *edits], sink)
    return sink.diagnostics


@pytest.mark.parametrize("code", [code for code in FOLDERS if code not in STAY])
def test_the_offered_edit_removes_the_finding(code: str) -> None:
    for found in diagnostics_after(code):
        edit = EDIT.fullmatch(found.finding.fix)
        if found.severity != "error" or edit is None or OPEN.search(edit[2]):
            continue
        after = {(one.code, one.path) for one in diagnostics_after(code, f"{edit[1]}={edit[2]}")}
        assert (found.code, found.path) not in after, found.finding.fix


@pytest.mark.parametrize("code", ["D01", "D09", "D10", "S07", "T11"])
def test_one_edit_of_the_layout_removes_all_errors(code: str) -> None:
    (edit, *_) = [
        EDIT.fullmatch(one.finding.fix) for one in diagnostics_after(code) if one.finding.fix
    ]
    assert edit is not None
    assert not [
        one for one in diagnostics_after(code, f"{edit[1]}={edit[2]}") if one.severity == "error"
    ]


SERVED = {
    "parc": 1,
    "name": "served",
    "model": "llama-3.1-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {
        "kind": "serve",
        "traffic": {"input_tokens": 2000, "output_tokens": 100, "concurrency": 8},
    },
}
TRAINED = {
    "parc": 1,
    "name": "trained",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {"sequence_length": 4096, "global_batch": 64},
}


@pytest.mark.parametrize(
    ("base", "mistake", "fix"),
    [
        (SERVED, {"layout": {"pcp": 2, "tp": 2}}, "layout.pcp: 1"),
        (SERVED, {"layout": {"redundant_experts": 1}}, "remove layout.redundant_experts"),
        (SERVED, {"job.max_model_len": 1024}, "job.max_model_len: 2100"),
        (TRAINED, {"emit": []}, "emit: [megatron, preflight, rankmap, slurm, torchrun]"),
        (TRAINED, {"job.precision": "nvfp4"}, "job.precision: fp8"),
        (TRAINED, {"layout": {"tp": 4, "pp": 3}}, "layout.pp: 2"),
    ],
)
def test_a_mistake_is_reported_with_the_edit_that_fixes_it(
    base: Any, mistake: Any, fix: str
) -> None:
    _, sink = planned(changed(base, mistake))
    assert fix in {one.finding.fix for one in sink.diagnostics if one.severity == "error"}


def test_weights_that_every_replica_keeps_are_not_called_sharded() -> None:
    _, sink = planned(changed(TRAINED, {"emit": ["accelerate"]}))
    (found,) = sink.diagnostics
    assert "zero_stage 0" in found.finding.help
    assert "PARC-E11" in found.finding.help
