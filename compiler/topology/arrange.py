"""Named orders of hosts: whole blocks fill whole racks first, the remaining hosts come last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import gcd

from parc.compiler.ir.cluster import Cluster, Host, Rack
from parc.compiler.topology.hostlist import natural_key

STAGES = "stages across racks"
REPLICAS = "replicas across racks"
RACKS = "rack by rack"
NAMES = "name order"


@dataclass(frozen=True, slots=True)
class NodeNumbering:
    """Numbering of the node ranks of a job, all figures in hosts."""

    nodes: int
    pp: int
    pp_stride: int
    """Distance in node ranks between consecutive stages of a replica; 0 if stages share a host."""
    atom: int
    """Hosts that should share a domain or rack: the largest tensor or expert block that fits."""


def arrangements(
    cluster: Cluster, numbering: NodeNumbering
) -> Iterator[tuple[str, tuple[Host, ...]]]:
    """Yield (name, host of every node rank) of the orders worth evaluating; names may repeat."""
    # Large racks fit more whole blocks, so starting with them can avoid a split block.
    for racks in _rack_orders(cluster.racks):
        if numbering.pp == 1 or not numbering.pp_stride:
            name = RACKS if numbering.pp == 1 else STAGES
            yield name, _packed(racks, numbering, numbering.atom)[: numbering.nodes]
            continue
        stage = _packed(racks, numbering, numbering.nodes // numbering.pp)
        yield STAGES, _by_node_rank(stage, _stage_major(numbering))
        replica = _packed(racks, numbering, numbering.pp * _slice(numbering))
        yield REPLICAS, _by_node_rank(replica, _replica_major(numbering))
    yield NAMES, name_order(cluster)[: numbering.nodes]


def name_order(cluster: Cluster) -> tuple[Host, ...]:
    """Return the usable hosts as Slurm would number them: by name, n2 before n10."""
    return tuple(sorted(cluster.hosts, key=lambda host: natural_key(host.name)))


def _rack_orders(racks: tuple[Rack, ...]) -> list[tuple[Rack, ...]]:
    """Return the racks in the order of the spec and, if their sizes differ, the largest first."""
    largest_first = tuple(sorted(racks, key=lambda rack: -len(rack.hosts)))
    return [racks] if largest_first == racks else [racks, largest_first]


def _stage_major(numbering: NodeNumbering) -> list[int]:
    """Return the node ranks stage by stage."""
    inner, span = numbering.pp_stride, numbering.pp_stride * numbering.pp
    return [
        outer + stage * inner + position
        for stage in range(numbering.pp)
        for outer in range(0, numbering.nodes, span)
        for position in range(inner)
    ]


def _replica_major(numbering: NodeNumbering) -> list[int]:
    """Return the node ranks replica by replica: all stages of one slice of data, then the next."""
    inner, span, width = numbering.pp_stride, numbering.pp_stride * numbering.pp, _slice(numbering)
    return [
        outer + stage * inner + first + position
        for outer in range(0, numbering.nodes, span)
        for first in range(0, inner, width)
        for stage in range(numbering.pp)
        for position in range(width)
    ]


def _slice(numbering: NodeNumbering) -> int:
    """Return the hosts of a stage that belong to the same slice of replicas."""
    # The atom, if it divides the stride between stages; otherwise the largest common part.
    return gcd(numbering.atom, numbering.pp_stride)


def _by_node_rank(hosts: tuple[Host, ...], order: Sequence[int]) -> tuple[Host, ...]:
    """Return the hosts by node rank; the i-th host gets the i-th node rank of ``order``."""
    # More hosts than node ranks: the last ones stay idle.
    placed = dict(zip(order, hosts, strict=False))
    return tuple(placed[node] for node in range(len(placed)))


def _packed(racks: tuple[Rack, ...], numbering: NodeNumbering, block: int) -> tuple[Host, ...]:
    """Return all hosts: whole blocks rack by rack, then whole atoms, then the remaining hosts."""
    blocks: list[Host] = []
    atoms: list[Host] = []
    rest: list[Host] = []
    for rack in racks:
        whole: list[Host] = []
        for hosts in _bins(rack, numbering.atom):
            fitting = len(hosts) // numbering.atom * numbering.atom
            whole += hosts[:fitting]
            rest += hosts[fitting:]
        fitting = len(whole) // block * block
        blocks += whole[:fitting]
        atoms += whole[fitting:]
    return (*blocks, *atoms, *rest)


def _bins(rack: Rack, atom: int) -> list[list[Host]]:
    """Return the NVLink domains of a rack if an atom fits into one; otherwise the whole rack."""
    domains = [list(hosts) for _, hosts in groupby(rack.hosts, key=lambda host: host.nvlink_domain)]
    return domains if max(map(len, domains)) >= atom else [list(rack.hosts)]
