"""Compiled jobs on a real Slurm: specs, files, submission, and the output of their ranks."""

from __future__ import annotations

import csv
import os
import shutil
import time
from pathlib import Path
from typing import Any

from parc.backends.slurm.backend import BACKEND
from tests.compiled import changed, files_of, write_files
from tests.conformance.slurm.private_cluster import SlurmCluster
from tests.conformance.slurm.release import newest_supported

TORCHRUN = """#!/bin/bash
# Replaces torchrun: prints the host and the GPU of each rank.
node=${3#--node-rank=} each=${2#--nproc-per-node=}
IFS=, read -ra gpus <<< "$CUDA_VISIBLE_DEVICES"
for ((local = 0; local < each; local++)); do
  echo "is $((node * each + local)) $SLURMD_NODENAME ${gpus[local]}"
done
"""
TIME_LIMIT = "00:40:00"
"""Slurm warns up to 90 s too early, so a job must end long before that on the slowest machine."""
PATIENCE_SECONDS = 1200.0
WAITING = {"", "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED"}
"""States of a job that has not ended; the state is empty if the controller answers late."""


def named_spec(racks: dict[str, list[str]], **layout: Any) -> dict[str, Any]:
    """Return a spec on every host of ``racks``, with all targets that affect placement."""
    return {
        "parc": 1,
        "name": "placed",
        "model": "mixtral-8x7b" if "ep" in layout else "llama-3-8b",
        "cluster": {
            "node": "dgx-h100",
            "racks": [{"name": name, "nodes": ",".join(hosts)} for name, hosts in racks.items()],
        },
        "job": {"sequence_length": 4096, "global_batch": 256, "precision": "bf16"},
        "layout": layout,
        "launch": {"slurm": {"time_limit": TIME_LIMIT, "signal": "60s"}},
    }


def compiled(cluster: SlurmCluster, name: str, spec: dict[str, Any], torchrun: str) -> Path:
    """Return the folder that the job is submitted from, with the files for the cluster's Slurm
    version in ``out``.
    """
    version = newest_supported(BACKEND.versions, cluster.release)
    spec = changed(spec, {"versions.slurm": version})
    work = cluster.root / "job" / name
    shutil.rmtree(work, ignore_errors=True)
    files = {f"out/{path}": text for path, text in files_of(spec).items()}
    write_files({"bin/torchrun": torchrun, "pretrain_gpt.py": "", **files}, work, executable=True)
    return work


def submit(
    cluster: SlurmCluster,
    work: Path,
    *flags: str,
    script: str = "out/slurm/job.sbatch",
    **env: str,
) -> tuple[str, str]:
    """Submit a job, wait for its end, and return (output, exit status)."""
    return wait_for_job(cluster, work, start_job(cluster, work, *flags, script=script, **env))


def start_job(
    cluster: SlurmCluster,
    work: Path,
    *flags: str,
    script: str = "out/slurm/job.sbatch",
    **env: str,
) -> str:
    """Submit a job and return its number; fail if sbatch rejects it."""
    path = f"{work}/bin:{os.environ['PATH']}"
    words = ("sbatch", "--parsable", *flags, script)
    output = cluster.run(*words, cwd=work, PATH=path, **env)
    job = output.strip().rpartition("\n")[2]  # sbatch may print earlier lines if it has to wait
    assert job.isdigit(), output
    return job


def wait_for_job(cluster: SlurmCluster, work: Path, job: str) -> tuple[str, str]:
    """Wait for a submitted job and return (output, exit status)."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        shown = cluster.run("scontrol", "show", "job", job)
        state = shown.partition("JobState=")[2].partition(" ")[0]
        if state.strip() not in WAITING:
            break
        assert time.monotonic() < deadline, shown
        time.sleep(0.2)
    output = "".join(one.read_text() for one in sorted(work.glob("*.out")))
    return output, shown.partition("ExitCode=")[2].partition(":")[0]


def started_ranks(work: Path) -> list[tuple[str, ...]]:
    """Return (rank, host, gpu) of every rank that started, from its output."""
    lines = [line for log in work.glob("logs/*.log") for line in log.read_text().splitlines()]
    ranks = {tuple(line.split()[1:]) for line in lines if line.startswith("is ")}
    return sorted(ranks, key=lambda one: int(one[0]))


def rank_map(work: Path) -> list[tuple[str, ...]]:
    """Return (rank, host, gpu) of every rank in the plan."""
    return [(row["rank"], row["host"], row["gpu"]) for row in _rows(work)]


def rank_racks(work: Path) -> list[str]:
    """Return the rack of every rank in the plan."""
    return [row["rack"] for row in _rows(work)]


def _rows(work: Path) -> list[dict[str, str]]:
    with (work / "out/rankmap.csv").open() as table:
        return list(csv.DictReader(table))
