"""Words of a script in the order of bash: values, branches, arithmetic, substitutions."""

from __future__ import annotations

import time

import pytest

from parc.compiler.tools.importers.shell_words import scan_script, shell_words
from parc.compiler.tools.shell.arithmetic import evaluate_arithmetic
from tests.samples import sample_of


def launch(script: str) -> list[str]:
    """Return the words of the command ``run`` in a script, without ``run``."""
    words = shell_words(script, "run.sh")
    number = next(word.statement for word in words if word.text == "run")
    return [word.text for word in words if word.statement == number][1:]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("A=/one; CK=$A/ckpt; A=/two\nrun $CK $A", ["/one/ckpt", "/two"]),
        ('N=a\nN="${N}-b"\nN="${N}-c"\nrun $N', ["a-b-c"]),
        ('IF=$(ip route)\nIF="${IF:-ib0}"\nrun $IF', ["$IF"]),
        ('IF="${IF:-ib0}"\nrun $IF', ["ib0"]),
        ("run ${1:-8} ${2:-$X}", ["8", "$X"]),
        (': "${TP:=4}"\n: "${TP:=8}"\nrun $TP', ["4"]),
        ("A=1\nunset A\nrun x$A ${A:-2}", ["x", "2"]),
        ("A=1\nread A\nrun $A", ["$A"]),
        ("A=a\nA+=b\nrun $A", ["ab"]),
        ("A=1 other\nrun $A", ["$A"]),
        ("f() {\n  run $A\n}\nA=1\nA=2\nf", ["2"]),
        ("for i in 1 2; do\n  run $i\ndone", ["$i"]),
    ],
)
def test_a_variable_has_the_value_that_it_has_at_this_point(
    script: str, expected: list[str]
) -> None:
    assert launch(script) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('B="0.3 /a 0.7 /b"\nrun $B "$B"', ["0.3", "/a", "0.7", "/b", "0.3 /a 0.7 /b"]),
        ("B='a  b'\nARGS=(x)\nC=$B\nrun $C", ["a", "b"]),
        ('B="0.2 <path of A> 0.8 /b"\nrun $B', ["0.2", "<path of A>", "0.8", "/b"]),
        ("run --load <path of the data>/x", ["--load", "<path of the data>/x"]),
    ],
)
def test_only_values_without_quotes_are_split_at_blanks(script: str, expected: list[str]) -> None:
    assert launch(script) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("H=2048\nrun $((4*H)) $(( $H / 3 % 5 ))", ["8192", "2"]),
        ("F=$((4 * (2 + 1)))\nrun $F", ["12"]),
        ("run $((N*16)) x", ["$((N*16))", "x"]),
        ("run --addr $(hostname --fqdn | head -n 1)", ["--addr", "$(hostname --fqdn | head -n 1)"]),
        ("D=`date +%F`\nrun $D `pwd`", ["$D", "`pwd`"]),
        ("run $(which torchrun) $(command -v python)", ["torchrun", "python"]),
    ],
)
def test_arithmetic_is_evaluated_and_a_substitution_is_one_word(
    script: str, expected: list[str]
) -> None:
    assert launch(script) == expected


def test_quotes_inside_a_substitution_do_not_end_its_word() -> None:
    found = launch('run --x "$(dirname "$(readlink -f "$0")")" y')
    assert (found[0], found[-1], len(found)) == ("--x", "y", 3)


@pytest.mark.parametrize(
    ("condition", "is_live"),
    [
        ('[ "$M" = train ]', True),
        ('[ "$M" = test ]', False),
        ("[[ $M == tr* && $N -gt 3 ]]", True),
        ("[[ $M != train || ! $N -eq 4 ]]", False),
        ("! test -n $M", False),
        ("((N % 2 == 0))", True),
        ("$ON", True),
        ("false", False),
        ("[ $1 = train ]", None),
        ("[ $HOME = /root ]", None),
        ("[ ${X:-a} = a ]", None),
        ("[ -f file ]", None),
        ("grep -q x file", None),
    ],
)
def test_conditions_on_constants_of_the_script_are_decided(
    condition: str, is_live: bool | None
) -> None:
    start = "M=train\nN=4\nON=true\n"
    for script in (
        f"{start}if {condition}; then run 1; else run 2; fi",
        f"{start}if [ $1 ]; then :; elif {condition}; then run 1; else run 2; fi",
        f"{start}{condition} && run 1\n{condition} || run 2",
    ):
        found = [word.text for word in shell_words(script, "run.sh") if word.text in ("1", "2")]
        assert found == {True: ["1"], False: ["2"], None: ["1", "2"]}[is_live]


