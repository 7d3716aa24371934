"""Ranks that move to another GPU, hosts that are added or removed, and renamed racks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from parc.compiler.report.diff.side import Ranks
from parc.compiler.topology.hostlist import fold


@dataclass(frozen=True, slots=True)
class RankRange:
    """Consecutive ranks that move, with their old and new hosts as host lists."""

    first_rank: int
    last_rank: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves of the ranks that exist on both sides, and changes of the hosts."""

    old_world: int
    new_world: int
    moved: int
    """Number of ranks that get another host or another GPU of their host."""
    recast: int
    """Number of ranks whose mesh coordinates change."""
    runs: tuple[RankRange, ...]
    joined: tuple[str, ...]
    left: tuple[str, ...]
    renamed_racks: tuple[tuple[str, str], ...]
    moved_hosts: tuple[tuple[str, str, str], ...]
    """(host, old rack, new rack) of each host that changes racks."""

    @property
    def has_changes(self) -> bool:
        """True if ranks, hosts or racks differ."""
        return self != Moves(self.old_world, self.old_world, 0, 0, (), (), (), (), ())


def rank_moves(old: Ranks, new: Ranks) -> Moves:
    """Compare the ranks that exist on both sides; additional ranks are only counted."""
    joined = _in_order(set(new.hosts) - set(old.hosts), new.hosts)
    left = _in_order(set(old.hosts) - set(new.hosts), old.hosts)
    renamed, moved_hosts = _racks(old, new)
    moved = _moved(old, new)
    return Moves(
        old_world=old.world,
        new_world=new.world,
        moved=len(moved),
        recast=_count_recast(old, new),
        runs=tuple(_moved_ranges(moved, old, new)),
        joined=joined,
        left=left,
        renamed_racks=renamed,
        moved_hosts=moved_hosts,
    )


def _in_order(names: set[str], order: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(order) if name in names)


def _moved(old: Ranks, new: Ranks) -> list[int]:
    before = zip(old.hosts, old.local, strict=True)
    after = zip(new.hosts, new.local, strict=True)
    pairs = enumerate(zip(before, after, strict=False))
    return [rank for rank, (here, there) in pairs if here != there]


def _count_recast(old: Ranks, new: Ranks) -> int:
    axes = sorted(old.coordinates.keys() & new.coordinates.keys())
    if not axes:  # two frameworks without a common axis
        return min(old.world, new.world)
    before = zip(*(old.coordinates[axis] for axis in axes), strict=True)
    after = zip(*(new.coordinates[axis] for axis in axes), strict=True)
    return sum(here != there for here, there in zip(before, after, strict=False))


def _moved_ranges(moved: list[int], old: Ranks, new: Ranks) -> Iterator[RankRange]:
    for _, group in groupby(enumerate(moved), key=lambda pair: pair[1] - pair[0]):
        ranks = [rank for _, rank in group]
        yield RankRange(ranks[0], ranks[-1], _locations(old, ranks), _locations(new, ranks))


def _locations(ranks: Ranks, chosen: list[int]) -> str:
    """Return the hosts of the ``chosen`` ranks as a host list, with GPUs if it is one host."""
    hosts = list(dict.fromkeys(ranks.hosts[rank] for rank in chosen))
    if len(hosts) > 1:
        return fold(hosts)
    first, last = ranks.local[chosen[0]], ranks.local[chosen[-1]]
    return f"{hosts[0]}:{first}" if first == last else f"{hosts[0]}:{first}-{last}"


def _racks(
    old: Ranks, new: Ranks
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str, str], ...]]:
    """Return the renamed racks, and the hosts that are in another rack for another reason."""
    before = dict(zip(old.hosts, old.racks, strict=True))
    after = dict(zip(new.hosts, new.racks, strict=True))
    common = [host for host in before if host in after]
    pairs = {(before[host], after[host]) for host in common}
    sources = [source for source, _ in pairs]
    targets = [target for _, target in pairs]
    renamed = {
        (source, target)
        for source, target in pairs
        if source != target and sources.count(source) == 1 and targets.count(target) == 1
    }
    moved = tuple(
        (host, before[host], after[host])
        for host in common
        if before[host] != after[host] and (before[host], after[host]) not in renamed
    )
    return tuple(sorted(renamed)), moved
