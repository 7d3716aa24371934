"""Edits that keep the meaning of a file have no finding; other edits are described as they are."""

from __future__ import annotations

import pytest

from parc.backends.kubernetes.verify_yaml import quantity, same_quantities
from parc.backends.shared.serving.verify_aliases import accepts_aliases, long_flags
from parc.backends.shared.verify_known_lines import read_script
from parc.backends.slurm.verify_directives import read_directives
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.shell_lines import without_trailing_comments
from parc.compiler.verify.verify_checksums import verify_checksums
from parc.compiler.verify.verify_pools import verify_output
from parc.compiler.verify.verify_program import cut_to_difference
from tests.compiled import Files, Spec, example_files, files_of
from tests.verify.edits import findings

JOB, LAUNCH = "slurm/job.sbatch", "torchrun/launch.sh"
JOBSET, GROUPS = "kubernetes/jobset.yaml", "kubernetes/leaderworkerset.yaml"
SITE: Spec = {
    "parc": 1,
    "name": "team",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "racks": [{"name": "a", "nodes": "gpu[001-011]"}]},
    "job": {"sequence_length": 4096, "global_batch": 176},
    "layout": {"tp": 8, "cp": 1, "pp": 1, "micro_batch": 1},
    "launch": {
        "env": {"FOO": "a b", "NCCL_DEBUG": "WARN"},
        "slurm": {"partition": "gpu", "account": "x", "time_limit": "2-00:00:00"},
    },
    "emit": ["megatron", "preflight", "rankmap", "slurm", "torchrun"],
}
SERVICES = {
    "vllm/serve.sh": "llama-3.1-405b-serve",
    "sglang/serve.sh": "qwen3-30b-a3b-serve-sglang",
    JOBSET: "llama-3-70b-kubernetes",
    GROUPS: "llama-3.1-405b-serve-kubernetes",
}


def files_with(file: str) -> Files:
    """Return an output that contains ``file``."""
    return example_files(SERVICES[file]) if file in SERVICES else files_of(SITE)


def edited(file: str, *edits: tuple[str, str]) -> list[tuple[str, int]]:
    """Return (message, line) of the findings after edits of one file."""
    files = files_with(file)
    text = files[file]
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    sink = Sink()
    verify_output(files | {file: text}, sink)
    return [(one.finding.message, one.span.line if one.span else 0) for one in sink.diagnostics]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (JOB, "\nnodes=11\n", "\nnodes=11 # eleven hosts\n"),
        (LAUNCH, "\nfirst=gpu001\n", "\nfirst=gpu001 # head node\n"),
        (LAUNCH, "export NCCL_DEBUG=WARN", "export NCCL_DEBUG=WARN # quiet"),
        (JOB, "--time=2-00:00:00", "--time=48:00:00"),
        (JOB, "--time=2-00:00:00", "-t 2880"),
        (JOB, "--time=2-00:00:00", "--time=2-0"),
        (JOB, "--partition=gpu", "-p gpu"),
        (JOB, "--account=x", "-Ax"),
        (JOB, "--nodes=11", "-N 11 # hosts"),
        (JOB, "--job-name=team", "-J team"),
        (JOB, '--nodelist="gpu[001-011]"', "-w gpu0[02-11],gpu001"),
        ("vllm/serve.sh", "--tensor-parallel-size 8", "-tp 8"),
        ("vllm/serve.sh", "--pipeline-parallel-size 2", "-pp=2"),
        ("vllm/serve.sh", "--nnodes 2", "-n 2"),
        ("sglang/serve.sh", "--tp-size 2", "--tensor-parallel-size 2"),
        (JOBSET, "nvidia.com/gpu: '8'", "nvidia.com/gpu: 8"),
        (JOBSET, "sizeLimit: 64Gi", "sizeLimit: 65536Mi"),
        (JOBSET, "defaultMode: 365", "defaultMode: 0555"),
        (GROUPS, "nvidia.com/gpu: '8'", 'nvidia.com/gpu: "8"'),
        (GROUPS, "nvidia.com/gpu: '8'", "nvidia.com/gpu: 8"),
    ],
)
def test_another_notation_of_the_same_setting_is_accepted(file: str, old: str, new: str) -> None:
    assert edited(file, (old, new)) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "message", "line_with"),
    [
        (JOB, "--partition=gpu", "-p fast", "has #SBATCH --partition=fast, the plan needs", "fast"),
        (JOB, "--time=2-00:00:00", "--time=47:00:00", "#SBATCH --time=47:00:00, the", "47:00"),
        (JOB, "--nodes=11", "-N 12", "--nodes is 12 in slurm/job.sbatch, but the rank", "-N 12"),
        (JOB, "#SBATCH --nodes=11\n", "", "--nodes is missing in slurm/job.sbatch", ""),
        (
            "preflight/expected.json",
            "gpu001",
            "gpu021",
            "placement.hosts: preflight/expected.json has ['gpu021', ",
            "gpu021",
        ),
        (
            "rankmap.json",
            '"framework": "megatron"',
            '"framework": "other"',
            "framework: rankmap.json has 'other', the plan has 'megatron'",
            '"framework"',
        ),
        (
            LAUNCH,
            "export FOO='a b'",
            "export FOO='a b' BAR=1",
            "launch.env: line 0 has BAR=1, which the plan does not need",
            "BAR=1",
        ),
        (JOBSET, "sizeLimit: 64Gi", "sizeLimit: 32Gi", "has sizeLimit: 32Gi, the plan", "32Gi"),
        (
            GROUPS,
            "failureThreshold: 360",
            "failureThreshold: 36",
            "line 0 has failureThreshold: 36 (meaning 6), the plan has 60",
            "failureThreshold: 36",
        ),
        (JOBSET, "nvidia.com/gpu: '8'", "nvidia.com/gpu: 4", "layout.world: line 0 has", "gpu: 4"),
    ],
)
def test_a_changed_setting_is_described_at_its_line(
    file: str, old: str, new: str, message: str, line_with: str
) -> None:
    text = files_with(file)[file].replace(old, new)
    lines = enumerate(text.split("\n"), start=1)
    line = next(number for number, one in lines if line_with in one)
    message = message.replace("line 0", f"line {line}")
    found = edited(file, (old, new))
    assert (line, True) in [(at, message in text) for text, at in found]
    assert not any("does not set it" in text for text, _ in found)


