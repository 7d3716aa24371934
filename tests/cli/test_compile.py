"""Tests of ``parc compile``: output, --check, --locked, and runs that write nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parc.compiler.cli import command_steps
from parc.compiler.verify import verify_pools
from tests.cli.specs import SPEC, parc, write_spec


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    write_spec(tmp_path)
    return "spec.yaml"


def test_a_compile_writes_plan_lock_and_the_files_of_every_backend(spec: str) -> None:
    result = parc("compile", spec)
    assert result.exit_code == 0, result.stderr
    written = {
        path.relative_to("build/small").as_posix()
        for path in Path("build/small").rglob("*")
        if path.is_file()
    }
    assert {"plan.json", "parc.lock", "rankmap.csv", "megatron/args.sh"} <= written
    assert {"slurm/job.sbatch", "torchrun/launch.sh"} <= written
    *_, wrote, start = result.stdout.splitlines()
    assert wrote == f"wrote     {len(written)} files to build/small"
    assert start.startswith("start     sbatch build/small/slurm/job.sbatch ")
    assert "tp 8, pp 1, dp 4" in result.stdout


def test_json_contains_layout_files_and_diagnostics(spec: str) -> None:
    result = parc("compile", spec, "-o", "out", "--format", "json")
    document = json.loads(result.stdout)
    assert document["format"] == 1
    assert document["written"] is True
    assert document["directory"] == "out"
    assert document["plan"]["layout"]["tp"] == 8
    assert "rankmap.csv" in document["files"]
    assert document["summary"]["errors"] == 0


def test_a_spec_is_read_from_standard_input(spec: str) -> None:
    result = parc("compile", "-", "-o", "out", given=SPEC)
    assert result.exit_code == 0, result.stderr
    assert Path("out/plan.json").is_file()


def test_emit_replaces_the_backends_of_the_spec(spec: str) -> None:
    assert parc("compile", spec, "-o", "out", "--emit", "rankmap,megatron").exit_code == 0
    assert Path("out/rankmap.csv").is_file()
    assert Path("out/megatron/args.sh").is_file()
    assert not Path("out/slurm").exists()


def test_an_unknown_backend_is_an_error_at_the_option(spec: str) -> None:
    result = parc("compile", spec, "--emit", "megatrom")
    assert result.exit_code == 1
    assert "--set:1:" in result.stderr
    assert "megatron" in result.stderr
    assert not Path("build").exists()


def test_set_changes_one_field(spec: str) -> None:
    assert parc("compile", spec, "-o", "out", "--set", "layout.tp=4").exit_code == 0
    assert json.loads(Path("out/plan.json").read_text("utf-8"))["layout"]["tp"] == 4


def test_an_error_writes_nothing_and_keeps_the_old_output(spec: str) -> None:
    assert parc("compile", spec, "-o", "out").exit_code == 0
    before = Path("out/plan.json").read_bytes()
    result = parc("compile", spec, "-o", "out", "--set", "layout.tp=3")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "error[PARC-D01]" in result.stderr
    assert Path("out/plan.json").read_bytes() == before


@pytest.mark.parametrize("target", ["slurm", "preflight"])
def test_a_single_target_without_a_rank_map_is_written_and_verified(spec: str, target: str) -> None:
    own = ("--set", "launch.program=train.py")  # slurm starts no program of a framework alone (E15)
    assert parc("compile", spec, "-o", "out", "--emit", target, *own).exit_code == 0
    assert "consistent and unmodified" in parc("verify", "out").stdout


def test_check_accepts_current_files_and_writes_nothing(spec: str) -> None:
    assert parc("compile", spec, "-o", "out").exit_code == 0
    result = parc("compile", spec, "-o", "out", "--check")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "check     OK: 14 files, up to date in out"


def test_check_verifies_no_files_that_were_verified_when_they_were_written(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[int] = []
    monkeypatch.setattr(verify_pools, "verify_output", lambda files, sink: verified.append(1))
    assert parc("compile", spec, "-o", "out").exit_code == 0
    assert verified == [1]
    assert parc("compile", spec, "-o", "out", "--check").exit_code == 0
    assert verified == [1]


def test_check_lists_files_that_are_out_of_date(spec: str) -> None:
    assert parc("compile", spec, "-o", "out").exit_code == 0
    Path("out/rankmap.csv").write_text("edited\n", encoding="utf-8")
    result = parc("compile", spec, "-o", "out", "--check", "--format", "json")
    assert result.exit_code == 1
    (found,) = json.loads(result.stdout)["diagnostics"]
    assert (found["code"], found["label"]) == ("PARC-O01", "rankmap.csv")
    assert found["help"] == "files edited after the compile: rankmap.csv"
    assert Path("out/rankmap.csv").read_text("utf-8") == "edited\n"


def test_check_distinguishes_edits_from_files_of_another_spec(spec: str) -> None:
    assert parc("compile", spec, "-o", "out").exit_code == 0
    Path("out/report.html").unlink()
    Path("out/slurm/notes.txt").touch()
    Path("out/rankmap.md").write_text("edited\n", encoding="utf-8")
    words = ("compile", spec, "-o", "out", "--check", "--set", "job.learning_rate=3e-4")
    result = parc(*words, "--format", "json")
    (found,) = json.loads(result.stdout)["diagnostics"]
    assert found["label"] == (
        "megatron/args.sh, parc.lock, plan.json, rankmap.md, report.html (missing), "
        "slurm/notes.txt (not part of the output)"
    )
    assert found["help"] == "files edited after the compile: rankmap.md"


def test_check_lists_files_that_block_a_compile(spec: str) -> None:
    assert parc("compile", spec, "-o", "out").exit_code == 0
    Path("out/logs").mkdir()
    Path("out/logs/17.out").touch()
    Path("out/plan.json").rename("plan.json")
    Path("out/plan.json").symlink_to("../plan.json")
    result = parc("compile", spec, "-o", "out", "--check", "--format", "json")
    (found,) = json.loads(result.stdout)["diagnostics"]
    assert found["label"] == "logs/17.out (not part of the output), plan.json (a link)"
    assert found["fix"].startswith("move logs out of out, run parc compile")


def test_changed_line_endings_are_no_edit_and_no_change(spec: str) -> None:
    for out in ("out", "copy"):
        assert parc("compile", spec, "-o", out).exit_code == 0
    args = Path("copy/megatron/args.sh")
    args.write_bytes(args.read_bytes().replace(b"\n", b"\r\n"))
    result = parc("compile", spec, "-o", "copy", "--check", "--format", "json")
    (found,) = json.loads(result.stdout)["diagnostics"]
    assert found["label"] == "megatron/args.sh (CRLF line endings)"
    assert parc("diff", "out", "copy").stdout == "out -> copy: no changes\n"


def test_edits_that_a_compile_overwrites_are_listed(spec: str) -> None:
    assert parc("compile", spec, "-o", "out").stderr == ""
    args = Path("out/megatron/args.sh")
    args.write_text(args.read_text("utf-8").replace("--lr 0.0001", "--lr 0.0003"), encoding="utf-8")
    result = parc("compile", spec, "-o", "out", "--format", "json")
    assert result.exit_code == 0
    (found,) = json.loads(result.stdout)["diagnostics"]
    assert found["code"] == "PARC-O05"
    assert found["message"].endswith("are overwritten: megatron/args.sh")
    assert parc("compile", spec, "-o", "out").stderr == ""


def test_an_edit_that_the_spec_contains_too_is_not_reported(spec: str) -> None:
    assert parc("compile", spec, "-o", "out").exit_code == 0
    args = Path("out/megatron/args.sh")
    assert parc("compile", spec, "-o", "new", "--set", "job.learning_rate=3e-4").exit_code == 0
    args.write_bytes(Path("new/megatron/args.sh").read_bytes())
    result = parc("compile", spec, "-o", "out", "--set", "job.learning_rate=3e-4")
    assert (result.exit_code, result.stderr) == (0, "")


def test_check_of_a_missing_directory_fails_and_creates_none(spec: str) -> None:
    assert parc("compile", spec, "-o", "out", "--check").exit_code == 1
    assert not Path("out").exists()


def test_locked_accepts_equal_decisions_of_a_changed_spec(spec: str) -> None:
    assert parc("compile", spec, "-o", "out").exit_code == 0
    commented = SPEC.replace("name: small", "name: small  # again")
    assert parc("compile", "-", "-o", "out", "--locked", given=commented).exit_code == 0


def test_locked_accepts_files_that_another_version_wrote(spec: str) -> None:
    assert parc("compile", spec, "-o", "out").exit_code == 0
    lock = json.loads(Path("out/parc.lock").read_text("utf-8"))
    for files in ({"rankmap.csv": "0" * 64}, None):
        old = lock | {"files": files} if files else {"decisions": lock["decisions"], "format": 1}
        Path("out/parc.lock").write_text(json.dumps(old), encoding="utf-8")
        assert parc("compile", spec, "-o", "out", "--locked").exit_code == 0
    assert parc("verify", "out", "--fail-on", "advice").exit_code == 0


def test_locked_lists_the_decisions_that_differ(spec: str) -> None:
    assert parc("compile", spec, "-o", "out").exit_code == 0
    before = Path("out/plan.json").read_bytes()
    words = ("compile", spec, "-o", "out", "--locked", "--set", "layout.tp=4")
    result = parc(*words, "--format", "json")
    assert result.exit_code == 1
    (found,) = (
        one for one in json.loads(result.stdout)["diagnostics"] if one["severity"] == "error"
    )
    assert found["code"] == "PARC-O02"
    assert ("layout.tp", "8 -> 4") in {(cause["path"], cause["text"]) for cause in found["causes"]}
    assert Path("out/plan.json").read_bytes() == before


@pytest.mark.parametrize("text", [None, "not a lock", "{}"])
def test_locked_needs_a_lock(spec: str, text: str | None) -> None:
    if text is not None:
        assert parc("compile", spec, "-o", "out").exit_code == 0
        Path("out/parc.lock").write_text(text, encoding="utf-8")
    result = parc("compile", spec, "-o", "out", "--locked", "--format", "json")
    assert result.exit_code == 1
    assert [one["code"] for one in json.loads(result.stdout)["diagnostics"]] == ["PARC-O03"]


def test_timings_go_to_standard_error(spec: str) -> None:
    result = parc("compile", spec, "--timings")
    assert "search_layouts" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("total ")


def test_a_directory_that_parc_did_not_write_is_not_changed(spec: str) -> None:
    Path("out").mkdir()
    Path("out/thesis.tex").write_text("years of work", encoding="utf-8")
    result = parc("compile", spec, "-o", "out")
    assert result.exit_code == 2
    assert result.stderr.startswith("parc: ")
    assert [path.name for path in Path("out").iterdir()] == ["thesis.tex"]


def test_a_spec_that_cannot_be_read_exits_with_2(spec: str) -> None:
    result = parc("compile", "missing.yaml")
    assert result.exit_code == 2
    assert result.stderr.startswith("parc: cannot read 'missing.yaml'")


def test_a_launch_without_data_is_loud(tmp_path: Path) -> None:
    """The summary, the page and the first line of the output of the script name the mock data."""
    out = tmp_path / "out"
    mock = "mock data, because job.data is not set"
    summary = parc("compile", write_spec(tmp_path), "-o", str(out)).stdout
    assert f"data      {mock}" in summary
    script = (out / "torchrun" / "launch.sh").read_text("utf-8")
    first = script.index("launch.sh: MOCK DATA")
    assert first < script.index("launch.sh: node $NODE_RANK of")
    page = (out / "report.html").read_text("utf-8")
    assert "<b>mock data</b>" in page
    assert "because job.data is not set" in page
    real = ("global_batch: 64}", "global_batch: 64, data: [/data/corpus]}")
    summary = parc("compile", write_spec(tmp_path, real), "-o", str(out)).stdout
    assert "mock data" not in summary
    assert "MOCK DATA" not in (out / "torchrun" / "launch.sh").read_text("utf-8")
    assert mock not in (out / "report.html").read_text("utf-8")


def test_check_of_several_specs_compares_each_with_its_own_directory(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_spec(tmp_path, ("name: small", "name: other"), name="other.yaml")
    words = ("compile", "--emit", "rankmap")
    for one in (spec, other):
        assert parc(*words, one).exit_code == 0
    checked = parc(*words, "--check", spec, other)
    assert (checked.exit_code, checked.stdout) == (
        0,
        "check     2 of 2 specs are OK and up to date\n",
    )

    Path("build/other/rankmap.csv").write_text("edited\n", encoding="utf-8")
    checked = parc(*words, "--check", spec, other, "--format", "json")
    assert checked.exit_code == 1
    first, second = json.loads(checked.stdout)["specs"]
    assert (first["spec"], first["directory"], first["diagnostics"]) == (spec, "build/small", [])
    assert [found["label"] for found in second["diagnostics"]] == ["rankmap.csv"]

    # Worker processes send the same results, and an unreadable spec hides no finding.
    monkeypatch.setattr(command_steps, "MANY_SPECS", 3)
    checked = parc(*words, "--check", spec, "none.yaml", other)
    assert checked.exit_code == 2
    assert "cannot read 'none.yaml'" in checked.stderr
    assert "files edited after the compile: rankmap.csv" in checked.stderr
    assert checked.stdout == "check     1 of 3 specs are OK and up to date\n"


@pytest.mark.parametrize("option", [(), ("--check", "-o", "out"), ("--check", "--timings")])
def test_several_specs_are_compiled_only_to_compare_them(
    spec: str, option: tuple[str, ...]
) -> None:
    result = parc("compile", spec, spec, *option)
    assert result.exit_code == 2
    assert "2 specs are accepted only with --check, and without --output" in result.stderr
    assert not Path("build").exists()
