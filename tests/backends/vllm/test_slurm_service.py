"""Test of the batch job of a service: each host runs its part, in the order of the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parc.backends.registry import serving_backend
from tests.backends.stage import HOSTNAME, SCONTROL, SRUN, Stage
from tests.search.serving_specs import plan_of, spec

pytestmark = pytest.mark.usefixtures("few_requests")

VLLM = """#!/bin/bash
echo "$HOST $*" >> "$STAGE/calls"
"""
NAMED = {"node": "hgx-h100", "racks": [{"name": "a", "nodes": "h[1-2]"}]}


def stage(root: Path, **parts: Any) -> Stage:
    """Return a stage with the files of Llama 3.1 405B on two hosts."""
    tree = spec("llama-3.1-405b", "hgx-h100", 2, layout={"tp": 8, "pp": 2, "replicas": 1})
    plan = plan_of(tree | {"emit": ["slurm", "vllm"]} | parts)
    found = Stage(root)
    for name in plan.problem.emit:
        for artifact in serving_backend(name).emit_serving(plan):
            found.put(f"out/{artifact.path}", artifact.text, artifact.executable)
    for name, text in (("scontrol", SCONTROL), ("hostname", HOSTNAME), ("srun", SRUN)):
        found.put(f"bin/{name}", text, True)
    found.put("bin/vllm", VLLM, True)
    found.put("work/nothing", "")
    return found


@pytest.mark.parametrize(
    ("parts", "hosts"), [({"cluster": NAMED}, ("h1", "h2")), ({}, ("n4", "n9"))]
)
def test_every_host_runs_its_part_and_gets_the_address_of_the_head(
    tmp_path: Path, parts: Any, hosts: tuple[str, str]
) -> None:
    found = stage(tmp_path, **parts)
    found.put("leaves", "".join(f"leaf1 {host}\n" for host in hosts))
    done = found.submit(*hosts)
    assert done.returncode == 0, done.stderr
    first, second = sorted((tmp_path / "calls").read_text("utf-8").splitlines())
    head, worker = hosts
    assert first.startswith(f"{head} serve ")
    assert f"--node-rank 0 --master-addr {head} " in first
    assert second.startswith(f"{worker} serve ")
    assert f"--node-rank 1 --master-addr {head} " in second
    assert second.endswith("--headless")
