"""Replacements on a CPU for the GPU queries and compiled modules of vLLM.

Runs under the Python that has vLLM; imports neither PARC nor pytest.
"""

from __future__ import annotations

import re
import sys
import types
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any


@dataclass
class Machine:
    """Host with GPUs: their driver name, memory, capability and number."""

    name: str
    memory_gib: float
    capability: tuple[int, int]
    multiprocessors: int
    gpus: int = 8


MACHINES = {
    "a100": Machine("NVIDIA A100-SXM4-80GB", 79.3, (8, 0), 108),
    "b200": Machine("NVIDIA B200", 178.4, (10, 0), 148),
    "h100": Machine("NVIDIA H100 80GB HBM3", 79.6, (9, 0), 132),
    "h200": Machine("NVIDIA H200", 139.8, (9, 0), 132),
    "l40s": Machine("NVIDIA L40S", 44.5, (8, 9), 142),
}
CUTLASS_SINCE = {
    "cutlass_scaled_mm_supports_fp8": 89,
    "cutlass_scaled_mm_supports_block_fp8": 90,
    "cutlass_group_gemm_supported": 90,
    "cutlass_sparse_scaled_mm_supported": 90,
    "cutlass_scaled_mm_supports_fp4": 100,
}
"""Compute capability from which vLLM's compiled library reports support."""


class LaunchParameters:
    """Replacement for triton.Config with the attributes that are read."""

    def __init__(self, kwargs: Any = None, num_warps: int = 4, num_stages: int = 3, **_: Any):
        self.kwargs, self.num_warps, self.num_stages = kwargs or {}, num_warps, num_stages


class CompiledModules(MetaPathFinder, Loader):
    """Import hook with empty modules in place of vLLM's compiled extensions."""

    names = re.compile(r"vllm\.(\w+\.)*_\w*_?C(_stable_libtorch)?")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if self.names.fullmatch(name) else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return types.ModuleType(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def install_machine(machine: Machine) -> None:
    """Make vLLM detect ``machine``; its fields may change afterwards."""
    sys.meta_path.insert(0, CompiledModules())
    import vllm.platforms

    vllm.platforms._current_platform = platform_of(machine)
    import torch

    for operation, since in CUTLASS_SINCE.items():
        setattr(torch.ops._C, operation, _is_since(machine, since))
    from vllm.triton_utils import HAS_TRITON, triton

    if not HAS_TRITON:  # vLLM's own placeholder lacks the class that holds launch parameters
        triton.Config = LaunchParameters
    _inspect_models_without_gpu()


def platform_of(machine: Machine) -> Any:
    """Return a CUDA platform with the properties of ``machine``."""
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    answers = {
        "get_device_capability": lambda *_, **__: DeviceCapability(*machine.capability),
        "get_device_name": lambda *_, **__: machine.name,
        "get_device_uuid": lambda _, number=0: f"GPU-{number}",
        "get_device_total_memory": lambda *_, **__: int(machine.memory_gib * 2**30),
        "is_fully_connected": lambda *_: True,
        "get_device_numa_node": lambda *_, **__: None,
        "get_all_device_numa_nodes": lambda *_: None,
        "device_count": lambda *_: machine.gpus,
        "num_compute_units": lambda *_, **__: machine.multiprocessors,
    }
    methods = {name: classmethod(answer) for name, answer in answers.items()}
    return type("RehearsedCuda", (CudaPlatformBase,), methods)()


def _is_since(machine: Machine, since: int) -> Any:
    return lambda _: machine.capability[0] * 10 + machine.capability[1] >= since


def _inspect_models_without_gpu() -> None:
    """Let vLLM inspect a model's class in this process, because its subprocess has none of these
    replacements, and imports vLLM once more for every class.
    """
    import vllm.model_executor.models.registry as registry

    registry._run_in_subprocess = lambda inspect: inspect()
