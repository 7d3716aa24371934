"""Flags after a comment or a missing backslash, which bash does not pass to the command (L43)."""

from __future__ import annotations

import pytest

from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests.lint.scripts import codes
from tests.topology.reading import finding_lines, read

START = "#!/bin/bash\nvllm serve org/model -tp 8"
LENGTH = "  --max-model-len 8192\n"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (f"{START} \\\n  # longer prompts\n{LENGTH}", ["L43"]),
        (f"{START} \\\n  --port 8001\n{LENGTH}", ["L43"]),
        (f"{START} \\\n  --port 8001 \\ \n{LENGTH}", ["L43"]),
        (f"{START} \\\n  # a\n  --port 8001 \\\n  # b\n{LENGTH}", ["L43", "L43"]),
        (f"srun bash -c '{START[12:]} \\\n  # a\n{LENGTH}'\n", ["L43"]),
        (f"{START} \\\n{LENGTH}", []),
        (f"{START} \\\n{LENGTH}  # the end\n", []),
        (f"ARGS=(\n  -tp 8 # a\n  # b\n{LENGTH})\nvllm serve org/model ${{ARGS[@]}}\n", []),
        (f'ARGS="-tp 8\n{LENGTH}"\nvllm serve org/model $ARGS\n', []),
        ("-tp 8 \\\n  # arguments of a server\n--max-model-len 8192\n", []),
    ],
)
def test_flags_after_the_end_of_a_command_are_reported(script: str, expected: list[str]) -> None:
    options = LintOptions(framework="vllm", allow_unknown=True)
    assert [code for code in codes(script, options) if code == "L43"] == expected


def test_the_finding_names_the_comment_and_the_flags_are_not_those_of_the_command() -> None:
    sink, _ = lint_text(f"{START} \\\n  # longer\n{LENGTH}", "run.sh", LintOptions())
    (found,) = [one for one in sink.diagnostics if one.code == "PARC-L43"]
    assert found.finding.message == "bash does not pass --max-model-len to the command above"
    assert found.span is not None
    assert (found.span.line, found.span.column) == (4, 3)
    (cause,) = found.finding.causes
    assert cause.span is not None
    assert cause.span.line == 3
    text, sink = read("vllm-args", f"{START} \\\n  # longer\n{LENGTH}")
    assert "max_model_len" not in text
    (line,) = [one for one in finding_lines(sink) if "--max-model-len" in one]
    assert line.endswith("not carried over: --max-model-len 8192")
