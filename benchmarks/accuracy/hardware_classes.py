"""Hardware classes of published runs: efficiency rows of the catalog by ``generation/stack``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from parc.compiler.catalog.find_generation import PRIOR, find_generation
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Efficiency, Generation


@cache
def generation(name: str) -> Generation:
    """Return a generation of the catalog; KeyError for an unknown name."""
    found = find_generation(name, Library(), Sink(), "")
    if found is None:
        raise KeyError(name)
    return found


_OLD_MEGATRON = Efficiency(
    unfused=True,
    overlaps_tp=False,
    overlaps_gradients=False,
    separate_sums=True,
    shares_first_nic=True,
)
"""Prior of Megatron-LM before 3.0 and its forks, such as Megatron-DeepSpeed, which neither overlap
communication with computation nor fuse the accumulation of gradients."""


def class_row(hardware: str) -> Efficiency:
    """Return the row of a class, ``hopper/transformer-engine``; the prior if there is no run."""
    name, _, stack = hardware.partition("/")
    known = generation(name).efficiency
    return known.get(stack, _OLD_MEGATRON if stack in ("unfused", "bigscience") else Efficiency())


@cache
def parent_class(hardware: str) -> str:
    """Return the class that the file of ``hardware`` refers to as ``like``, or an empty text if it
    inherits the values that all classes share."""
    name, _, stack = hardware.partition("/")
    like = Library().entry("generations", name)["efficiency"].get(stack, {}).get("like", PRIOR)
    return "" if like == PRIOR else str(like)


@cache
def own_parameters(hardware: str) -> tuple[str, ...]:
    """Return the names of the parameters that the file of the class lists, not the inherited ones.

    A class without a file entry has none.
    """
    name, _, stack = hardware.partition("/")
    row = Library().entry("generations", name)["efficiency"].get(stack, {})
    names = {field.name for field in fields(Efficiency) if field.type == "float"}
    return tuple(key for key in row if key in names)


def fitted_classes() -> dict[str, Mapping[str, Any]]:
    """Return the classes that were fitted to published runs, with their rows as in the file."""
    library = Library()
    return {
        f"{name}/{stack}": row
        for name in library.names("generations")
        for stack, row in sorted(library.entry("generations", name)["efficiency"].items())
        if "fitted_runs" in row
    }
