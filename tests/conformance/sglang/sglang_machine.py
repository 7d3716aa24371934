"""Replacements on a CPU for the GPU queries and compiled modules of SGLang.

Runs under the Python that has SGLang; imports neither PARC nor pytest.
"""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from typing import Any
from unittest.mock import MagicMock

from absent_modules import AbsentModules
from emulated_gpu import install_fake_triton

ABSENT = (
    *("torchvision", "IPython", "gguf", "decord", "sgl_kernel", "setproctitle"),
    "triton.language.extra",
)
"""Packages that modules import on the way to the arguments, and whose functions are not called."""


class MockedModules(AbsentModules):
    """Import hook whose modules have any attribute, such as a member of an enumeration."""

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        vars(module)["__getattr__"] = any_value
        return module


def any_value(name: str) -> Any:
    """Return a mock for an attribute of a module; see ``absent_modules.any_name``."""
    if name == "__version__":
        return "99.0"
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock(name=name)


@dataclass
class Machine:
    """Host with GPUs: their driver name, memory, capability and number."""

    name: str
    memory_gib: float
    capability: tuple[int, int]
    multiprocessors: int = 132
    gpus: int = 8


def install_machine(machine: Machine) -> None:
    """Make torch report the GPUs of ``machine``; its fields may change afterwards."""
    install_fake_triton()
    language: Any = sys.modules["triton.language"]
    language.__path__ = []
    sys.meta_path.insert(0, MockedModules(ABSENT))
    import torch

    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: machine.gpus,
        "get_device_capability": lambda *_, **__: machine.capability,
        "get_device_name": lambda *_, **__: machine.name,
        "current_device": lambda: 0,
        "mem_get_info": lambda *_, **__: (int(machine.memory_gib * 2**30),) * 2,
        "get_device_properties": lambda *_, **__: types.SimpleNamespace(
            major=machine.capability[0],
            minor=machine.capability[1],
            total_memory=int(machine.memory_gib * 2**30),
            multi_processor_count=machine.multiprocessors,
            name=machine.name,
        ),
        "_lazy_init": lambda: None,
        "Stream": MagicMock,
        "Event": MagicMock,
    }
    vars(torch.cuda).update(answers)
    torch.version.cuda = "13.0"
