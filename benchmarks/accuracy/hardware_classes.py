"""Hardware classes of published runs: efficiency rows by ``generation/stack``.

The rows of software that PARC's backends emit are in the catalog, those of other software in
``stacks/GENERATION.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from parc.compiler.catalog.find_generation import PRIOR, find_generation
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir import Efficiency, Generation

STACKS = Path(__file__).parent / "stacks"
"""Folder with the rows of software that no backend of PARC emits."""


class PublishedLibrary(Library):
    """Catalog whose generations also have the rows of ``STACKS``."""

    def entry(self, kind: str, name: str) -> dict[str, Any]:
        """Return the content of an entry; KeyError for an unknown name."""
        entry = super().entry(kind, name)
        file = STACKS / f"{name}.yaml"
        if kind == "generations" and file.is_file():
            entry["efficiency"] |= parse_table(file.read_text("utf-8"))["efficiency"]
        return entry


@cache
def generation(name: str) -> Generation:
    """Return a generation with the rows of all published runs; KeyError for an unknown name."""
    found = find_generation(name, PublishedLibrary(), Sink(), "")
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
    like = _row_in_file(hardware).get("like", PRIOR)
    return "" if like == PRIOR else str(like)


def _row_in_file(hardware: str) -> Mapping[str, Any]:
    """Return the row of a class as in its file; empty for a class without a row."""
    name, _, stack = hardware.partition("/")
    row: Mapping[str, Any] = (
        PublishedLibrary().entry("generations", name)["efficiency"].get(stack, {})
    )
    return row


@cache
def own_parameters(hardware: str) -> tuple[str, ...]:
    """Return the names of the parameters that the file of the class lists, not the inherited ones.

    A class without a file entry has none.
    """
    row = _row_in_file(hardware)
    names = {field.name for field in fields(Efficiency) if field.type == "float"}
    return tuple(key for key in row if key in names)


def fitted_classes() -> dict[str, Mapping[str, Any]]:
    """Return the classes that were fitted to published runs, with their rows as in the file."""
    library = PublishedLibrary()
    return {
        f"{name}/{stack}": row
        for name in library.names("generations")
        for stack, row in sorted(library.entry("generations", name)["efficiency"].items())
        if "fitted_runs" in row
    }
