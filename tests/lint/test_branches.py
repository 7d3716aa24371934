"""Commands that only some runs of a script execute, on lines of their own and on one line."""

from __future__ import annotations

import pytest

from parc.compiler.diagnostics import Span
from parc.compiler.tools.importers.script_branches import Branches

CONDITIONAL = (
    "if [ $A ]; then\n  X=1\nfi",
    "if [ $A ]; then X=1; fi",
    "if [ $A ]; then B=1; else X=1; fi",
    "if [ $A ]\nthen X=1\nfi",
    "for i in 1 2; do X=1; done",
    "for i in 1 2; do if [ $i ]; then B=1; fi\nX=1\ndone",
    "case $A in a) B=1;; b) X=1;; esac",
    '[ "$A" = b ] && X=1',
    "[[ $A == b && $B == c ]] && X=1",
    "[[ $A == b ]] && B=2 && X=1",
    "((A > 1)) && X=1",
    "test -f file && X=1",
    "test -f file 2>&1 && X=1",
    "[ $A ] && { B=1; X=1; }",
    "[ $A ] && {\n  B=1\n  X=1\n}",
    "[ $A ] || X=1",
    "[ $A ] \\\n  && X=1",
    "[ $A ] && ARGS=(\n  --tp 1\n  X=1\n)",
)
CERTAIN = (
    "X=1",
    "if [ $A ]; then B=1; fi\nX=1",
    "if [ $A ]; then B=1; fi; X=1",
    "if [ $A ]; then B=1; fi  # done\nX=1",
    "if [ $A ]; then\n  B=1\nfi || exit 1\nX=1",
    "[ $A ] && B=1\nX=1",
    "[ $A ] && B=1; X=1",
    "[ $A ] && { B=1; }; X=1",
    "cd folder && X=1",
    "cd folder || exit 1; X=1",
    "run > log 2>&1 && X=1",
    "run &> log && X=1",
    "(cd folder && make) && X=1",
    "for i in 1 2; do for j in 1 2; do\n  B=1\ndone; done\nX=1",
    "cat <<EOF\n[ a ] && {\nEOF\nX=1",
    "# [ a ] && {\nX=1",
    "f() {\n  B=1\n}\nX=1",
)


@pytest.mark.parametrize("script", [*CONDITIONAL, *CERTAIN])
def test_commands_of_some_runs_are_in_branches(script: str) -> None:
    line, column = next(
        (number, text.index("X=1") + 1)
        for number, text in enumerate(script.split("\n"), start=1)
        if "X=1" in text
    )
    assert (Span("run.sh", line, column) in Branches(script)) == (script in CONDITIONAL)
