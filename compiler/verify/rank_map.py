"""Contents of ``rankmap.csv`` that other files are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankMap:
    """Hosts and coordinates of all ranks."""

    world: int
    """Number of ranks."""
    hosts: list[str]
    """Host names by node rank."""
    racks: list[str]
    """Racks by node rank."""
    domains: list[str]
    """NVLink domains by node rank."""
    columns: Mapping[str, list[int] | None]
    """Coordinates by rank per column; None if unknown, or if a cell is not a number."""

    @property
    def ranks_per_node(self) -> int:
        """Number of ranks per host."""
        return self.world // max(1, len(self.hosts))
