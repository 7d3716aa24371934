"""Constants of all engines that have published measurements, by name."""

from __future__ import annotations

from pathlib import Path

from parc.backends.engine_constants import build_engine_constants
from parc.backends.registry import engine
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir.engine_constants import EngineConstants

TABLE = Path(__file__).parent / "engines.yaml"
"""Engines without a backend: their constants cannot be reached from a spec."""


def measured_engines() -> dict[str, EngineConstants]:
    """Return the constants of engines with a backend, and of those in ``engines.yaml``."""
    table = parse_table(TABLE.read_text("utf-8"))
    others = {name: build_engine_constants(name, tree, TABLE.name) for name, tree in table.items()}
    return {**{name: engine(name).constants() for name in ("vllm", "sglang")}, **others}


ENGINES = measured_engines()
