"""Tests of ``parc calibrate``: fitted parameters, output file, findings about bad tables."""

from __future__ import annotations

import json
import re
import shutil
from math import log
from pathlib import Path

import pytest
from click.testing import Result
from ruamel.yaml import YAML

from parc.compiler.cost.setup.calibrated_parameters import numeric_efficiency_parameters
from parc.compiler.tools.calibration.calibration_report import HEAD
from tests.cli.measured import HEADER, RUNS, nccl_text, write_runs, write_text
from tests.cli.specs import SPEC, parc
from tests.generations import efficiency_row

SHIPPED = numeric_efficiency_parameters(efficiency_row("hopper/transformer-engine"))
SLOW = (("attention", 1.3 * SHIPPED["attention"]), ("tp", 1.6 * SHIPPED["tp"]))
"""Machine with attention 30 % slower and tensor parallelism 60 % slower than shipped."""
ONE = f"{HEADER}\n{RUNS.splitlines()[2]}\n"


def codes(*words: str) -> tuple[list[tuple[str, int, int]], int]:
    """Return (code, line, column) of every finding, and the exit code."""
    result = parc("calibrate", *words, "--format", "json")
    found = json.loads(result.stdout)["diagnostics"]
    where = [(one["code"], one["span"]["line"], one["span"]["column"]) for one in found]
    return where, result.exit_code


