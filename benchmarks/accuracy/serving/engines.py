"""Constants of all engines that have published measurements, by their name in the tables."""

from __future__ import annotations

from parc.backends.registry import engine
from parc.compiler.ir.engine_constants import EngineConstants

BACKENDS = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
"""Name of an engine in the tables of measurements -> name of its backend."""


def measured_engines() -> dict[str, EngineConstants]:
    """Return engine name, as in the tables of measurements -> constants of the engine."""
    return {name: engine(backend).constants() for name, backend in BACKENDS.items()}


ENGINES = measured_engines()
