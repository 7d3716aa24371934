"""Imports of scripts whose runs differ: exports, branches and values."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.tools.launch_diff import diff_launch
from tests.laws.test_launch_files import AT, START, imported, listed

HEAD = "#!/bin/bash\n\n"


def environment(lines: str) -> tuple[dict[str, Any], list[str]]:
    """Return (launch.env, exports that are listed) of a script that starts with ``lines``."""
    spec, notes = imported(f"{HEAD}{lines}\n{START}")
    lines_of = range(AT, AT + lines.count("\n") + 1)
    found = [one for line in lines_of for one in listed(notes, line)]
    return spec["launch"].get("env", {}), found


@pytest.mark.parametrize(
    ("lines", "expected", "left"),
    [
        ("export A=1", {"A": "1"}, []),
        ('if [ "$1" ]; then export A=1; fi', {}, ["export A=1"]),
        ('if [ "$1" ]; then export A=1; else export A=2; fi', {}, ["export A=1", "export A=2"]),
        ("export A=1\n[ $1 ] && export A=2", {}, ["export A=1", "export A=2"]),
        ("export A=1\n[ $1 ] && export A=1", {"A": "1"}, []),
        ("[ $1 ] && export A=1\nexport A=2", {"A": "2"}, []),
        ("U=0\nif [ $U -eq 1 ]; then export A=1; fi", {}, []),
        ("U=1\nif [ $U -eq 1 ]; then export A=1; fi", {"A": "1"}, []),
        ("U=${U:-0}\nif [ $U -eq 1 ]; then export A=1; fi", {}, ["export A=1"]),
        ("A=x python3 prepare.py", {}, ["A=x python3 prepare.py"]),
        ("A=noninteractive apt-get install -y curl", {}, ["A=noninteractive apt-get install"]),
    ],
)
def test_only_exports_of_every_run_are_imported(
    lines: str, expected: dict[str, str], left: list[str]
) -> None:
    env, found = environment(lines)
    assert env == expected
    assert len(found) == len(left)
    for one, start in zip(sorted(found), sorted(left), strict=True):
        assert one.startswith(start)


def test_an_assignment_in_front_of_the_launch_is_imported() -> None:
    spec, _ = imported(f"{HEAD}true\nA=1 {START}")
    assert spec["launch"]["env"] == {"A": "1"}
    diff = diff_launch("run.sh", f"{HEAD}A=2 ./prepare\n[ $1 ] && export B=1\n{START}", "out", {})
    assert {one.name for one in diff.environment} & {"A", "B"} == set()


def test_a_value_that_differs_between_runs_is_left_out_with_its_alternatives() -> None:
    lines = "case $1 in\n  7b) LAYERS=32 ;;\n  *) LAYERS=40 ;;\nesac"
    spec, notes = imported(f"{HEAD}{lines}\n{START.replace('layers 32', 'layers $LAYERS')}")
    assert "layers" not in spec["model"]
    assert (listed(notes, AT + 1), listed(notes, AT + 2)) == (["LAYERS=32"], ["LAYERS=40"])


def test_arguments_that_only_one_branch_uses_are_noted() -> None:
    lines = (
        'FIRST="--save /a"\nSECOND="--swiglu"\n'
        'if [ "$1" = first ]; then ARGS="$FIRST"; else ARGS="$SECOND"; fi'
    )
    _, notes = imported(f"{HEAD}{lines}\n{START.replace('--bf16', '--bf16 $ARGS')}")
    assert f"in a branch of the script, line {AT}: --save" in notes


def test_a_value_that_a_later_value_contains_is_not_listed() -> None:
    lines = 'NAME=run\nNAME="${NAME}-b"'
    spec, notes = imported(f"{HEAD}{lines}\n{START.replace('--bf16', '--bf16 --save /x/$NAME')}")
    assert spec["job"]["checkpoint_dir"] == "/x/run-b"
    assert listed(notes, AT) == []


def test_arithmetic_and_blends_of_data_are_imported() -> None:
    flags = "--ffn-hidden-size $((4 * H)) --data-path $BLEND"
    lines = 'H=4096\nBLEND="0.3 /a 0.7 /b"'
    spec, _ = imported(f"{HEAD}{lines}\n{START.replace('--bf16', f'--bf16 {flags}')}")
    assert spec["model"]["ffn"] == 16384
    assert spec["job"]["data"] == ["0.3", "/a", "0.7", "/b"]


def test_a_placeholder_is_no_value() -> None:
    lines = "CKPT=<path of the checkpoint>"
    spec, notes = imported(f"{HEAD}{lines}\n{START.replace('--bf16', '--bf16 --save $CKPT')}")
    assert "checkpoint_dir" not in spec["job"]
    assert listed(notes, AT + 1)[0] == "--save <path of the checkpoint>"


def test_placeholders_in_directives_are_no_values() -> None:
    head = "#!/bin/bash\n#SBATCH -p { partition }\n#SBATCH --account=<my account>\n#SBATCH -N 2\n"
    spec, notes = imported(f"{head}srun {START}")
    assert "slurm" not in spec["launch"]
    assert listed(notes, 2) == ["--partition { partition }"]
    assert listed(notes, 3) == ["--account <my account>"]
