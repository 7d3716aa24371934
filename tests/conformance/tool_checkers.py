"""Functions that run the checking programs of all tools except Megatron-Core.

Each function accepts the cases that its program describes and returns their verdicts in the same
order. tests/conformance/run sets the variables with the paths of the tools; without them the tests
are skipped.
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
    """Check ds_config.json files with DeepSpeed (deepspeed_checker.py)."""
    return tool_verdicts("torch", "deepspeed/deepspeed_checker.py", cases)


def mesh_verdicts(cases: list[Case]) -> list[Verdict]:
    """Return the groups of torch's DeviceMesh (mesh_checker.py)."""
    return tool_verdicts("torch", "shared/mesh_checker.py", cases)


def launch_verdicts(cases: list[Case]) -> list[Verdict]:
    """Parse command lines with torchrun and DeepSpeed's launcher (launch_checker.py)."""
    return tool_verdicts("torch", "torch/launch_checker.py", cases)


def torchtitan_verdicts(cases: list[Case]) -> list[Verdict]:
    """Check config modules with torchtitan (torchtitan_checker.py)."""
    return tool_verdicts("torch", "torch/torchtitan_checker.py", cases)


def accelerate_verdicts(cases: list[Case]) -> list[Verdict]:
    """Check config files with Accelerate (accelerate_checker.py)."""
    return tool_verdicts("torch", "torch/accelerate_checker.py", cases)


def transformers_verdicts(cases: list[Case]) -> list[Verdict]:
    """Count the parameters of models that transformers builds (transformers_checker.py)."""
    return tool_verdicts("torch", "torch/transformers_checker.py", cases)


def family_verdicts(cases: list[Case]) -> list[Verdict]:
    """Run programs of tiny models on CPU ranks."""
    return tool_verdicts("torch", "torch/family_ranks.py", cases)


def kubernetes_verdicts(cases: list[Case]) -> list[Verdict]:
    """Check manifests with the models and schemas of Kubernetes (kubernetes_checker.py)."""
    return tool_verdicts("torch", "kubernetes/kubernetes_checker.py", cases)


def vllm_verdicts(cases: list[Case], version: str = "") -> list[Verdict]:
    """Check `vllm serve` commands with vLLM (vllm_checker.py), by default the newest version."""
    return tool_verdicts("vllm", "vllm/vllm_checker.py", cases, *vllm_sources(version))


def vllm_sources(version: str) -> tuple[str, ...]:
    """Return the folder with the Python files of a version of vLLM; nothing for the installed one.

    Skip the test if the folder does not exist.
    """
    if not version:
        return ()
    folder = Path(os.environ.get("PARC_CONFORMANCE_VLLM_SOURCES", ""), version)
    if not (folder / "vllm").is_dir():
        pytest.skip(
            f"no vLLM {version} in PARC_CONFORMANCE_VLLM_SOURCES: run tests/conformance/run"
        )
    return (str(folder),)


def sglang_verdicts(cases: list[Case]) -> list[Verdict]:
    """Check commands of SGLang's server with SGLang (sglang_checker.py)."""
    return tool_verdicts("sglang", "sglang/sglang_checker.py", cases)


def vllm_gpu(gpu: Gpu) -> dict[str, Any]:
    """Return a GPU of PARC's catalog in the fields of vllm_checker.py; vLLM's defaults depend on
    it.
    """
    return {
        "name": f"NVIDIA {gpu.catalog_name}",
        "memory_gib": gpu.memory_bytes / 2**30,
        "capability": list(gpu.compute_capability),
        "multiprocessors": 132,
    }


def tool_python(tool: str) -> str:
    """Return the path of the Python that has ``tool``; skip the test if there is none.

    Args:
        tool: "torch" (with DeepSpeed, torchtitan, Accelerate and Kubeflow's models), "vllm"
            or "sglang".
    """
    variable = {
        "torch": "PARC_CONFORMANCE_PYTHON",
        "vllm": "PARC_CONFORMANCE_VLLM",
        "sglang": "PARC_CONFORMANCE_SGLANG",
    }[tool]
    python = os.environ.get(variable, "")
    if not python:
        why = os.environ.get(f"{variable}_ABSENT", "run tests/conformance/run, which installs it")
        pytest.skip(f"{variable} names no Python that has {tool}: {why}")
    return python


def tool_verdicts(tool: str, program: str, cases: list[Case], *words: str) -> list[Verdict]:
    """Return the verdicts of a checking program; fail if the program itself failed on a case.

    ``words`` are the arguments of the program.
    """
    command = [tool_python(tool), str(HERE / program), *words]
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
