"""Tests of check, estimate, search, explain, verify, catalog, backends, schema and diff."""

from __future__ import annotations

import csv
import io
import json
import pickle
import re
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import pytest

from parc.compiler.cli import command_steps
from parc.compiler.cost.step.terms import TERMS
from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.codes import all_codes
from parc.compiler.ir import Artifact, Plan
from parc.compiler.ir.estimate import Estimate, Run, StepTime
from parc.compiler.pipeline import check_spec
from parc.compiler.report.text.catalog_text import COLUMNS
from parc.compiler.report.text.explain import explainable_topics
from parc.compiler.spec.reading.source import read_source
from parc.compiler.tools.sweep import run_sweep
from tests.cli.specs import SPEC, parc, write_spec
from tests.project_files import ROOT

BAD = (("tp: 8", "tp: 3"),)


def test_check_of_a_valid_spec_passes_and_writes_nothing(tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    result = parc("check", spec)
    assert result.exit_code == 0
    assert result.stdout == f"OK: {spec}, no findings.\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spec.yaml"]


def test_check_shows_the_findings_of_every_spec(tmp_path: Path) -> None:
    first = write_spec(tmp_path, *BAD, name="a.yaml")
    second = write_spec(tmp_path, ("tp: 8", "tp: 5"), name="b.yaml")
    result = parc("check", first, second, "--format", "json")
    assert result.exit_code == 1
    files = {one["file"] for one in json.loads(result.stdout)["diagnostics"]}
    assert files == {first, second}


def test_check_reports_other_specs_if_one_cannot_be_read(tmp_path: Path) -> None:
    result = parc("check", "missing.yaml", write_spec(tmp_path, *BAD))
    assert result.exit_code == 2
    assert "cannot read 'missing.yaml'" in result.stderr
    assert "error[PARC-D01]" in result.stdout


@pytest.mark.parametrize(
    ("style", "start"), [("text", "error[PARC-"), ("github", "::error "), ("sarif", "{")]
)
def test_check_has_formats_for_people_and_programs(style: str, start: str, tmp_path: Path) -> None:
    result = parc("check", write_spec(tmp_path, *BAD), "--format", style)
    assert result.exit_code == 1
    assert result.stdout.startswith(start)
    assert result.stderr == ""


def test_fail_on_sets_the_severity_that_fails(tmp_path: Path) -> None:
    idle = (("global_batch: 64", "global_batch: 4"), ("pp: 1,", "pp: 4, vpp: 1,"))
    spec = write_spec(tmp_path, *idle)
    assert parc("check", spec).exit_code == 0
    assert parc("check", spec, "--fail-on", "warning").exit_code in (0, 1)
    assert parc("check", spec, "--fail-on", "advice").exit_code == 1


def test_check_reads_standard_input() -> None:
    result = parc("check", "-", given=SPEC.replace("tp: 8", "tp: 3"))
    assert result.exit_code == 1
    assert "--> <stdin>:10:14" in result.stdout


def test_estimate_shows_every_term(tmp_path: Path) -> None:
    result = parc("estimate", write_spec(tmp_path))
    assert result.exit_code == 0
    for name in TERMS:
        assert name.removesuffix("_bytes").removesuffix("_seconds") in result.stdout


def test_estimate_in_json_adds_up(tmp_path: Path) -> None:
    document = json.loads(parc("estimate", write_spec(tmp_path), "--format", "json").stdout)
    assert document["fits"] is True
    for row in (document["time"], *document["memory"]):
        total = next(row[name] for name in row if name.startswith("total_"))
        terms = [row[name] for name in row if name in TERMS]
        assert sum(terms) == pytest.approx(total, rel=1e-4)


