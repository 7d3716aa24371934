"""Tests of ``parc calibrate`` with results of serving benchmarks: formats, fit, findings."""

from __future__ import annotations

import json
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.cost.serving.calibrated_service import SERVICE_FACTORS
from parc.compiler.diagnostics import Sink
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.tools.calibration.benchmark_formats import BenchmarkRecord, read_benchmark
from parc.compiler.tools.calibration.fit_services import estimate_measured
from parc.compiler.tools.calibration.measured_services import read_measured_services
from tests.cli.specs import parc

SPEC = """\
parc: 1
name: own
model: llama-3.1-8b
cluster: {node: hgx-h100, nodes: 1}
job:
  kind: serve
  precision: fp8
  traffic: {input_tokens: 1000, output_tokens: 300, concurrency: 16}
layout: {tp: 1, pp: 1, dp: 1, replicas: 1}
"""
SLOW = (("front", 2.0), ("overhead", 1.8))
"""Service whose host and front end are slower than shipped."""
LOADS = (
    *((1, 128, 256), (4, 512, 256), (16, 1024, 256), (64, 2048, 128), (128, 8192, 64)),
    *((1, 1024, 256), (2, 256, 256), (8, 512, 256), (32, 1024, 128)),
)
"""(concurrency, input tokens, output tokens) of each measured run."""


def write_spec(folder: Path, text: str = SPEC) -> str:
    (folder / "spec.yaml").write_text(text, "utf-8")
    return str(folder / "spec.yaml")


def write_table(folder: Path, rows: list[str], name: str = "rows.csv") -> str:
    (folder / name).write_text("\n".join(rows) + "\n", "utf-8")
    return str(folder / name)


def measured_table(folder: Path, factors: tuple[tuple[str, float], ...]) -> str:
    """Write a table with the latencies of a service with ``factors``; return its path."""
    head = "concurrency,input_tokens,output_tokens,ttft_ms,tpot_ms"
    loads = [",".join(map(str, load)) for load in LOADS]
    blank = SpecSource("rows.csv", "\n".join([head, *(f"{load},1,1" for load in loads)]), folder)
    services = read_measured_services([blank], SpecSource("spec.yaml", SPEC, folder), Sink())
    found = [estimate_measured(one, factors) for one in services]
    rows = [
        f"{load},{1e3 * one.ttft_seconds:.6g},{1e3 * one.tpot_seconds:.6g}"
        for load, one in zip(loads, found, strict=True)
    ]
    return write_table(folder, [head, *rows])


