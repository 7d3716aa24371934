"""GPU generations of the catalog for tests."""

from __future__ import annotations

from pathlib import Path

from parc.compiler.catalog.find_generation import find_generation
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Efficiency, Generation


def generation(name: str, folder: Path | None = None) -> Generation:
    """Return a generation of the catalog, or of a file in ``folder``."""
    sink = Sink()
    found = find_generation(name, Library(folder), sink, "cluster.gpu.generation")
    assert found is not None, sink.diagnostics
    return found


def efficiency_row(hardware: str) -> Efficiency:
    """Return the row of a hardware class, for example ``hopper/transformer-engine``."""
    name, _, stack = hardware.partition("/")
    return generation(name).efficiency[stack]