def test_search_ranks_the_candidates(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, ("tp: 8, cp: 1, pp: 1, ", ""))
    result = parc("search", spec, "--top", "3")
    assert result.exit_code == 0
    assert "chosen" in result.stdout
    rows = list(
        csv.DictReader(io.StringIO(parc("search", spec, "--top", "3", "--format", "csv").stdout))
    )
    assert [row["rank"] for row in rows] == ["1", "2", "3"]
    document = json.loads(parc("search", spec, "--top", "3", "--format", "json").stdout)
    assert [one["tp"] for one in document["candidates"]] == [int(row["tp"]) for row in rows]
    assert document["enumerated"] > sum(one["count"] for one in document["dropped"])


@pytest.mark.parametrize("command", ["estimate", "search"])
def test_errors_of_the_spec_end_a_command_with_1(command: str, tmp_path: Path) -> None:
    result = parc(command, write_spec(tmp_path, *BAD))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "error[PARC-D01]" in result.stderr
    machine = parc(command, write_spec(tmp_path, *BAD), "--format", "json")
    assert json.loads(machine.stdout)["summary"]["errors"] >= 1


def test_explain_describes_every_code() -> None:
    for info in all_codes():
        result = parc("explain", f"PARC-{info.code}")
        assert result.exit_code == 0
        assert info.title in result.stdout


@pytest.mark.parametrize(
    ("topic", "part"),
    [
        ("d01", "heads % tp == 0"),
        ("layout.tp", "Tensor parallel size"),
        ("cluster.racks[0].nodes", "Slurm host list"),
        ("job", "job.global_batch"),
        ("activations_bytes", "source:"),
        ("bubble", "Narayanan"),
        ("optimizer", "optimizer_seconds"),
        ("memory", "total_bytes"),
        ("MFU", "model FLOPs per step /"),
        ("vpp", "layout.vpp: Virtual pipeline size"),  # not goals.limits.vpp
        ("TTFT", "goals.ttft:"),
        ("tp", "layout.tp: Tensor parallel size"),
        ("tp", "tp_seconds: tensor parallelism"),
        ("tokens_per_second", "output tokens"),
        ("goals.maximize", "price_per_gpu_hour.\nserving type:    auto,"),
    ],
)
def test_explain_describes_codes_fields_and_terms(topic: str, part: str) -> None:
    result = parc("explain", topic)
    assert result.exit_code == 0, result.stderr
    assert part in result.stdout


@pytest.mark.parametrize("kind", [Estimate, Run, StepTime])
def test_explain_describes_every_number_of_an_estimate(kind: type) -> None:
    types = ("int", "int | None", "float", "float | None")
    numbers = [one.name for one in fields(kind) if one.type in types]
    assert len(numbers) > 4
    limit = {"limit_bytes"}  # a setting: goals.memory_headroom
    assert {*numbers} - {*explainable_topics()} <= limit


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("layout.tp", "default: auto, PARC chooses the value"),
        ("goals.tie", "default: 1%"),
        ("job.warmup_steps", "default: 1%"),
        ("cluster.failures.gpu_mtbf", "default: 50000h"),
        ("launch.slurm.signal", "default: 5m"),
        ("goals.tie", "example: tie: 0.5%"),
    ],
)
def test_explain_states_a_default_as_users_write_it(field: str, line: str) -> None:
    assert line in parc("explain", field).output.splitlines()


def test_explain_wraps_the_formula_of_a_term() -> None:
    lines = parc("explain", "activations_bytes").output.splitlines()
    assert max(map(len, lines)) <= 88


def test_explain_suggests_a_similar_topic() -> None:
    result = parc("explain", "layout.tpp")
    assert result.exit_code == 2
    assert "Did you mean layout.tp" in result.stderr
    assert "docs/glossary.md" in parc("explain", "zzzz").stderr