def test_the_factors_of_a_service_are_recovered(tmp_path: Path) -> None:
    spec, table = write_spec(tmp_path), measured_table(tmp_path, SLOW)
    result = parc("calibrate", table, "--spec", spec, "--format", "json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    learned = {one["name"]: one for one in document["parameters"]}
    assert set(learned) == set(SERVICE_FACTORS)
    for name, truth in SLOW:
        assert learned[name]["identified"] == "yes"
        assert abs(log(learned[name]["fitted"] / truth)) < 0.4 * abs(log(truth))
    errors = document["calibration"]["fitted_to"]["mean_error"]
    assert errors["fitted"] < 0.03 < 0.2 < errors["shipped"]
    assert errors["fitted"] <= errors["left_out"] < errors["shipped"]
    assert document["calibration"]["class"] == "hopper/vllm"
    assert document["calibration"]["fitted_to"]["runs"] == len(LOADS)
    assert [(one["tp"], one["replicas"]) for one in document["layouts"]] == [(1, 1)]


OWN = "calibration: 1\nclass: hopper/vllm\nparameters: {memory: 0.8, overhead: 2}\n"
CALIBRATED = SPEC.replace("nodes: 1", "nodes: 1, calibration: own.yaml")


def test_a_spec_uses_the_calibration_of_its_service(tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    (tmp_path / "own.yaml").write_text(OWN, "utf-8")
    words = ("--set", "cluster.calibration=own.yaml", "--format", "json")
    shipped = json.loads(parc("estimate", spec, "--format", "json").stdout)
    found = json.loads(parc("estimate", spec, *words).stdout)
    assert found["tpot_seconds"] > 1.2 * shipped["tpot_seconds"]
    assert found["memory"] == shipped["memory"]
    widths = [
        log(one["intervals"]["tpot_seconds"][1] / one["tpot_seconds"]) for one in (found, shipped)
    ]
    assert widths[0] < widths[1]


def test_factors_are_relative_to_shipped_constants_although_the_spec_names_a_calibration(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.yaml").write_text(OWN, "utf-8")
    result = SpecSource("result.json", json.dumps(REPORT), tmp_path)
    plain, calibrated = (
        read_measured_services([result], SpecSource("spec.yaml", text, tmp_path), Sink())[0]
        for text in (SPEC, CALIBRATED)
    )
    assert calibrated.problem.calibration == ()
    assert estimate_measured(calibrated, ()) == estimate_measured(plain, ())


def test_the_lock_and_the_plan_store_the_factors(tmp_path: Path) -> None:
    spec, out = write_spec(tmp_path, CALIBRATED), tmp_path / "out"
    (tmp_path / "own.yaml").write_text(OWN, "utf-8")
    assert parc("compile", spec, "-o", str(out)).exit_code == 0
    lock = json.loads((out / "parc.lock").read_text("utf-8"))
    assert lock["decisions"]["calibration"] == {"memory": 0.8, "overhead": 2}
    plan = json.loads((out / "plan.json").read_text("utf-8"))
    assert plan["problem"]["calibration"] == [["memory", 0.8], ["overhead", 2]]
    (tmp_path / "own.yaml").write_text(OWN.replace("0.8", "0.7"), "utf-8")
    changed = parc("compile", spec, "-o", str(out), "--locked")
    assert changed.exit_code == 1
    assert "calibration" in changed.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("class: hopper/sglang\nparameters: {memory: 0.8}", "a calibration for hopper/sglang"),
        ("class: blackwell/vllm\nparameters: {memory: 0.8}", "a calibration for blackwell/vllm"),
        ("class: hopper\nparameters: {gemm: 1.1}", "a calibration for hopper, not for hopper/vllm"),
        ("class: hopper/vllm\nparameters: {gemm: 1.1}", "unknown key gemm"),
        ("class: hopper/vllm\nparameters: {memory: 9}", "must be a number from 0.2 to 5"),
    ],
)
def test_a_calibration_that_does_not_apply_is_an_error(
    tmp_path: Path, text: str, words: str
) -> None:
    spec = write_spec(tmp_path, CALIBRATED)
    (tmp_path / "own.yaml").write_text(f"calibration: 1\n{text}\n", "utf-8")
    result = parc("estimate", spec)
    assert result.exit_code == 1
    assert words in result.stderr


def test_the_estimate_names_the_calibration(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN, "utf-8")
    text = parc("estimate", write_spec(tmp_path, CALIBRATED)).stdout
    assert "2 cost model parameters come from cluster.calibration\n" in text
    assert "80 % interval" in text


REPORT: dict[str, Any] = {
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "request_rate": "inf",
    "max_concurrency": 32,
    "burstiness": 1.0,
    "completed": 320,
    "total_input_tokens": 320_000,
    "total_output_tokens": 64_000,
    "request_throughput": 4.0,
    "output_throughput": 800.0,
    "mean_ttft_ms": 250.0,
    "mean_tpot_ms": 12.5,
    "tensor_parallel_size": "2",
}
PROFILE: dict[str, Any] = {
    "time_to_first_token": {"unit": "ms", "avg": 250.0},
    "inter_token_latency": {"unit": "ms", "avg": 12.5},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 800.0},
    "input_sequence_length": {"unit": "tokens", "avg": 1000.0},
    "output_sequence_length": {"unit": "tokens", "avg": 200.0},
    "input_config": {
        "endpoint": {"model_names": ["meta-llama/Llama-3.1-8B-Instruct"]},
        "loadgen": {"concurrency": 32, "request_rate": None},
    },
}
DASHBOARD: dict[str, Any] = {
    **{"hw": "h100-cw", "model": "meta-llama/Llama-3.1-8B-Instruct", "tp": 2, "ep": 1},
    **{"dp_attention": "false", "conc": 32, "isl": 1000, "osl": 200},
    **{"output_tput_per_gpu": 400.0, "mean_ttft": 0.25, "mean_tpot": 0.0125},
}
CSV_PROFILE = """\
Metric,avg,min,max,p99
Time To First Token (ms),250.00,1,2,3
Inter Token Latency (ms),12.50,1,2,3
Output Sequence Length (tokens),200.00,1,2,3
Input Sequence Length (tokens),"1,000.00",1,2,3

Metric,Value
Output Token Throughput (tokens/sec),800.0
"""
EXPECTED = {
    **{"input_tokens": 1000, "output_tokens": 200, "ttft_seconds": 0.25, "tpot_seconds": 0.0125},
    **{"tokens_per_second": 800.0, "concurrency": 32, "request_rate": None},
}


