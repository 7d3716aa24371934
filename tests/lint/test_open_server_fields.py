"""An import sets an engine's defaults only where nothing in the command can set the field."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.diagnostics.table_yaml import parse_table
from tests.topology.reading import read

VLLM = "vllm serve org/model"
SGLANG = "python3 -m sglang.launch_server --model-path org/model"
TRTLLM = "trtllm-serve org/model"


def imported(kind: str, script: str) -> tuple[dict[str, Any], str]:
    """Return (section layout of the fragment, text of the fragment)."""
    text, sink = read(kind, f"{script}\n")
    assert not sink.failed(), [one.finding.message for one in sink.diagnostics]
    return dict(parse_table(text)["layout"]), text


@pytest.mark.parametrize(
    ("kind", "command", "flag"),
    [
        ("vllm-args", VLLM, "--tensor-parallel-size"),
        ("sglang-args", SGLANG, "--tp-size"),
        ("trtllm-args", TRTLLM, "--tp_size"),
    ],
)
def test_unknown_arguments_leave_all_defaults_open(kind: str, command: str, flag: str) -> None:
    assert imported(kind, f"{command} {flag} 2")[0]["pp"] == 1
    for passed in ("$EXTRA", '"$@"', "$4", "${FLAGS[@]}", "{{ $argument }}"):
        layout, text = imported(kind, f"{command} {flag} 2 {passed}")
        assert layout == {"tp": 2}
        assert f"unknown arguments {passed.split()[0].strip(chr(34))}" in text


def test_values_of_flags_are_no_unknown_arguments() -> None:
    command = f"{VLLM} --port $PORT --max-model-len {{{{ .Values.length }}}} -tp 4 > $LOG"
    layout, text = imported("vllm-args", command)
    assert (layout["tp"], layout["pp"]) == (4, 1)
    assert "unknown arguments" not in text


def test_a_size_with_an_unknown_value_in_one_branch_stays_open() -> None:
    script = f"A=(--tensor-parallel-size 8)\nif x; then A=(-tp $TP); fi\n{VLLM} ${{A[@]}}"
    layout, _ = imported("vllm-args", script)
    assert "tp" not in layout
    assert layout["pp"] == 1


def test_the_older_switch_of_sglang_uses_all_ranks_for_experts() -> None:
    layout, _ = imported("sglang-args", f"{SGLANG} --tp-size 16 --enable-ep-moe")
    assert layout["ep"] == "on"
    layout, _ = imported("sglang-args", f"{SGLANG} --tp-size 16 --enable-deepep-moe")
    assert "ep" not in layout
