"""``parc compile`` ends with the commands that start the job, whatever ``emit`` lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.ir import Artifact
from parc.compiler.report.text.start_text import start_lines
from tests.backends.plugin_distributions import LAUNCHER, scanned, write_distribution
from tests.cli.specs import parc
from tests.search.serving_specs import plan_of, spec

TRAINING: dict[str, Any] = {
    "model": "llama-3-8b",
    "job": {"sequence_length": 2048, "global_batch": 64},
}
SERVICE: dict[str, Any] = {
    "model": "llama-3-8b",
    "layout": {"tp": 8, "dp": 1, "replicas": 2},
    "job": {
        "kind": "serve",
        "traffic": {"input_tokens": 500, "output_tokens": 100, "request_rate": 10},
    },
}
MEGATRON = " (run it in the folder of pretrain_gpt.py)"
IMAGE = " (the image must start in the folder of pretrain_gpt.py)"
NONE = "by no file of this plan: add slurm, kubernetes or torchrun to emit"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def starts(job: dict[str, Any], emit: list[str], nodes: int, output: str) -> list[str]:
    """Return the lines with the commands that start ``job``."""
    spec = {"parc": 1, "name": "start", **job, "emit": emit}
    spec |= {"cluster": {"node": "dgx-h100", "nodes": nodes}}
    if "kubernetes" in emit:
        spec |= {"launch": {"kubernetes": {"image": "registry.example/image:1"}}}
    Path("spec.yaml").write_text(json.dumps(spec), "utf-8")
    result = parc("compile", "spec.yaml", "-o", output)
    assert result.exit_code == 0, result.stderr
    head, _, lines = result.stdout.partition("\nstart     ")
    assert "\nwrote     " in head
    return [line.strip() for line in lines.splitlines()]


@pytest.mark.parametrize(
    ("emit", "line"),
    [
        (["megatron"], NONE),
        (["megatron", "rankmap"], NONE),
        (["megatron", "torchrun"], f"out/torchrun/launch.sh on each of the 2 hosts{MEGATRON}"),
        (["megatron", "slurm", "torchrun"], f"sbatch out/slurm/job.sbatch{MEGATRON}"),
        (["megatron", "kubernetes"], f"kubectl apply -f out/kubernetes/jobset.yaml{IMAGE}"),
        (["fsdp", "kubernetes"], "kubectl apply -f out/kubernetes/jobset.yaml"),
        (["fsdp", "torchrun"], "out/torchrun/launch.sh on each of the 2 hosts"),
        (["deepspeed"], "out/deepspeed/launch.sh on each of the 2 hosts"),
    ],
)
def test_a_training_job_is_started_by_the_scheduler_or_on_each_host(
    emit: list[str], line: str
) -> None:
    assert starts(TRAINING, emit, 2, "out") == [line]


@pytest.mark.parametrize(("image", "folder"), [("a.sqsh", IMAGE), ("a.sif", MEGATRON)])
def test_a_container_of_pyxis_starts_in_the_folder_of_its_image(image: str, folder: str) -> None:
    job = {**TRAINING, "launch": {"slurm": {"container_image": image}}}
    assert starts(job, ["megatron", "slurm"], 2, "out") == [f"sbatch out/slurm/job.sbatch{folder}"]


@pytest.mark.parametrize(
    ("emit", "lines"),
    [
        (["vllm"], ["out/vllm/serve.sh on each of the 2 hosts"]),
        (["vllm", "ray"], ["python out/ray/serve.py"]),
        (["vllm", "slurm"], ["sbatch out/slurm/job.sbatch"]),
        (["vllm", "kubernetes"], ["kubectl apply -f out/kubernetes/leaderworkerset.yaml"]),
        (["sglang"], ["out/sglang/router.sh", "out/sglang/serve.sh on each of the 2 hosts"]),
        (["tensorrt-llm"], ["out/tensorrt-llm/serve.sh on each of the 2 hosts"]),
    ],
)
def test_a_service_is_started_with_its_router(emit: list[str], lines: list[str]) -> None:
    assert starts(SERVICE, emit, 2, "out") == lines


def test_both_pools_are_started() -> None:
    job = {**SERVICE, "job": {**SERVICE["job"], "disaggregate": True}}
    del job["layout"]
    assert starts(job, ["vllm", "slurm"], 2, "out") == [
        "sbatch out/decode/slurm/job.sbatch",
        "sbatch out/prefill/slurm/job.sbatch",
        "out/router.sh",
    ]
    # The router knows the pods by names that only their cluster resolves.
    assert starts(job, ["vllm", "kubernetes"], 2, "out") == [
        "kubectl apply -f out/decode/kubernetes/leaderworkerset.yaml",
        "kubectl apply -f out/prefill/kubernetes/leaderworkerset.yaml",
        "out/router.sh in a pod of the cluster",
    ]


def test_json_lists_commands_or_nothing() -> None:
    starts(TRAINING, ["megatron"], 2, "out")
    done = parc("compile", "spec.yaml", "-o", "out", "--format", "json")
    assert json.loads(done.stdout)["start"] is None
    starts(TRAINING, ["fsdp", "torchrun"], 1, "out")
    done = parc("compile", "spec.yaml", "-o", "out", "--format", "json")
    assert json.loads(done.stdout)["start"] == ["out/torchrun/launch.sh"]


def test_a_plugin_that_states_no_start_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scanned(tmp_path, monkeypatch):
        write_distribution(tmp_path, "mylab", LAUNCHER)
        assert starts(TRAINING, ["megatron", "mylab"], 1, "out") == [
            "see the documentation of mylab: its backend states no start command"
        ]


def test_the_script_of_an_engine_starts_it_without_a_statement_of_its_backend() -> None:
    plan = plan_of(spec("llama-3.1-8b", "dgx-h100", 2, layout={"tp": 8, "replicas": 2}))
    script = Artifact("vllm/serve.sh", "", True)
    assert start_lines(plan, [script, Artifact("rankmap.csv", "")], "out") == (
        "out/vllm/serve.sh on each of the 2 hosts",
    )


def test_a_folder_with_special_characters_is_quoted() -> None:
    assert starts(TRAINING, ["fsdp", "torchrun"], 1, "my $(out)") == [
        "'my $(out)/torchrun/launch.sh'"
    ]