def test_verify_accepts_the_output_of_compile_and_rejects_a_contradiction(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert parc("compile", write_spec(tmp_path), "-o", str(out)).exit_code == 0
    result = parc("verify", str(out))
    assert result.exit_code == 0
    assert re.fullmatch(r"OK: \d+ files, consistent and unmodified\.\n", result.stdout)
    lines = (out / "slurm" / "hostfile").read_text("utf-8").splitlines()
    swapped = [lines[1], lines[0], *lines[2:]]
    (out / "slurm" / "hostfile").write_text("\n".join(swapped) + "\n", encoding="utf-8")
    result = parc("verify", str(out))
    assert result.exit_code == 1
    assert "error[PARC-A02]" in result.stdout


def test_an_edit_of_a_comment_is_a_warning(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert parc("compile", write_spec(tmp_path), "-o", str(out)).exit_code == 0
    args = out / "megatron" / "args.sh"
    args.write_text("# my comment\n" + args.read_text("utf-8"), encoding="utf-8")
    result = parc("verify", str(out))
    assert result.exit_code == 0
    assert "warning[PARC-A10]: megatron/args.sh was changed after PARC wrote it" in result.stdout
    assert parc("verify", str(out), "--fail-on", "warning").exit_code == 1


def test_an_edit_of_a_setting_is_an_error_with_both_values(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert parc("compile", write_spec(tmp_path), "-o", str(out)).exit_code == 0
    args = out / "megatron" / "args.sh"
    args.write_text(args.read_text("utf-8").replace("--lr 0.0001", "--lr 0.01"), encoding="utf-8")
    result = parc("verify", str(out))
    assert result.exit_code == 1
    sentence = r"job\.learning_rate: line (\d+) has --lr 0\.01, the plan has 0\.0001"
    found = re.search(rf"error\[PARC-A14\]: {sentence}\n", result.stdout)
    assert found is not None
    assert f"{found[1]} |   --lr 0.01" in result.stdout
    assert "help: to change job.learning_rate, edit the spec and compile again" in result.stdout


def test_verify_names_files_at_the_top_of_the_folder_that_parc_did_not_write(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    assert parc("compile", write_spec(tmp_path), "-o", str(out)).exit_code == 0
    (out / "notes.txt").write_text("x", encoding="utf-8")
    (out / "logs").mkdir()
    (out / "__pycache__").mkdir()
    result = parc("verify", str(out))
    assert result.exit_code == 0
    listed = "advice[PARC-A12]: the folder has files that PARC did not write: logs/, notes.txt\n"
    assert listed in result.stdout


def test_compile_reports_contradictions_of_its_files_which_are_no_mistake_in_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parc.backends.rankmap.backend import Rankmap

    emit = Rankmap.emit

    def emit_wrong_table(self: Rankmap, plan: Plan) -> tuple[Artifact, ...]:
        table, *others = emit(self, plan)
        return (Artifact(table.path, table.text.replace("\n1,0,", "\n1,1,", 1)), *others)

    spec, out = write_spec(tmp_path), tmp_path / "out"
    monkeypatch.setattr(Rankmap, "emit", emit_wrong_table)
    result = parc("compile", spec, "-o", str(out))
    assert result.exit_code == 1
    assert "error[PARC-A05]" in result.stderr
    assert not out.exists()
    assert parc("check", spec).exit_code == 0


def test_verify_of_a_missing_directory_exits_with_2(tmp_path: Path) -> None:
    assert parc("verify", str(tmp_path / "missing")).exit_code == 2


@pytest.mark.parametrize("kind", ["gpus", "nodes", "fabrics", "models", "clusters"])
def test_the_catalog_lists_entries_and_shows_one(kind: str) -> None:
    listed = parc("catalog", kind)
    assert listed.exit_code == 0
    names = [line.split()[0] for line in listed.stdout.splitlines()[1:]]
    assert len(names) >= 5
    shown = parc("catalog", kind, names[0])
    assert shown.exit_code == 0
    assert "source: " in shown.stdout
    document = json.loads(parc("catalog", kind, "--format", "json").stdout)
    assert sorted(document[kind]) == names


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_column_of_a_catalog_list_is_a_field_of_some_entry(kind: str) -> None:
    columns = set(COLUMNS[kind]) - {"modules"}  # no built-in site loads modules
    assert columns <= set(parc("catalog", kind).stdout.splitlines()[0].split())


def test_the_catalog_shows_units() -> None:
    assert "  memory: 85.521 GB\n" in parc("catalog", "gpus", "h100-sxm-80gb").stdout
    assert "400 Gb/s" in parc("catalog", "nodes").stdout


def test_the_catalog_suggests_a_similar_name() -> None:
    result = parc("catalog", "gpus", "h100-sxm")
    assert result.exit_code == 2
    assert "Did you mean h100-sxm-96gb, h100-sxm-80gb" in result.stderr


def test_backends_lists_versions() -> None:
    document = json.loads(parc("backends", "--format", "json").stdout)
    names = [one["name"] for one in document["backends"]]
    assert names == sorted(names)
    assert {"megatron", "rankmap", "slurm", "torchrun"} <= set(names)
    text = parc("backends").stdout
    for one in document["backends"]:
        assert one["versions"]
        assert one["about"] in text


@pytest.mark.parametrize("name", ["spec", "plan", "rankmap", "lock"])
def test_schema_prints_the_schema_of_the_checkout(name: str) -> None:
    # tests/test_examples.py and tests/spec/test_schema.py check that they are JSON Schemas.
    schema = (ROOT / "schemas" / f"{name}.schema.json").read_text("utf-8")
    assert parc("schema", name).stdout == schema


def test_diff_compiles_specs_and_reads_directories(tmp_path: Path) -> None:
    old = write_spec(tmp_path, name="old.yaml")
    new = write_spec(tmp_path, ("tp: 8", "tp: 4"), name="new.yaml")
    out = str(tmp_path / "out")
    assert parc("compile", old, "-o", out).exit_code == 0
    same = parc("diff", out, old, "--exit-code")
    assert (same.exit_code, same.stdout) == (0, f"{out} -> {old}: no changes\n")
    changed = parc("diff", out, new, "--exit-code")
    assert changed.exit_code == 3
    assert "--tensor-model-parallel-size" in changed.stdout
    assert parc("diff", out, new).exit_code == 0
    assert json.loads(parc("diff", out, new, "--format", "json").stdout)["changed"] is True
    assert parc("diff", out, new, "--format", "markdown").stdout.startswith("### parc diff")


def test_diff_of_a_directory_that_parc_did_not_write_exits_with_2(tmp_path: Path) -> None:
    result = parc("diff", str(tmp_path), str(tmp_path))
    assert result.exit_code == 2
    assert "has no plan.json" in result.stderr


def test_many_specs_are_checked_on_all_cores_with_the_output_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = write_spec(tmp_path)
    bad = write_spec(tmp_path, ("tp: 8", "tp: 3"), name="bad.yaml")
    words = ("check", bad, str(tmp_path / "none.yaml"), good)
    alone = parc(*words)
    assert alone.exit_code == 2
    assert "cannot read" in alone.stderr
    monkeypatch.setattr(command_steps, "MANY_SPECS", 3)
    counts: list[int] = []

    def pool(points: int) -> Executor:
        counts.append(points)
        return ThreadPoolExecutor(1)

    monkeypatch.setattr(run_sweep, "local_executor", pool)
    together = parc(*words)
    assert counts == [3]
    assert (together.exit_code, together.stdout) == (2, alone.stdout)
    assert together.stderr == alone.stderr


def test_the_result_of_a_check_can_be_sent_from_another_process(tmp_path: Path) -> None:
    bad = write_spec(tmp_path, ("tp: 8", "tp: 3"))
    sink = Sink()
    check_spec(read_source(bad), (), sink)
    assert sink.failed()
    again = pickle.loads(pickle.dumps(sink))
    assert again.diagnostics == sink.diagnostics
    assert again.positions == sink.positions
