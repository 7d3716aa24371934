"""Process groups whose members change, or that newly span racks or NVLink domains."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat

from parc.compiler.report.diff.side import Ranks

MAX_EXAMPLES = 3
MAX_MEMBERS = 4
"""Ranks and racks that an example lists before it elides the remaining ones."""

Group = tuple[int, ...]

DENSE = ("tp", "cp", "dp", "dp-shard", "dp-replicate", "pp")
EXPERT = ("etp", "ep", "edp", "efsdp")
SERVING = ("replica", "dp", "pp", "cp", "tp")
SHARED = ("pp", "dp-replicate")
"""Axes of the dense mesh, of the expert mesh, of a service, and of both training meshes.

A framework has some of them."""


@dataclass(frozen=True, slots=True)
class AxisChange:
    """Groups of one axis on both sides; sizes are in ranks."""

    axis: str
    old_size: int
    new_size: int
    old_groups: int
    new_groups: int
    same_members: int
    """Number of groups that consist of the same ranks on both sides."""
    old_crossing_racks: int
    new_crossing_racks: int
    old_crossing_domains: int
    new_crossing_domains: int
    now_crossing_racks: int
    """Number of groups that span racks and contain a rank whose old group did not."""
    examples: tuple[str, ...]
    """First few of the groups that newly span racks."""

    @property
    def has_changes(self) -> bool:
        """True if members or spans differ."""
        return (
            self.same_members != max(self.old_groups, self.new_groups)
            or self.old_crossing_racks != self.new_crossing_racks
            or self.old_crossing_domains != self.new_crossing_domains
            or self.now_crossing_racks > 0
        )


def group_changes(old: Ranks, new: Ranks, experts: bool) -> tuple[AxisChange, ...]:
    """Return the axes whose groups differ; axes of the expert mesh only with ``experts``."""
    known = old.coordinates.keys() & new.coordinates.keys()
    dense, sparse = (SERVING, ()) if "replica" in known else (DENSE, EXPERT)
    compared = [_compare(axis, dense, old, new) for axis in dense if axis in known]
    if experts:
        mesh = (*SHARED, *sparse)
        compared += [_compare(axis, mesh, old, new) for axis in sparse if axis in known]
    return tuple(change for change in compared if change.has_changes)


def groups(ranks: Ranks, axis: str, mesh: tuple[str, ...]) -> list[Group]:
    """Return the groups of ranks that differ only in ``axis``, sorted by first rank.

    Axes of ``mesh`` that the framework of ``ranks`` does not have are ignored.
    """
    own = ranks.coordinates
    others = [own[name] for name in mesh if name != axis and name in own]
    found: dict[tuple[str, ...], list[int]] = {}
    keys = zip(*others, strict=True) if others else repeat((), ranks.world)
    for rank, key in enumerate(keys):
        found.setdefault(key, []).append(rank)
    return [tuple(group) for group in found.values()]


def _compare(axis: str, mesh: tuple[str, ...], old: Ranks, new: Ranks) -> AxisChange:
    before, after = groups(old, axis, mesh), groups(new, axis, mesh)
    racks_before, racks_after = _spanning(before, old.racks), _spanning(after, new.racks)
    fresh = _newly_crossing(racks_after, racks_before, old.world)
    return AxisChange(
        axis=axis,
        old_size=len(before[0]),
        new_size=len(after[0]),
        old_groups=len(before),
        new_groups=len(after),
        same_members=len(set(before) & set(after)),
        old_crossing_racks=len(racks_before),
        new_crossing_racks=len(racks_after),
        old_crossing_domains=len(_spanning(before, old.domains)),
        new_crossing_domains=len(_spanning(after, new.domains)),
        now_crossing_racks=len(fresh),
        examples=tuple(_example(group, new.racks) for group in fresh[:MAX_EXAMPLES]),
    )


def _spanning(found: list[Group], places: tuple[str, ...]) -> list[Group]:
    if len(found[0]) == 1:  # all groups of an axis have the same size
        return []
    return [group for group in found if len({places[rank] for rank in group}) > 1]


def _newly_crossing(now: list[Group], before: list[Group], old_world: int) -> list[Group]:
    """Return the groups that span racks now and contain a rank whose old group did not.

    Ranks that the old side lacks are ignored, unless a group consists only of them.
    """
    crossed = {rank for group in before for rank in group}
    return [
        group
        for group in now
        if group[0] >= old_world or any(rank not in crossed for rank in group if rank < old_world)
    ]


def _example(group: Group, racks: tuple[str, ...]) -> str:
    shown = ", ".join(str(rank) for rank in group[:MAX_MEMBERS])
    more = f", ... {group[-1]}" if len(group) > MAX_MEMBERS else ""
    names = list(dict.fromkeys(racks[rank] for rank in group))
    where = ", ".join(names[:MAX_MEMBERS]) + (
        f" and {len(names) - MAX_MEMBERS} more" * (len(names) > 4)
    )
    return f"ranks {shown}{more} in racks {where}"
