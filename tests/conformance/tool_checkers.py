"""The judges of DeepSpeed, torch, torchtitan, Accelerate, Kubernetes and vLLM, as functions.

Each takes the cases that the judge of the same name describes and returns their verdicts, in the
same order. tests/conformance/run says where the tools are; without it the tests are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.ir import Gpu
from tests.conformance.checker_processes import Case, Verdict, run_cases

HERE = Path(__file__).parent


def deepspeed_verdicts(cases: list[Case]) -> list[Verdict]:
    """What DeepSpeed says to ds_config.json files (deepspeed_checker.py)."""
    return tool_verdicts("torch", "deepspeed/deepspeed_checker.py", cases)


def mesh_verdicts(cases: list[Case]) -> list[Verdict]:
    """Groups of torch's DeviceMesh (mesh_checker.py)."""
    return tool_verdicts("torch", "shared/mesh_checker.py", cases)


def launch_verdicts(cases: list[Case]) -> list[Verdict]:
    """What torchrun and the launcher of DeepSpeed make of a command line (launch_checker.py)."""
    return tool_verdicts("torch", "torch/launch_checker.py", cases)


def torchtitan_verdicts(cases: list[Case]) -> list[Verdict]:
    """What torchtitan says to config modules (torchtitan_checker.py)."""
    return tool_verdicts("torch", "torch/torchtitan_checker.py", cases)


def accelerate_verdicts(cases: list[Case]) -> list[Verdict]:
    """What Accelerate says to config files (accelerate_checker.py)."""
    return tool_verdicts("torch", "torch/accelerate_checker.py", cases)


def transformers_verdicts(cases: list[Case]) -> list[Verdict]:
    """How many parameters the models of transformers have (transformers_checker.py)."""
    return tool_verdicts("torch", "torch/transformers_checker.py", cases)


def kubernetes_verdicts(cases: list[Case]) -> list[Verdict]:
    """What the models and schemas of Kubernetes say to manifests (kubernetes_checker.py)."""
    return tool_verdicts("torch", "kubernetes/kubernetes_checker.py", cases)


def vllm_verdicts(cases: list[Case]) -> list[Verdict]:
    """What vLLM says to `vllm serve` commands (vllm_checker.py)."""
    return tool_verdicts("vllm", "vllm/vllm_checker.py", cases)


def vllm_gpu(gpu: Gpu) -> dict[str, Any]:
    """A GPU of PARC's catalog as vllm_checker.py wants it: vLLM's defaults depend on it."""
    return {
        "name": f"NVIDIA {gpu.catalog_name}",
        "memory_gib": gpu.memory_bytes / 2**30,
        "capability": list(gpu.compute_capability),
        "multiprocessors": 132,
    }


def tool_python(tool: str) -> str:
    """The Python that has ``tool``; skips the test where there is none.

    Args:
        tool: "torch" (with DeepSpeed, torchtitan, Accelerate and Kubeflow's models) or "vllm".
    """
    variable = {"torch": "PARC_CONFORMANCE_PYTHON", "vllm": "PARC_CONFORMANCE_VLLM"}[tool]
    python = os.environ.get(variable, "")
    if not python:
        why = os.environ.get(f"{variable}_ABSENT", "run tests/conformance/run, which installs it")
        pytest.skip(f"{variable} names no Python that has {tool}: {why}")
    return python


def tool_verdicts(tool: str, program: str, cases: list[Case]) -> list[Verdict]:
    """Verdicts of one judge; fails where the checking program failed on a case."""
    command = [tool_python(tool), str(HERE / program)]
    named = [case | {"name": str(number)} for number, case in enumerate(cases)]
    verdict_of = {verdict["name"]: verdict for verdict in run_cases(command, named)}
    verdicts = [
        verdict_of[str(number)] | {"name": case.get("name", str(number))}
        for number, case in enumerate(cases)
    ]
    broken = [v for v in verdicts if v["fault"]]
    assert not broken, (
        f"the checking program failed on {len(broken)} cases, the first is {broken[0]}"
    )
    return verdicts