def records(text: str) -> tuple[BenchmarkRecord, ...]:
    sink = Sink()
    found = read_benchmark(text, "result.json", sink)
    assert not sink.diagnostics
    return found


@pytest.mark.parametrize("tree", [REPORT, PROFILE, DASHBOARD], ids=["report", "profile", "row"])
def test_each_format_yields_the_same_numbers(tree: dict[str, Any]) -> None:
    (one,) = records(json.dumps(tree, indent=1))
    assert {name: getattr(one, name) for name in EXPECTED} == pytest.approx(EXPECTED)
    assert one.model == "meta-llama/Llama-3.1-8B-Instruct"
    if tree is not PROFILE:
        assert one.settings["layout.tp"] == 2


def test_a_profile_in_csv_lacks_only_the_load() -> None:
    (one,) = records(CSV_PROFILE)
    expected = EXPECTED | {"concurrency": None}
    assert {name: getattr(one, name) for name in EXPECTED} == pytest.approx(expected)


def test_json_lines_and_lists_have_one_run_each() -> None:
    other = {**REPORT, "max_concurrency": 8}
    lines = records(f"{json.dumps(REPORT)}\n\n{json.dumps(other)}\n")
    assert [one.concurrency for one in lines] == [32, 8]
    assert [one.span.line for one in lines] == [1, 3]
    assert [one.concurrency for one in records(json.dumps([REPORT, other]))] == [32, 8]


def test_a_request_rate_is_the_load_unless_the_concurrency_limits_it() -> None:
    # 4 requests/s x 2 s = 8 requests in the system on average.
    rated = {**REPORT, "request_rate": 4.0, "mean_e2el_ms": 2000.0}
    (below,), (at_limit,) = (
        records(json.dumps({**rated, "max_concurrency": most})) for most in (32, 9)
    )
    assert (below.request_rate, below.concurrency) == (4.0, None)
    assert (at_limit.request_rate, at_limit.concurrency) == (None, 9)
    (open_arrivals,) = records(json.dumps({**rated, "max_concurrency": None}))
    assert open_arrivals.request_rate == 4.0


def test_ranks_of_data_parallel_attention_are_counted_by_tp_in_dashboard_rows() -> None:
    (one,) = records(json.dumps({**DASHBOARD, "tp": 8, "ep": 8, "dp_attention": "true"}))
    assert one.settings["layout.tp"] == 1
    assert one.settings["layout.dp"] == 8
    assert one.settings["layout.ep"] == "on"


def findings(folder: Path, text: str, spec: str | None = SPEC) -> list[tuple[str, str]]:
    """Return (code, message) of each finding about the result file ``text``."""
    sink = Sink()
    source = None if spec is None else SpecSource("spec.yaml", spec, folder)
    read_measured_services([SpecSource("result.json", text, folder)], source, sink)
    return [(one.code, one.finding.message) for one in sink.diagnostics]


