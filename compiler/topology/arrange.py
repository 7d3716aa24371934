"""Orders of hosts: whole blocks into whole racks first, what is left over last."""

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
class Shape:
    """How node ranks are numbered, in hosts."""

    nodes: int
    pp: int
    pp_stride: int
    """Hosts from a stage to the next of the same replica; 0 where stages share a host."""
    atom: int
    """Hosts that must stay together: the largest tensor or expert block that fits."""


def arrangements(cluster: Cluster, shape: Shape) -> Iterator[tuple[str, tuple[Host, ...]]]:
    """(name, hosts by node rank) of every order that is worth pricing; names may come twice."""
    for racks in _rack_orders(cluster.racks):
        if shape.pp == 1 or not shape.pp_stride:
            name = RACKS if shape.pp == 1 else STAGES
            yield name, _packed(racks, shape, shape.atom)[: shape.nodes]
            continue
        stage = _packed(racks, shape, shape.nodes // shape.pp)
        yield STAGES, _by_node_rank(stage, _stage_major(shape))
        replica = _packed(racks, shape, shape.pp * _slice(shape))
        yield REPLICAS, _by_node_rank(replica, _replica_major(shape))
    yield NAMES, name_order(cluster)[: shape.nodes]


def name_order(cluster: Cluster) -> tuple[Host, ...]:
    """Usable hosts as Slurm would number them: by name, n2 before n10."""
    return tuple(sorted(cluster.hosts, key=lambda host: natural_key(host.name)))


def _rack_orders(racks: tuple[Rack, ...]) -> list[tuple[Rack, ...]]:
    """As in the spec; and, where racks differ in size, the largest first."""
    largest_first = tuple(sorted(racks, key=lambda rack: -len(rack.hosts)))
    return [racks] if largest_first == racks else [racks, largest_first]


def _stage_major(shape: Shape) -> list[int]:
    """Node ranks stage by stage."""
    inner, span = shape.pp_stride, shape.pp_stride * shape.pp
    return [
        outer + stage * inner + position
        for stage in range(shape.pp)
        for outer in range(0, shape.nodes, span)
        for position in range(inner)
    ]


def _replica_major(shape: Shape) -> list[int]:
    """Node ranks replica by replica: all stages of one slice of data, then of the next."""
    inner, span, width = shape.pp_stride, shape.pp_stride * shape.pp, _slice(shape)
    return [
        outer + stage * inner + first + position
        for outer in range(0, shape.nodes, span)
        for first in range(0, inner, width)
        for stage in range(shape.pp)
        for position in range(width)
    ]


def _slice(shape: Shape) -> int:
    """Hosts of one stage that move together when a replica is moved."""
    return gcd(shape.atom, shape.pp_stride)


def _by_node_rank(hosts: tuple[Host, ...], order: Sequence[int]) -> tuple[Host, ...]:
    """Give the i-th host the i-th node rank of ``order``."""
    placed = dict(zip(order, hosts, strict=False))
    return tuple(placed[node] for node in range(len(placed)))


def _packed(racks: tuple[Rack, ...], shape: Shape, block: int) -> tuple[Host, ...]:
    """All hosts: whole blocks rack by rack, then whole atoms, then the rest."""
    blocks: list[Host] = []
    atoms: list[Host] = []
    rest: list[Host] = []
    for rack in racks:
        whole: list[Host] = []
        for hosts in _bins(rack, shape.atom):
            fitting = len(hosts) // shape.atom * shape.atom
            whole += hosts[:fitting]
            rest += hosts[fitting:]
        fitting = len(whole) // block * block
        blocks += whole[:fitting]
        atoms += whole[fitting:]
    return (*blocks, *atoms, *rest)


def _bins(rack: Rack, atom: int) -> list[list[Host]]:
    """NVLink domains of a rack, where an atom fits into one; else the whole rack."""
    domains = [list(hosts) for _, hosts in groupby(rack.hosts, key=lambda host: host.nvlink_domain)]
    return domains if max(map(len, domains)) >= atom else [list(rack.hosts)]
