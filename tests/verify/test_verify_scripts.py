"""Tests of reading launch.sh and job.sbatch back, and of comparing their commands."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from parc.backends.megatron.verify_arguments import read_arguments
from parc.backends.shared.verify_known_lines import (
    compare_lines,
    literal_exports,
    without_redundant_quotes,
)
from parc.backends.slurm.verify_directives import read_directives
from parc.compiler.verify.read_emitted import MalformedFileError, unfold_hosts
from tests.backends.megatron.boundaries import DENSE
from tests.compiled import Files, changed, example_files, files_of
from tests.verify.edits import (
    EDITS,
    NAMED,
    false_alarms,
    findings,
    measure_edits,
    shell_behavior,
    shell_neutral,
)

LAUNCH, JOB, ORDER = "torchrun/launch.sh", "slurm/job.sbatch", "slurm/order_hosts.sh"
EDITED = (
    ("llama-3-70b", LAUNCH),
    ("llama-3-70b", JOB),
    ("llama-3-70b", ORDER),
    ("mixtral-8x7b-deepspeed", "deepspeed/launch.sh"),
)
"""(example, script) with named hosts in racks, and with the launcher of a framework."""
FEWER = max(8, EDITS // 2)
"""Edits per script; bash parses each one."""
SITE: dict[str, Any] = {
    "launch.program": "my dir/it's.py",
    "launch.env": {
        "A": "it's",
        "B": "a b",
        "C": "$HOME",
        "D": "",
        "E": "# x",
        "OMP_NUM_THREADS": "4",
    },
    "launch.slurm.container_image": "site/a:1",
    "launch.slurm.container_mounts": ["/c d:/e"],
    "launch.slurm.log_dir": "my logs",
    "launch.slurm.partition": "p 1",
    "launch.slurm.account": 'a"b\\c',
    "launch.slurm.reservation": "r#1 x",
    "launch.slurm.time_limit": "2-00:00:00",
    "launch.slurm.requeue": False,
    "launch.network_interface": "eth0",
}
"""Fields of a site whose values need quotes."""


@pytest.fixture(scope="module")
def site() -> Files:
    """Return the files of a job with all fields of a site."""
    layout = {**DENSE["layout"], "cuda_graphs": False}
    base = {**DENSE, "layout": layout, "launch": {}, "emit": ["megatron", "slurm", "torchrun"]}
    return files_of(changed(base, SITE))


def test_the_command_of_apptainer_is_compared_with_the_plan() -> None:
    slurm = {"container_image": "a b.sif", "container_mounts": ["/c d:/e", "/f"]}
    files = files_of({**DENSE, "launch": {"slurm": slurm}, "emit": ["megatron", "slurm"]})
    assert findings(files) == []
    for old, new, path in (
        ("--nv", "--rocm", "expected ...--nv"),
        ("a b.sif", "b.sif", "container_image"),
        ("/c d:/e,/f", "/c d:/e", "container_mounts"),
        ("  apptainer exec --nv \\\n", "", "container_runtime"),
    ):
        assert any(path in one for one in edited(files, JOB, old, new)), (old, files[JOB])


def edited(files: Files, file: str, old: str, new: str) -> list[str]:
    assert old in files[file]
    return findings(files | {file: files[file].replace(old, new, 1)})


@pytest.mark.parametrize(("name", "file"), EDITED)
def test_random_edits_of_a_script_are_named(name: str, file: str) -> None:
    score = measure_edits(example_files(name), file, shell_behavior, FEWER)
    assert score.named >= NAMED, score.missed
    assert score.alarms == []


@pytest.mark.parametrize(("name", "file"), EDITED)
def test_comments_and_blanks_of_a_script_are_free(name: str, file: str) -> None:
    files = example_files(name)
    assert false_alarms(files, file, shell_neutral(files[file], 1), FEWER) == []


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (LAUNCH, "PYTHONUNBUFFERED=1", "PYTHONUNBUFFERED='1'"),
        (LAUNCH, "first=r01n01", 'first="r01n01"'),
        (LAUNCH, "program=pretrain_gpt.py", "program='pretrain_gpt.py' # ours"),
        (LAUNCH, "    --nnodes=32 \\\n", "    --nnodes=32   \\\n"),
        (LAUNCH, "exec torchrun \\\n  --nnodes=32 \\\n", "exec torchrun --nnodes=32 \\\n"),
        (JOB, "#SBATCH --nodes=32\n", "#SBATCH --nodes 32 # hosts\n"),
        (JOB, "#SBATCH --mem=0\n", '#SBATCH --mem="0"\n'),
        (JOB, "r01n[01-16],r02n[01-16]", "r02n[01-16],r01n[01-08,09-16]"),
        (ORDER, "        # Each rack gets the first free place that has as many hosts.\n", ""),
    ],
)
def test_another_notation_of_the_same_command_is_accepted(file: str, old: str, new: str) -> None:
    assert edited(example_files("llama-3-70b"), file, old, new) == []


def test_each_script_is_compared_once() -> None:
    files = example_files("llama-3-70b")
    compare_lines.cache_clear()
    assert findings(files) == []
    assert compare_lines.cache_info().misses == len([JOB, LAUNCH, ORDER])


def test_the_order_of_directives_and_exports_is_free() -> None:
    files = example_files("llama-3-70b")
    for file, prefix in ((JOB, "#SBATCH"), (LAUNCH, "export")):
        lines = files[file].split("\n")
        places = [at for at, line in enumerate(lines) if line.startswith(prefix)]
        first, last = places[0], places[7]
        lines[first], lines[last] = lines[last], lines[first]
        assert findings(files | {file: "\n".join(lines)}) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "finding"),
    [
        (
            LAUNCH,
            "MASTER_PORT=${MASTER_PORT:-29500}",
            "MASTER_PORT=${MASTER_PORT:-29501}",
            "PARC-A14 launch.master_port: line 64 has MASTER_PORT=${MASTER_PORT:-29501}, "
            "the plan needs 29500",
        ),
        (
            LAUNCH,
            "TORCH_NCCL_AVOID_RECORD_STREAMS=1",
            "TORCH_NCCL_AVOID_RECORD_STREAMS=0",
            "AVOID_RECORD_STREAMS=0, the plan needs TORCH_NCCL_AVOID_RECORD_STREAMS=1",
        ),
        (
            LAUNCH,
            "export PYTHONUNBUFFERED=1\n",
            "",
            "the plan needs PYTHONUNBUFFERED=1, which is not in",
        ),
        (
            LAUNCH,
            "export PYTHONUNBUFFERED=1",
            "export A=1",
            "line 18 has A=1, which the plan does not",
        ),
        (LAUNCH, "set -euo pipefail\n", "", "PARC-A18"),
        (LAUNCH, '"$program" ${args', '"$program" --extra ${args', "PARC-A18"),
        (JOB, "#SBATCH --exclusive\n", "", "the plan needs #SBATCH --exclusive, which is not in"),
        (
            JOB,
            "#SBATCH --exclusive\n",
            "#SBATCH --exclusive --qos=x\n",
            "has #SBATCH --qos=x, which the plan does not",
        ),
        (
            JOB,
            "set -euo",
            "#SBATCH --qos=x\nset -euo",
            "has #SBATCH --qos=x, which the plan does not",
        ),
        (JOB, "--kill-on-bad-exit=1", "--kill-on-bad-exit=0", "PARC-A18"),
        (JOB, "trap save USR1", "trap save TERM", "PARC-A18"),
        (JOB, "USR1@300", "USR1@30", "launch.slurm.signal_seconds: line 8 has"),
        (JOB, "logs=$SLURM_SUBMIT_DIR/logs", "logs=/tmp", "PARC-A18"),
        (JOB, "r02n[01-16]", "r02n[01-15]", "nodelist="),
    ],
)
def test_a_changed_command_is_named(file: str, old: str, new: str, finding: str) -> None:
    found = edited(example_files("llama-3-70b"), file, old, new)
    assert any(finding in one for one in found), found


def test_values_that_need_quotes_are_read_back(site: Files) -> None:
    assert findings(site) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "path"),
    [
        (LAUNCH, "it'\"'\"'s.py", "its.py", "program: line 58 has program='my dir/its.py'"),
        (LAUNCH, "export C='$HOME'", "export C=$HOME", "the plan needs C=$HOME"),
        (LAUNCH, "SOCKET_IFNAME=eth0", "SOCKET_IFNAME=eth1", "NCCL_SOCKET_IFNAME=eth1"),
        (
            JOB,
            "site/a:1",
            "site/a:2",
            "launch.slurm.container_image: line 64 has site/a:2, the plan",
        ),
        (JOB, "/c d:/e", "/c d:/f", "launch.slurm.container_mounts"),
        (JOB, "my logs", "my log", "launch.slurm.log_dir: line 37 has logs="),
        (JOB, "p 1", "p 2", "launch.slurm.partition: line 7 has"),
        (JOB, 'a\\"b', "ab", "launch.slurm.account"),
        (JOB, "r#1 x", "r#2 x", "launch.slurm.reservation: line 9 has"),
        (JOB, "2-00:00:00", "1-00:00:00", "launch.slurm.time_limit: line 10 has"),
        (
            JOB,
            "--no-requeue",
            "--requeue",
            "launch.slurm.requeue: the plan needs #SBATCH --no-requeue",
        ),
    ],
)
def test_a_changed_field_of_a_site_is_named(
    site: Files, file: str, old: str, new: str, path: str
) -> None:
    assert any(path in one for one in edited(site, file, old, new))


@pytest.mark.parametrize(
    "changes",
    [
        {"emit": ["megatron", "slurm"]},
        {"emit": ["slurm", "torchrun"], "launch": {"program": "own.py", "args": ["--manual-gc"]}},
        {"emit": ["megatron", "slurm", "preflight"], "cluster.nodes": 1, "layout.pp": 1},
        {"cluster": {"node": "dgx-h100", "racks": [{"name": "a", "nodes": ["x1", "x2", "x3"]}]}},
        {"cluster": {"node": "gb200-nvl72", "nodes": 6}, "versions": {"slurm": "25.05"}},
        {"emit": ["megatron", "torchrun"], "versions": {"slurm": "22.05"}},
    ],
)
def test_scripts_as_emitted_have_no_finding(changes: dict[str, Any]) -> None:
    base = {**DENSE, "emit": ["megatron", "slurm", "torchrun"]}
    assert findings(files_of(changed(base, changes))) == []


def test_commands_are_compared_in_one_notation() -> None:
    assert without_redundant_quotes("a 'b' \"c d\" \"$e\" ''") == "a b 'c d' \"$e\" ''"
    assert without_redundant_quotes("awk '\n  # remark\n  {x}  # y\n\n'") == "awk '\n{x}\n'"
    assert literal_exports("export A='$b'") == (("A", "$b"),)
    assert literal_exports("export A='b c' D=e") == (("A", "b c"), ("D", "e"))
    assert literal_exports('export A="$b"') == ()
    assert literal_exports("export A=b c") == ()


def test_directives_are_read_until_the_first_command() -> None:
    text = '#!/bin/bash\n# x\n#SBATCH --a="b \\"c" --d\n\n#SBATCH --a=e # f\ntrue\n#SBATCH --g\n'
    assert read_directives(text) == {"a": ("e", 5), "d": ("", 3)}


def test_a_host_list_is_unfolded() -> None:
    assert unfold_hosts("a,b[08-10,12]-x,c") == ["a", "b08-x", "b09-x", "b10-x", "b12-x", "c"]
    assert unfold_hosts("r[1-2]n[01-02]") == ["r1n01", "r1n02", "r2n01", "r2n02"]
    assert unfold_hosts("a[0-999999999]") is None
    hosts = unfold_hosts("n[000001-131072]")  # a million GPUs
    assert hosts is not None
    assert (len(hosts), hosts[-1]) == (131_072, "n131072")
    assert unfold_hosts("a[1-9999]b[1-9999]") is None


@pytest.mark.parametrize("value", ["a'$(c)'\"$(c)\"'", "a'\"`$(c)", "a b", "it's", "\\'$x", "a\nb"])
def test_a_quoted_value_of_a_variable_is_read_back(value: str) -> None:
    assert literal_exports(f"export name={shlex.quote(value)}") == (("name", value),)


@pytest.mark.parametrize("word", ['"$x"', "`x`", "'a'$b", "\"a'$(x)'\"", "\"'$x'\"", '"a`x`"'])
def test_a_word_that_bash_expands_is_not_read_as_a_value(word: str) -> None:
    assert literal_exports(f"export name={word}") == ()
    with pytest.raises(MalformedFileError, match="bash would expand"):
        read_arguments(f"MEGATRON_ARGS=(\n  --a {word}\n)\n")
