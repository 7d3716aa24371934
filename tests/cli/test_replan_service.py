"""Tests of ``parc replan`` with a service: only engines of drained hosts get other hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.specs import hosts, parc, replanned

pytestmark = pytest.mark.usefixtures("few_requests")

SPEC = """\
parc: 1
name: svc
model: llama-3.1-405b
cluster:
  node: hgx-h100
  racks:
    - {name: r01, nodes: "r01n[01-05]"}
    - {name: r02, nodes: "r02n[01-05]"}
  spare: [r01n05, r02n05]
job:
  kind: serve
  traffic: {input_tokens: 2000, output_tokens: 500, concurrency: 640}
  precision: bf16
goals: {maximize: throughput}
layout: {tp: 8, pp: 2}
emit: [rankmap, slurm, vllm]
launch: {kubernetes: {image: "vllm/vllm-openai:v0.11.0"}}
"""
"""Service with four engines of two hosts each."""
SMALL = SPEC.replace("llama-3.1-405b", "llama-3-8b").replace("tp: 8, pp: 2", "tp: 2, pp: 1")
"""Service whose engines use two GPUs, four engines per host."""
EMITTED = ("rankmap, slurm, vllm", "rankmap, kubernetes, vllm", "rankmap, ray, vllm")


def written(tmp_path: Path, text: str = SPEC) -> tuple[str, Path]:
    """Write and compile a spec; return its path and the output directory."""
    spec, out = tmp_path / "spec.yaml", tmp_path / "out"
    spec.write_text(text, encoding="utf-8")
    result = parc("compile", str(spec), "-o", str(out))
    assert result.exit_code == 0, result.output
    return str(spec), out


@pytest.mark.parametrize("emitted", EMITTED)
def test_the_ranks_of_one_host_move_and_files_are_consistent(tmp_path: Path, emitted: str) -> None:
    spec, out = written(tmp_path, SPEC.replace(EMITTED[0], emitted))
    old = hosts(out)
    found = replanned(spec, "--drain", "r01n02", "-o", str(out))
    pairs = zip(old, hosts(out), strict=True)
    assert [(a, b) for a, b in pairs if a != b] == [("r01n02", "r01n05")]
    assert (found["replicas"], found["before"], found["after"]) == (
        [old.index("r01n02") // 2],
        {"domains": 0, "switches": 0},
        {"domains": 0, "switches": 0},
    )
    assert {path.partition(".")[0] for path in _naming(out, "r01n02")} <= {"parc", "plan", "report"}
    assert parc("verify", str(out)).exit_code == 0
    for words in (("--check",), ()):
        assert parc("compile", spec, "-o", str(out), "--locked", *words).exit_code == 0
    assert "r01n02" not in hosts(out)


def _naming(out: Path, host: str) -> set[str]:
    """Return the names of the files that contain the name of the host."""
    files = (path for path in out.rglob("*") if path.is_file())
    return {path.name for path in files if host in path.read_text("utf-8")}


def test_the_text_lists_the_ranks_and_replicas_that_move(tmp_path: Path) -> None:
    spec, out = written(tmp_path)
    result = parc("replan", spec, "--drain", "r01n[02-03]", "-o", str(out), "--dry-run")
    assert result.stdout == (
        "replan    svc: drain r01n[02-03]\n"
        f"from      {out.as_posix()}/parc.lock\n"
        "moves     16 of 64 ranks (25.0 %) on 2 hosts\n"
        "          ranks 8-15 (node rank 1): r01n02 -> r01n05, same leaf\n"
        "          ranks 16-23 (node rank 2): r01n03 -> r02n05, another leaf\n"
        "engines   2 of 4 replicas restart on other hosts: 0, 1\n"
        "spread    additional switches that engines span: 0 -> 1\n"
    )


def test_engines_that_share_a_host_move_together(tmp_path: Path) -> None:
    spec, out = written(tmp_path, SMALL)
    found = replanned(spec, "--drain", "r02n01", "-o", str(out))
    node = found["moves"][0]["node_rank"]
    assert found["replicas"] == [node * 4 + turn for turn in range(4)]
    assert found["moves"][0]["new"] == "r02n05"


def test_an_engine_prefers_its_rack_to_the_surroundings_of_the_drained_host(tmp_path: Path) -> None:
    text = SPEC.replace("spare: [r01n05, r02n05]", "spare: [r02n05]")
    text = text.replace("[01-05]", "[01-03]", 1)
    text = text.replace("tp: 8, pp: 2", "tp: 8, pp: 2, replicas: 2")
    spec, out = written(tmp_path, text)
    old = hosts(out)
    assert [name[:3] for name in old] == ["r01", "r01", "r02", "r02"]
    found = replanned(spec, "--drain", old[2], "-o", str(out))
    assert found["moves"][0]["new"].startswith("r02")
    assert found["after"]["switches"] == 0


def test_without_free_hosts_fewer_replicas_are_suggested(tmp_path: Path) -> None:
    spec, out = written(tmp_path)
    before = (out / "plan.json").read_bytes()
    result = parc("replan", spec, "--drain", "r01n[01-03]", "-o", str(out))
    assert result.exit_code == 1
    assert "error[PARC-T11]: too few free hosts: 3 needed" in result.output
    assert "the nearest smaller plan has layout.replicas 3 and 48 ranks" in result.output
    assert (out / "plan.json").read_bytes() == before
    fewer = parc("compile", spec, "-o", str(out), "--set", "layout.replicas=3")
    assert fewer.exit_code == 0, fewer.output


def test_a_second_replan_keeps_the_drains_of_the_first(tmp_path: Path) -> None:
    spec, out = written(tmp_path)
    replanned(spec, "--drain", "r01n01", "-o", str(out))
    found = replanned(spec, "--drain", "r01n05", "-o", str(out))
    assert found["drained"] == ["r01n01", "r01n05"]
    assert [move["new"] for move in found["moves"]] == ["r02n05"]
    assert parc("replan", spec, "--drain", "r02n01", "-o", str(out)).exit_code == 1


@pytest.mark.parametrize(
    "change",
    [
        {"hosts": [f"x{number}" for number in range(8)]},
        {"layout": {"tp": 0}},
        {"layout": {"tp": -8, "pp": -2, "replicas": 4, "stages": [63, 63]}},
        {"layout": {"tp": 8, "pp": 2, "replicas": 4, "stages": [1]}},
        {"layout": {"tp": 8, "pp": 2, "replicas": 4, "stages": [0, 126]}},
        {"layout": {"tp": 8, "pp": 2, "replicas": 4, "dcp": 3, "stages": [63, 63]}},
        {"ranks_per_node": 4},
    ],
)
def test_a_lock_that_does_not_fit_the_service_is_ignored(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    spec, out = written(tmp_path)
    lock = json.loads((out / "parc.lock").read_text())
    damaged = {**lock, "decisions": {**lock["decisions"], **change}}
    (out / "parc.lock").write_text(json.dumps(damaged), encoding="utf-8")
    found = replanned(spec, "--drain", "r01n01", "-o", str(out), "--dry-run")
    assert found["from"] == "a compile of the spec"
    assert parc("compile", spec, "-o", str(out), "--locked").exit_code == 1
