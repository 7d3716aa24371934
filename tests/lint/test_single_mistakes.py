from __future__ import annotations

import pytest

from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests.lint.scripts import (
    CASES,
    DEEPSPEED,
    EXPERTS,
    HYBRID,
    LINEAR,
    MEGATRON,
    PATTERN,
    SBATCH,
    VLLM,
    VLLM_EXPERTS,
    Case,
    edited,
)

SOUND = {
    "megatron": MEGATRON,
    "linear attention": edited(MEGATRON, (LINEAR,)),
    "pattern": edited(MEGATRON, (PATTERN, HYBRID)),
    "experts": edited(MEGATRON, (EXPERTS,)),
    "sbatch": SBATCH,
    "deepspeed": DEEPSPEED,
    "vllm": VLLM,
    "vllm experts": edited(VLLM, (VLLM_EXPERTS,)),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_correct_script_has_no_findings(name: str) -> None:
    # The batch script starts a program of the user.
    options = LintOptions(allow_unknown=name == "sbatch")
    sink, _ = lint_text(SOUND[name], "run.sh", options)
    assert [(one.code, one.finding.message) for one in sink.diagnostics] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[3]}")
def test_a_mistake_is_reported_at_its_line(case: Case) -> None:
    code, script, edits, word = case
    text = edited(script, edits)
    sink, _ = lint_text(text, "run.sh", LintOptions())
    found = {one.code: one for one in sink.diagnostics}
    assert f"PARC-{code}" in found, sorted(found)
    span = found[f"PARC-{code}"].span
    assert span is not None
    assert word in text.splitlines()[span.line - 1]
