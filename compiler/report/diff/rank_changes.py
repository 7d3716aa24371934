"""Changes of the placement between two plans: ranks and process groups.

Covers ranks that move to another GPU, hosts that are added or removed, renamed racks, and process
groups whose members change or that newly span racks or NVLink domains.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby, repeat

from parc.compiler.ir.frozen import frozen
from parc.compiler.report.diff.read_side import RankMapColumns
from parc.compiler.topology.hostlist import compress_hosts_in_order


@frozen
class RankRange:
    """Consecutive ranks that move, with their old hosts and their new hosts as host lists."""

    first_rank: int
    last_rank: int
    old: str
    new: str


@frozen
class RankMoves:
    """Comparison of two rank maps: moved ranks, added and removed hosts, changed racks.

    Ranks are compared only if both rank maps contain them.
    """

    old_world: int
    new_world: int
    moved: int
    """Number of ranks that move to another host or to another GPU of the same host."""
    changed_coordinates: int
    """Number of ranks whose mesh coordinates change."""
    moved_ranges: tuple[RankRange, ...]
    added_hosts: tuple[str, ...]
    removed_hosts: tuple[str, ...]
    renamed_racks: tuple[tuple[str, str], ...]
    moved_hosts: tuple[tuple[str, str, str], ...]
    """(host, old rack, new rack) of each host that changes racks."""

    @property
    def has_changes(self) -> bool:
        """True if any rank, host or rack differs."""
        return self != RankMoves(self.old_world, self.old_world, 0, 0, (), (), (), (), ())


def rank_moves(old: RankMapColumns, new: RankMapColumns) -> RankMoves:
    """Return the ranks that change their GPU, and the hosts and racks that differ.

    Only ranks that exist in both rank maps are compared. The result also has the number of ranks in
    each map.
    """
    added = _in_rank_order(set(new.hosts) - set(old.hosts), new.hosts)
    removed = _in_rank_order(set(old.hosts) - set(new.hosts), old.hosts)
    renamed, moved_hosts = _rack_changes(old, new)
    moved = _moved_ranks(old, new)
    return RankMoves(
        old_world=old.world,
        new_world=new.world,
        moved=len(moved),
        changed_coordinates=_count_changed_coordinates(old, new),
        moved_ranges=tuple(_fold_moved_ranks(moved, old, new)),
        added_hosts=added,
        removed_hosts=removed,
        renamed_racks=renamed,
        moved_hosts=moved_hosts,
    )


def _in_rank_order(names: set[str], order: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(order) if name in names)


def _moved_ranks(old: RankMapColumns, new: RankMapColumns) -> list[int]:
    before = zip(old.hosts, old.local, strict=True)
    after = zip(new.hosts, new.local, strict=True)
    pairs = enumerate(zip(before, after, strict=False))
    return [rank for rank, (here, there) in pairs if here != there]


def _count_changed_coordinates(old: RankMapColumns, new: RankMapColumns) -> int:
    axes = sorted(old.coordinates.keys() & new.coordinates.keys())
    if not axes:  # two frameworks without a common axis
        return min(old.world, new.world)
    before = zip(*(old.coordinates[axis] for axis in axes), strict=True)
    after = zip(*(new.coordinates[axis] for axis in axes), strict=True)
    return sum(here != there for here, there in zip(before, after, strict=False))


def _fold_moved_ranks(
    moved: list[int], old: RankMapColumns, new: RankMapColumns
) -> Iterator[RankRange]:
    # In a run of consecutive ranks, rank minus index is constant.
    for _, group in groupby(enumerate(moved), key=lambda pair: pair[1] - pair[0]):
        ranks = [rank for _, rank in group]
        yield RankRange(
            ranks[0], ranks[-1], _format_locations(old, ranks), _format_locations(new, ranks)
        )


def _format_locations(ranks: RankMapColumns, chosen: list[int]) -> str:
    """Return the hosts of the ranks ``chosen`` as a host list.

    If all these ranks are on one host, return the host and the local ranks: ``r01n03:0-3``.
    """
    hosts = list(dict.fromkeys(ranks.hosts[rank] for rank in chosen))
    if len(hosts) > 1:
        return compress_hosts_in_order(hosts)
    first, last = ranks.local[chosen[0]], ranks.local[chosen[-1]]
    return f"{hosts[0]}:{first}" if first == last else f"{hosts[0]}:{first}-{last}"


def _rack_changes(
    old: RankMapColumns, new: RankMapColumns
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str, str], ...]]:
    """Return (pairs for renamed racks, triples for hosts that moved to another rack).

    A pair is (old name, new name); a triple is (host, old rack, new rack). Only hosts that occur in
    both rank maps are compared. A rack is renamed if all of its hosts have the same new rack and no
    other host has this new rack.
    """
    before = dict(zip(old.hosts, old.racks, strict=True))
    after = dict(zip(new.hosts, new.racks, strict=True))
    # Hosts that exist on one side only are listed as added or removed.
    common = [host for host in before if host in after]
    pairs = {(before[host], after[host]) for host in common}
    sources = Counter(source for source, _ in pairs)
    targets = Counter(target for _, target in pairs)
    # A rack is renamed, not moved, if old and new name correspond one to one.
    renamed = {
        (source, target)
        for source, target in pairs
        if source != target and sources[source] == targets[target] == 1
    }
    moved = tuple(
        (host, before[host], after[host])
        for host in common
        if before[host] != after[host] and (before[host], after[host]) not in renamed
    )
    return tuple(sorted(renamed)), moved


MAX_EXAMPLES = 3
MAX_MEMBERS = 4
"""Largest number of ranks, and of racks, that an example lists by name."""

Group = tuple[int, ...]

DENSE = ("tp", "gtp", "cp", "dp", "dp-shard", "dp-replicate", "pp")
"""Axes of the dense mesh of a training job. A rank map has columns for some of them."""
EXPERT = ("etp", "ep", "egtp", "edp", "edp-shard", "efsdp")
"""Axes of the expert mesh, except those in ``SHARED``."""
SHARED = ("pp", "dp-replicate")
"""Axes of both meshes."""
SERVING = ("replica", "dp", "pp", "cp", "tp")
"""Axes of a serving job."""
PARTS = {"dp": ("gtp", "dp-shard", "dp-replicate"), "edp": ("egtp", "edp-shard")}
"""Axis -> axes into which a mesh can split it. A rank map can have columns for the axis and for its
parts."""


@frozen
class AxisGroupDiff:
    """Comparison of the process groups along one axis of the mesh."""

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
    newly_crossing_racks: int
    """Number of groups that span racks and contain a rank whose old group did not span racks."""
    examples: tuple[str, ...]
    """Descriptions of the first MAX_EXAMPLES groups that newly span racks."""

    @property
    def has_changes(self) -> bool:
        """True if the process groups along this axis differ between the old and the new plan.

        The comparison covers the members of the groups, and the numbers of groups that span racks
        or NVLink domains.
        """
        return (
            self.same_members != max(self.old_groups, self.new_groups)
            or self.old_crossing_racks != self.new_crossing_racks
            or self.old_crossing_domains != self.new_crossing_domains
            or self.newly_crossing_racks > 0
        )


def group_changes(
    old: RankMapColumns, new: RankMapColumns, experts: bool
) -> tuple[AxisGroupDiff, ...]:
    """Return one AxisGroupDiff for each mesh axis whose process groups differ.

    Axes of the expert mesh are compared only if ``experts`` is true.
    """
    known = old.coordinates.keys() & new.coordinates.keys()
    dense, sparse = (SERVING, ()) if "replica" in known else (DENSE, EXPERT)
    compared = [_compare_axis(axis, dense, old, new) for axis in dense if axis in known]
    if experts:
        mesh = (*SHARED, *sparse)
        compared += [_compare_axis(axis, mesh, old, new) for axis in sparse if axis in known]
    return tuple(change for change in compared if change.has_changes)


def ranks_by_group(ranks: RankMapColumns, axis: str, mesh: tuple[str, ...]) -> list[Group]:
    """Return the groups of ranks whose coordinates differ only along ``axis``, by first rank.

    ``mesh`` contains the names of all axes of the mesh. Axes without a column in the rank map are
    ignored.
    """
    own = ranks.coordinates
    # The coordinate along an axis varies together with those along its parts.
    bound = {axis, *PARTS.get(axis, ()), *(name for name, parts in PARTS.items() if axis in parts)}
    others = [own[name] for name in mesh if name not in bound and name in own]
    found: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    keys = zip(*others, strict=True) if others else repeat((), ranks.world)
    for rank, key in enumerate(keys):
        found[key].append(rank)
    return [tuple(group) for group in found.values()]


def _compare_axis(
    axis: str, mesh: tuple[str, ...], old: RankMapColumns, new: RankMapColumns
) -> AxisGroupDiff:
    before = ranks_by_group(old, axis, mesh)
    # Plans with the same layout have the same groups; comparing columns is faster than groups.
    same = old.coordinates == new.coordinates
    after = before if same else ranks_by_group(new, axis, mesh)
    racks_before, racks_after = (
        _groups_spanning(before, old.racks),
        _groups_spanning(after, new.racks),
    )
    fresh = _newly_spanning(racks_after, racks_before, old.world)
    return AxisGroupDiff(
        axis=axis,
        old_size=len(before[0]),
        new_size=len(after[0]),
        old_groups=len(before),
        new_groups=len(after),
        same_members=len(before) if same else len(set(before) & set(after)),
        old_crossing_racks=len(racks_before),
        new_crossing_racks=len(racks_after),
        old_crossing_domains=len(_groups_spanning(before, old.domains)),
        new_crossing_domains=len(_groups_spanning(after, new.domains)),
        newly_crossing_racks=len(fresh),
        examples=tuple(_format_example(group, new.racks) for group in fresh[:MAX_EXAMPLES]),
    )


def _groups_spanning(groups: list[Group], places: tuple[str, ...]) -> list[Group]:
    if len(groups[0]) == 1:  # all groups of an axis have the same size
        return []
    # A call of ``map`` is twice as fast as a set comprehension, which matters for 10**5 ranks.
    place = places.__getitem__
    return [group for group in groups if len(set(map(place, group))) > 1]


def _newly_spanning(now: list[Group], before: list[Group], old_world: int) -> list[Group]:
    """Return the groups of ``now`` that span racks for the first time.

    A group is returned if one of its old ranks was in no group of ``before``, or if all of its
    ranks are new.

    Args:
        now: groups that span racks in the new plan.
        before: groups that span racks in the old plan.
        old_world: number of ranks in the old plan.
    """
    crossed = {rank for group in before for rank in group}
    return [
        group
        for group in now
        if group[0] >= old_world or any(rank not in crossed for rank in group if rank < old_world)
    ]


def _format_example(group: Group, racks: tuple[str, ...]) -> str:
    shown = ", ".join(str(rank) for rank in group[:MAX_MEMBERS])
    more = f", ... {group[-1]}" if len(group) > MAX_MEMBERS else ""
    names = list(dict.fromkeys(racks[rank] for rank in group))
    where = ", ".join(names[:MAX_MEMBERS])
    if len(names) > MAX_MEMBERS:
        where += f" and {len(names) - MAX_MEMBERS} more"
    return f"ranks {shown}{more} in racks {where}"
