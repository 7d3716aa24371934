"""What a framework's own files say about the ranks, however they say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from parc.compiler.diagnostics import Sink


@dataclass(frozen=True, slots=True)
class Groups:
    """All groups of one family: group ``i`` has the ranks ``bases[i] + member``."""

    members: list[int]
    bases: list[int]


@dataclass(frozen=True, slots=True)
class RankMap:
    """What ``rankmap.csv`` says."""

    world: int
    hosts: list[str]
    racks: list[str]
    domains: list[str]
    """By node rank."""
    columns: Mapping[str, list[int] | None]
    """Coordinate of every rank by column; None where they are not known, or not all numbers."""

    @property
    def ranks_per_node(self) -> int:
        """Ranks of a host."""
        return self.world // max(1, len(self.hosts))


@dataclass(frozen=True, slots=True)
class Told:
    """Sizes and groups of a world of ranks, derived without the meshes of the placement."""

    file: str
    """The file that says the sizes."""
    builder: str
    """Who builds groups from it: ``Megatron``."""
    order: str
    sizes: dict[str, int]
    """By the names of the rank map: dp, ep, edp, ..."""
    families: dict[str, Groups]
    columns: tuple[str, ...]
    """Families of a single axis: the columns of the rank map."""


@dataclass(frozen=True, slots=True)
class SecondRoute:
    """How the files of one framework are judged. Both functions raise ``Malformed`` for any text.

    A new framework adds a module with one of these and a line in ``verify_plan``.
    """

    file: str
    """The file by which its output is known."""
    needs: tuple[str, ...]
    """Files that must stand beside it."""
    contents: Callable[[Mapping[str, str], Sink], None]
    """Report what the files lose, whatever the ranks."""
    told: Callable[[Mapping[str, str], int, Sink], Told | None]
    """Sizes and groups on so many ranks; None after a finding."""