def test_the_parameters_of_a_machine_are_recovered(tmp_path: Path) -> None:
    result = parc("calibrate", write_runs(tmp_path, SLOW), "--format", "json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    learned = {one["name"]: one for one in document["parameters"]}
    for name, truth in SLOW:
        assert learned[name]["identified"] == "yes"
        assert abs(log(learned[name]["fitted"] / truth)) < 0.5 * abs(log(SHIPPED[name] / truth))
    errors = document["calibration"]["fitted_to"]["mean_error"]
    assert errors["fitted"] < 0.02 < 0.05 < errors["shipped"]
    assert errors["fitted"] <= errors["left_out"] < errors["shipped"]


def test_runs_that_match_the_shipped_parameters_change_nothing(tmp_path: Path) -> None:
    document = json.loads(parc("calibrate", write_runs(tmp_path, ()), "--format", "json").stdout)
    for one in document["parameters"]:
        assert one["fitted"] == pytest.approx(one["shipped"], rel=1e-3)


def warned(stderr: str) -> list[str]:
    """Return the codes of the warnings on standard error."""
    return re.findall(r"^warning\[(\S+)\]", stderr, re.MULTILINE)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Return a folder with runs.csv of the slow machine and its own.yaml, and the result."""
    folder = tmp_path_factory.mktemp("calibrated")
    return folder, parc("calibrate", write_runs(folder, SLOW), "-o", str(folder / "own.yaml"))


def test_a_parameter_that_no_run_determines_keeps_its_shipped_value(
    calibrated: tuple[Path, Result],
) -> None:
    folder, result = calibrated
    assert warned(result.stderr) == ["PARC-Q05"]
    assert "ep: mixture-of-experts runs" in result.stderr
    document = YAML(typ="safe").load((folder / "own.yaml").read_text("utf-8"))
    assert not {"ep", "gemm_low"} & document["parameters"].keys()
    assert {"ep", "gemm_low"} <= set(document["fitted_to"]["not_identified"])


def test_the_calibration_file_has_no_path_and_is_reproducible(
    calibrated: tuple[Path, Result],
) -> None:
    folder, first = calibrated
    runs, out = folder / "runs.csv", folder / "own.yaml"
    assert first.exit_code == 0
    assert first.stdout.endswith(f"wrote {out}\n")
    text = out.read_text("utf-8")
    assert parc("calibrate", str(runs), "-o", str(out)).exit_code == 0
    assert out.read_text("utf-8") == text
    assert text.startswith(HEAD)
    assert str(folder) not in text
    assert sorted(path.name for path in folder.iterdir()) == ["own.yaml", "runs.csv"]


def test_a_file_that_calibrate_did_not_write_is_not_replaced(tmp_path: Path) -> None:
    runs, out = write_text(tmp_path, ONE), tmp_path / "spec.yaml"
    out.write_text(SPEC, encoding="utf-8")
    result = parc("calibrate", runs, "-o", str(out))
    assert result.exit_code == 2
    assert "was not written by parc calibrate" in result.stderr
    assert out.read_text("utf-8") == SPEC


def test_a_missing_folder_exits_with_2(tmp_path: Path) -> None:
    result = parc("calibrate", write_text(tmp_path, ONE), "-o", str(tmp_path / "none" / "own.yaml"))
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_a_spec_with_the_calibration_is_estimated_with_it(
    tmp_path: Path, calibrated: tuple[Path, Result]
) -> None:
    shutil.copy(calibrated[0] / "own.yaml", tmp_path)
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    before = json.loads(parc("estimate", str(spec), "--format", "json").stdout)
    words = ("--set", "cluster.calibration=own.yaml")
    after = json.loads(parc("estimate", str(spec), *words, "--format", "json").stdout)
    assert after["time"]["tp_seconds"] > 1.3 * before["time"]["tp_seconds"]
    assert after["memory"] == before["memory"]
    shown = parc("estimate", str(spec), *words).stdout
    assert "cost model parameters come from cluster.calibration" in shown
    out = tmp_path / "out"
    assert parc("compile", str(spec), *words, "-o", str(out)).exit_code == 0
    lock = json.loads((out / "parc.lock").read_text("utf-8"))
    plan = json.loads((out / "plan.json").read_text("utf-8"))
    assert lock["decisions"]["calibration"] == dict(plan["problem"]["calibration"])
    assert lock["decisions"]["calibration"]["tp"] > 1.2 * SHIPPED["tp"]


def test_a_row_may_name_a_spec_and_override_its_fields(tmp_path: Path) -> None:
    spec = SPEC.replace("micro_batch: 1", "micro_batch: 1, vpp: 1, recompute: none")
    (tmp_path / "spec.yaml").write_text(spec, encoding="utf-8")
    table = "run,spec,tp,recompute,step_seconds\na,spec.yaml,,,4\nb,spec.yaml,4,selective:mlp,4\n"
    result = parc("calibrate", write_text(tmp_path, table), "--format", "json")
    assert result.exit_code == 0
    first, second = json.loads(result.stdout)["runs"]
    assert first["shipped"] != second["shipped"]


def test_a_spec_without_a_degree_is_reported_with_the_degree(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC.replace("tp: 8, ", ""), encoding="utf-8")
    result = parc("calibrate", write_text(tmp_path, "spec,step_seconds\nspec.yaml,4\n"))
    assert result.exit_code == 1
    assert "error[PARC-Q02]" in result.stderr
    assert "tp, recompute of this run are not set" in result.stderr


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("step_seconds", "seconds_of_step"), ("PARC-Q01", 1, 83)),
        (("vpp", "tp"), ("PARC-Q01", 1, 57)),
        (("none,1", "none,1,7"), ("PARC-Q01", 2, 56)),
        (("none,1", "none,4.2s"), ("PARC-Q02", 2, 54)),
        (("none,1", "none,-3"), ("PARC-Q02", 2, 54)),
        (("none,1", "none,"), ("PARC-Q02", 2, 1)),
        (("dgx-h100", "dgx-h1000"), ("PARC-K01", 2, 21)),
        (("llama-3-8b", "llama-3-9b"), ("PARC-K01", 2, 10)),
        (("128,1,", "128,3,"), ("PARC-D01", 2, 41)),
        (("128,1,", "128,eight,"), ("PARC-X09", 2, 41)),
        (("8192,128", "8192,"), ("PARC-X08", 2, 1)),
        (("one host", '"one host'), ("PARC-Q01", 2, 1)),
    ],
)
def test_a_mistake_is_reported_at_its_cell(
    change: tuple[str, str], expected: tuple[str, int, int], tmp_path: Path
) -> None:
    found, exit_code = codes(write_text(tmp_path, ONE, change))
    assert expected in found
    assert exit_code == 1


def test_cells_may_have_quotes_and_blanks(tmp_path: Path) -> None:
    text = ONE.replace("one host,llama-3-8b", '"one, ""1"" host" ,  llama-3-8b')
    result = parc("calibrate", write_text(tmp_path, text), "--format", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["runs"][0]["run"] == 'one, "1" host'


@pytest.mark.parametrize("text", ["", "\n\n", HEADER, f"{HEADER}\n# nothing\n,,,\n"])
def test_a_table_without_runs_is_reported(text: str, tmp_path: Path) -> None:
    found, exit_code = codes(write_text(tmp_path, text))
    assert [code for code, _, _ in found] == ["PARC-Q01"]
    assert exit_code == 1


def test_all_mistakes_of_a_table_are_reported_at_once(tmp_path: Path) -> None:
    text = f"{HEADER}\n{RUNS}".replace("long,llama-3-8b", "long,nothing", 1)
    found, _ = codes(write_text(tmp_path, text, ("none,1\n", "none,x\n")))
    assert [code for code, _, _ in found] == ["PARC-Q02", "PARC-K01"]


def test_a_table_with_two_hardware_classes_is_refused(tmp_path: Path) -> None:
    text = f"{HEADER}\n{RUNS}".replace("two hosts,llama-3-8b,dgx-h100", "two,llama-3-8b,dgx-a100")
    found, exit_code = codes(write_text(tmp_path, text))
    assert found == [("PARC-Q03", 5, 16)]
    assert exit_code == 1


def test_a_step_time_in_milliseconds_gets_a_warning(tmp_path: Path) -> None:
    runs = Path(write_runs(tmp_path, ()))
    lines = runs.read_text("utf-8").splitlines()
    head, _, seconds = lines[4].rpartition(",")
    lines[4] = f"{head},{float(seconds) * 1e3:g}"
    runs.write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = parc("calibrate", str(runs))
    assert result.exit_code == 0
    assert "two hosts took" in result.stderr
    assert warned(result.stderr).count("PARC-Q06") == 1


def test_an_unreadable_file_exits_with_2(tmp_path: Path) -> None:
    assert parc("calibrate", "nothing.csv").exit_code == 2
    runs = write_runs(tmp_path, ())
    assert parc("calibrate", runs, "--nccl", "nothing.txt").exit_code == 2


def test_runs_are_read_from_standard_input() -> None:
    result = parc("calibrate", "-", given=ONE)
    assert result.exit_code == 0
    assert "1 run of 1 model" in result.stdout


def test_collectives_inside_a_host_are_fitted(tmp_path: Path) -> None:
    nccl = tmp_path / "all_reduce.txt"
    truth = nccl_text(1, 8, lambda size: 20e-6 + size * 2 * 7 / 8 / 300e9, "all_reduce")
    nccl.write_text(truth, encoding="utf-8")
    result = parc(
        "calibrate", write_runs(tmp_path, ()), "--nccl", str(nccl), "-o", str(tmp_path / "own.yaml")
    )
    assert result.exit_code == 0
    assert "8 on 1" in result.stdout
    document = YAML(typ="safe").load((tmp_path / "own.yaml").read_text("utf-8"))
    assert document["collectives"].keys() == {"all_reduce"}
    assert document["fitted_to"]["collective_timings"] == 31


def test_the_network_between_hosts_is_fitted(tmp_path: Path) -> None:
    nccl = tmp_path / "send.txt"
    nccl.write_text(nccl_text(2, 1, lambda size: 20e-6 + size / 30e9, "sendrecv"), "utf-8")
    result = parc("calibrate", write_runs(tmp_path, ()), "--nccl", str(nccl), "--format", "json")
    learned = {one["name"]: one for one in json.loads(result.stdout)["parameters"]}
    assert learned["network"]["fitted"] == pytest.approx(30 / 50, rel=0.1)
    assert learned["network"]["identified"] == "yes"


@pytest.mark.parametrize(
    "change",
    [
        ("all_reduce_perf", "broadcast_perf"),
        ("on         n1 device  7", "on         n2 device  7"),
        ("\n        1", "\n#       1"),
    ],
)
def test_incomplete_output_of_nccl_tests_is_refused(
    change: tuple[str, str], tmp_path: Path
) -> None:
    text = nccl_text(1, 8, lambda size: 20e-6 + size / 3e11, "all_reduce")
    text = text.replace(*change)
    if change[0].startswith("\n"):
        text = "\n".join(text.splitlines()[:13]) + "\n"
    nccl = tmp_path / "out.txt"
    nccl.write_text(text, encoding="utf-8")
    found, exit_code = codes(write_runs(tmp_path, ()), "--nccl", str(nccl))
    assert [code for code, _, _ in found] == ["PARC-Q04"]
    assert exit_code == 1


def test_two_outputs_for_one_collective_are_refused(tmp_path: Path) -> None:
    words = [write_runs(tmp_path, ())]
    for name in ("a.txt", "b.txt"):
        text = nccl_text(1, 8, lambda size: 20e-6 + size / 3e11, "all_gather")
        (tmp_path / name).write_text(text, encoding="utf-8")
        words += ["--nccl", str(tmp_path / name)]
    found, _ = codes(*words)
    assert [code for code, _, _ in found] == ["PARC-Q04"]
