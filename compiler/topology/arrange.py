"""Arrangement of a job on hosts: orders of hosts, of GPUs in a host, and hosts of serving engines.

Named orders of hosts: whole blocks fill whole racks first, the remaining hosts come last.

Order of the GPUs inside a host: the ranks of a group share a NUMA node.

Hosts of the engines of a serving job: whole hosts per engine, or several engines per host.

The ranks of an engine are contiguous, with equally many on each of its hosts, because vLLM requires
it (vllm/v1/executor/multiproc_executor.py: host k runs ranks k L to (k + 1) L - 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import gcd

from parc.compiler.ir.cluster import Cluster, Host, NodeType, Rack
from parc.compiler.ir.placement import Mesh
from parc.compiler.ir.serving import ServingLayout
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


def gpu_order(node: NodeType, meshes: tuple[Mesh, ...], ranks_per_node: int) -> tuple[int, ...]:
    """Return the device of every local rank; empty if the driver's order is as good.

    If NVLink connects all GPUs of a host, all pairs are equally near. Over PCIe, the ranks of a
    group inside a host should share a NUMA node, and then a NIC: devices are sorted by NUMA node
    (in the order of first appearance), nearest NIC and number. The order stays the same if some
    GPUs are idle (the scheduler chooses which), if the wiring of the host is unknown, or if no more
    groups would share a NUMA node.
    """
    if node.nvlink_domain >= node.gpus or ranks_per_node != node.gpus or not node.gpu_numa:
        return ()
    first = {numa: node.gpu_numa.index(numa) for numa in node.gpu_numa}
    # Without NICs all names are equal, and the sort falls back to the device number.
    nics = node.gpu_nics or ("",) * node.gpus
    order = sorted(range(node.gpus), key=lambda one: (first[node.gpu_numa[one]], nics[one], one))
    devices = range(node.gpus)
    sizes = _group_sizes(meshes, ranks_per_node)
    better = _count_split(order, node.gpu_numa, sizes) < _count_split(devices, node.gpu_numa, sizes)
    return tuple(order) if better else ()


def _group_sizes(meshes: tuple[Mesh, ...], ranks_per_node: int) -> set[int]:
    """Return the sizes of the blocks of consecutive ranks inside a host that form a group."""
    sizes = set()
    for mesh in meshes:
        for axis in mesh.axes:
            block = axis.stride * axis.size
            # A block of the size of the host spans all NUMA nodes in any order.
            if axis.size > 1 and block < ranks_per_node and ranks_per_node % block == 0:
                sizes.add(block)
    return sizes


def _count_split(order: range | list[int], numa: tuple[int, ...], sizes: set[int]) -> int:
    """Return the number of blocks that span NUMA nodes."""
    return sum(
        len({numa[device] for device in order[start : start + size]}) > 1
        for size in sizes
        for start in range(0, len(order), size)
    )


def engine_hosts(layout: ServingLayout, host_gpus: int) -> int | None:
    """Return the least number of hosts for one engine; None if no number of hosts fits evenly.

    A host must have whole tensor-parallel groups, or a group must have whole hosts. The same holds
    for the ranks of data parallelism.
    """
    gpus = layout.engine_gpus
    if gpus <= host_gpus:
        return 1
    fewest = -(-gpus // host_gpus)
    for hosts in range(fewest, gpus + 1):
        if gpus % hosts == 0 and _is_aligned(layout, gpus // hosts):
            return hosts
    return None


def _is_aligned(layout: ServingLayout, local: int) -> bool:
    """Return True if hosts of ``local`` ranks split no group or dp rank unevenly."""
    blocks = (layout.tp, layout.rank_gpus)
    return all(local % block == 0 or block % local == 0 for block in blocks)


def service_hosts(layout: ServingLayout, host_gpus: int) -> int | None:
    """Return the hosts of all engines, equally many engines per host; None if no engine fits."""
    each = engine_hosts(layout, host_gpus)
    if each is None or each > 1:
        return None if each is None else each * layout.replicas
    most = host_gpus // layout.engine_gpus
    hosts = -(-layout.replicas // most)
    # Equally many engines per host, because a placement has one number of ranks per host.
    while layout.replicas % hosts:
        hosts += 1
    return hosts


def replica_counts(layout: ServingLayout, host_gpus: int, hosts: int) -> tuple[int, ...]:
    """Return the numbers of engines that fit evenly on at most ``hosts`` hosts, ascending."""
    each = engine_hosts(layout, host_gpus)
    if each is None:
        return ()
    if each > 1:
        return tuple(range(1, hosts // each + 1))
    most = host_gpus // layout.engine_gpus
    counts = {engines * used for used in range(1, hosts + 1) for engines in range(1, most + 1)}
    return tuple(sorted(counts))


def local_ranks(layout: ServingLayout, host_gpus: int) -> int:
    """Return the ranks per host.

    Raises:
        ValueError: the engines do not fit the hosts evenly. Valid layouts always fit.
    """
    hosts = service_hosts(layout, host_gpus)
    if hosts is None:
        raise ValueError(
            f"engines of {layout.engine_gpus} ranks do not fit evenly on hosts of {host_gpus} GPUs"
        )
    return layout.gpus // hosts