def test_branches_of_case_are_decided_and_patterns_are_no_commands() -> None:
    script = "M=b\ncase $M in\n  a|x) run 1 ;;\n  b) run 2 ;;\n  *) run 3 ;;\nesac\nrun 4"
    assert [word.text for word in shell_words(script, "f")] == ["M=b", "run", "2", "run", "4"]
    script = script.replace("M=b", "M=$1")
    assert [word.text for word in shell_words(script, "f")][1:] == [
        *("run", "1", "run", "2", "run", "3", "run", "4")
    ]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("N=4\nif [ $1 ]; then N=8; fi\nrun $N", "$N"),
        ("N=4\n[ $1 ] && N=8\nrun $N", "$N"),
        ("if [ $1 ]; then N=8; fi\nrun $N", "8"),
        ("if [ $1 ]; then N=8; else N=8; fi\nrun $N", "8"),
        ("if [ $1 ]; then N=8; run $N; else N=4; fi", "8"),
        ('N=4\nwhile getopts "n:" o; do\ncase $o in n) N=$OPTARG;; esac\ndone\nrun $N', "4"),
        ('N=4\nif [ $1 ]; then N="$1"; fi\nrun $N', "4"),
        ("N=4\nif [ $A ]; then N=$(nproc); fi\nrun $N", "$N"),
    ],
)
def test_a_value_that_differs_between_runs_stays_unknown(script: str, expected: str) -> None:
    assert launch(script) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * -3", -9),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("A + $A + ${A}", 15),
        ("3 > 2 && 1 != 2", 1),
        ("1 / 0", None),
        ("B + 1", None),
        ("2 ** 3", None),
        ("010", None),
        ("1 +", None),
        ("(1", None),
        ("9" * 18 + "*" + "9" * 18, None),
        ("(" * 190, None),
        ("1+" * 150 + "1", None),
    ],
)
def test_arithmetic_has_the_results_of_a_shell(text: str, expected: int | None) -> None:
    assert evaluate_arithmetic(text, {"A": 5}.get) == expected


HOSTILE = (
    "if [ $A ]; then\n" * 8_000,
    "if [ $A ]; then\nX=1\n" * 4_000 + "fi\n" * 4_000,
    "$(" * 20_000,
    "${" * 20_000,
    "`" * 20_001,
    "((a" * 10_000,
    "<a b " * 10_000,
    "A=$A$A$A$A\n" * 4_000,
    "X=$((" * 8_000,
    "case $X in\na) Y=1 ;;\n" * 4_000,
    "for i in 1 2; do\nX=$X$i\ndone\n" * 2_500,
    "f() {\n" * 8_000,
    "a \\\n# x\n--b\n" * 8_000,
    "[ a = b ] && " * 8_000,
    "[ " + "a = b -a " * 8_000 + "]",
    "if [ $A ]; then X=1; " + "elif [ $B ]; then X=2; " * 4_000 + "fi",
)


@pytest.mark.parametrize("text", sample_of(HOSTILE, 3), ids=lambda text: text[:12])
def test_thousands_of_nested_or_unclosed_parts_are_read_in_seconds(text: str) -> None:
    start = time.process_time()
    scan_script(text, "run.sh")
    assert time.process_time() - start < 5


def test_text_that_is_no_script_keeps_its_words() -> None:
    text = "for example\ncase by case\nrun --tp 8\n"
    assert launch(text) == ["--tp", "8"]


def test_the_variables_of_slurm_have_the_values_of_the_directives() -> None:
    head = "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=4\n#SBATCH --ntasks-per-node 4\n"
    assert launch(f"{head}run $SLURM_NNODES $((SLURM_GPUS_PER_NODE * SLURM_NNODES))") == ["2", "8"]
    typed = head.replace("=4", "=h100:4")
    assert launch(f"{typed}run $SLURM_GPUS_PER_NODE $SLURM_GPUS_ON_NODE") == ["h100:4", "4"]
