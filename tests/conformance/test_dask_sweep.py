"""``parc sweep --executor dask://`` on a real Dask cluster with two workers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.specs import write_spec
from tests.project_files import ROOT

PYTHON = os.environ.get("PARC_CONFORMANCE_MCP", "")
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not PYTHON, reason="tests/conformance/run installs it"),
]

CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":  # the workers are processes that import this file
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        print(cluster.scheduler_address.removeprefix("tcp://"), flush=True)
        sys.stdin.read()
"""


@contextmanager
def dask_cluster(folder: Path) -> Iterator[str]:
    """Start a Dask cluster on this machine, and yield HOST:PORT of its scheduler."""
    program = folder / "cluster.py"
    program.write_text(CLUSTER)
    with subprocess.Popen(
        [PYTHON, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        yield running.stdout.readline().strip()
        running.stdin.close()  # ends the program


def swept(spec: str, *words: str) -> object:
    """Return the JSON output of ``parc sweep`` over four points, two of which have no plan."""
    vary = ("--vary", "layout.tp=3,4", "--vary", "job.global_batch=64,128")
    command = [PYTHON, "-m", "parc", "sweep", spec, *vary, "--format", "json", *words]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_dask_cluster_returns_the_rows_of_one_process(tmp_path: Path) -> None:
    spec = write_spec(tmp_path)
    with dask_cluster(tmp_path) as address:
        found = swept(spec, "--executor", f"dask://{address}")
    assert found == swept(spec, "--jobs", "1")