def test_variables_after_a_changed_line_of_exports_are_found() -> None:
    found = edited(LAUNCH, ("export FOO='a b'", "export FOO='a b' BAR=1"))
    assert [text.partition(" has ")[2] for text, _ in found] == [
        "BAR=1, which the plan does not need"
    ]
    script = read_script("export A=1\nexport B=$x\nexport C=2\ntrue\nexport D=3\n")
    assert {name: value for name, (value, _) in script.exports.items()} == {"A": "1", "C": "2"}
    assert [line.text for line in script.lines][1:] == ["export B=$x", "true", "export D=3"]


def test_a_variable_that_the_shell_computes_is_not_called_missing() -> None:
    messages = [text for text, _ in edited(LAUNCH, ("export FOO='a b'", "export FOO=$BAR"))]
    assert any("has export FOO=$BAR, the plan needs FOO=a b" in text for text in messages)
    assert not any("NCCL_DEBUG" in text or "is not in torchrun" in text for text in messages)


def test_the_first_differing_host_of_a_long_list_is_shown() -> None:
    hosts = ",".join(f"gpu{n:03}" for n in (*range(1, 9), 17, 10, 11))
    found = edited(JOB, ('"gpu[001-011]"', hosts))
    (message,) = [text for text, _ in found if text.startswith("placement.hosts")]
    assert "has ...gpu017,gpu010" in message
    assert "needs ...gpu009,gpu010" in message
    old, new = ["n1"] * 20, [*["n1"] * 19, "n2"]
    assert cut_to_difference(str(old), str(new)) == ("...'n1']", "...'n2']")


@pytest.mark.parametrize("file", ["rankmap.csv", "megatron/args.sh", "slurm/hostfile", JOB, LAUNCH])
def test_crlf_line_ends_of_one_file_are_one_warning(file: str) -> None:
    files = files_of(SITE)
    changed = files | {file: files[file].replace("\n", "\r\n")}
    sink = Sink()
    verify_output(changed, sink)
    assert not sink.diagnostics
    verify_checksums({path: text.encode() for path, text in changed.items()}, sink)
    (found,) = sink.diagnostics
    assert (found.code, found.severity) == ("PARC-A10", "warning")
    assert f"CRLF line ends but were written with LF: {file}" in found.finding.message


def test_an_edit_of_a_file_with_crlf_is_reported_beside_its_line_ends() -> None:
    files = files_of(SITE)
    text = files[JOB].replace("--partition=gpu", "--partition=other").replace("\n", "\r\n")
    sink = Sink()
    verify_output(files | {JOB: text}, sink)
    verify_checksums({path: one.encode() for path, one in (files | {JOB: text}).items()}, sink)
    assert [one.code for one in sink.diagnostics] == ["PARC-A10", "PARC-A14"]


def test_comments_after_commands_are_removed_without_moving_lines() -> None:
    text = "#SBATCH --x # y\na=1 # b\nc='# d' \\\n  e#f # g\n  # h\n"
    plain = "#SBATCH --x # y\na=1 \nc='# d' \\\n  e#f \n  # h\n"
    assert without_trailing_comments(text) == plain


def test_short_options_of_sbatch_are_read() -> None:
    text = "#SBATCH -p gpu -N4\n#SBATCH -t 1:00 -H\n#SBATCH -Z\n"
    assert read_directives(text) == {
        "partition": ("gpu", 1),
        "nodes": ("4", 1),
        "time": ("1:00", 2),
        "hold": ("", 2),
        "-Z": ("", 3),
    }


def test_aliases_are_those_of_the_parser_and_no_opposites() -> None:
    package = "parc.backends.vllm"
    words = ["-tp", "8", "--no-enable-prefix-caching", "--x=-tp"]
    assert long_flags(package, words) == ("--tensor-parallel-size", *words[1:])
    assert accepts_aliases(package, ["--quantization", "fp8"])(["-q", "fp8"])
    assert not accepts_aliases(package, ["--quantization", "fp8"])(["-q", "fp4"])
    assert long_flags("", words) == tuple(words)


def test_quantities_are_compared_as_numbers() -> None:
    assert quantity("64Gi") == quantity("65536Mi") == 2**36
    assert quantity("1500m") == quantity("1.5")
    assert quantity("2e3") == quantity("2k")
    assert quantity("many") is None
    assert same_quantities([["a", "1Gi"]])([["a", "1024Mi"]])
    assert not same_quantities([["a", "1Gi"]])([["b", "1Gi"]])


def test_files_as_emitted_have_no_finding() -> None:
    assert findings(files_of(SITE)) == []