def test_an_unusable_result_is_reported_with_what_it_lacks(tmp_path: Path) -> None:
    code = "PARC-Q09"
    without_latency = {**REPORT, "mean_ttft_ms": 0, "mean_tpot_ms": None}
    without_load = {**REPORT, "max_concurrency": None}
    spec_without_load = SPEC.replace(", concurrency: 16", "")
    cases = (
        ('{"a": 1}', SPEC, "result.json is not a result of a serving benchmark that PARC can read"),
        ("[1]", SPEC, "result.json is not a result of a serving benchmark that PARC can read"),
        (
            json.dumps(without_latency),
            SPEC,
            "result.json has neither a mean time to the first token nor one per token",
        ),
        (json.dumps(without_load), spec_without_load, "result.json does not state its load"),
        (
            json.dumps(REPORT),
            None,
            "result.json does not describe the cluster and the engine of the service",
        ),
        (
            json.dumps({**REPORT, "tensor_parallel_size": None}),
            SPEC.replace("llama-3.1-8b", "llama-3.1-405b"),
            "result.json: by PARC's estimate, llama-3.1-405b does not fit on 1 x h100-sxm-80gb",
        ),
    )
    for text, spec, message in cases:
        found = findings(tmp_path, text, spec)
        assert (code, message) in found, (message, found)


def test_the_load_of_the_spec_replaces_one_that_the_result_lacks(tmp_path: Path) -> None:
    source = SpecSource("result.csv", CSV_PROFILE, tmp_path)
    spec = SpecSource("spec.yaml", SPEC, tmp_path)
    sink = Sink()
    (one,) = read_measured_services([source], spec, sink)
    assert not sink.diagnostics
    assert one.traffic.concurrency == 16
    assert one.traffic.input_tokens == 1000
    assert [name for name, _ in one.observations] == ["ttft", "tpot"]
    only_rate = replace(one, record=replace(one.record, tpot_seconds=None))
    assert [name for name, _ in only_rate.observations] == ["ttft", "tokens/s"]


def test_a_result_of_another_model_or_gpu_is_reported(tmp_path: Path) -> None:
    other = {**DASHBOARD, "model": "Qwen/Qwen3-32B", "hw": "b200"}
    found = findings(tmp_path, json.dumps(other))
    assert {code for code, _ in found} == {"PARC-Q10"}
    messages = {message.partition(", but the spec has ")[0] for _, message in found}
    assert messages == {
        "result.json measured the model Qwen/Qwen3-32B",
        "result.json measured the GPU b200",
    }


def test_a_layout_that_neither_result_nor_spec_states_is_the_plan_of_the_spec(
    tmp_path: Path,
) -> None:
    table = write_table(tmp_path, ["ttft_ms,tpot_ms", "60,7"])
    spec = write_spec(tmp_path, SPEC.replace(", replicas: 1", ""))
    planned = json.loads(parc("estimate", spec, "--format", "json").stdout)["layout"]
    result = parc("calibrate", table, "--spec", spec)
    assert result.exit_code == 0
    count = planned["replicas"]
    line = f"compared with: tp 1, pp 1, {count} replica{'s' * (count > 1)}\n"
    assert line in result.stdout


def test_an_error_of_the_spec_is_reported_at_the_result(tmp_path: Path) -> None:
    ((code, message),) = findings(tmp_path, json.dumps(REPORT), SPEC.replace("hgx-h100", "hgx-h1"))
    assert code.startswith("PARC-K")
    assert message.startswith("spec.yaml: ")
    trained = "parc: 1\nname: t\nmodel: llama-3-8b\ncluster: {node: dgx-h100, nodes: 1}\n"
    trained += "job: {kind: pretrain, sequence_length: 8192, global_batch: 128}\n"
    ((code, message),) = findings(
        tmp_path, json.dumps({**REPORT, "tensor_parallel_size": None}), trained
    )
    assert (code, message) == (
        "PARC-Q02",
        "spec.yaml describes a training job; the benchmark measured a service",
    )


def test_options_of_the_other_kind_of_measurement_are_refused(tmp_path: Path) -> None:
    table = write_table(tmp_path, ["ttft_ms", "100"])
    training = write_table(tmp_path, ["step_seconds", "1"], "runs.csv")
    assert "--nccl is only for training runs" in parc("calibrate", table, "--nccl", table).stderr
    refused = parc("calibrate", training, "--spec", write_spec(tmp_path))
    assert refused.exit_code == 2
    assert "Training runs are one CSV" in refused.stderr
