"""Orders of hosts and of the GPUs inside a host, and the hosts that serving engines need.

Named orders of hosts put whole blocks of node ranks (a pipeline stage, a replica) on whole racks
first; the remaining hosts come last. The order of the GPUs inside a host is chosen so that the
ranks of a process group share a NUMA node. An engine of a serving job gets whole hosts, or several
engines share a host.

The ranks of an engine are contiguous and evenly distributed over its hosts, because vLLM requires
it (vllm/v1/executor/multiproc_executor.py: host k runs ranks k L to (k + 1) L - 1, for L ranks per
host).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import groupby
from math import gcd, inf

from parc.compiler.ir.cluster import Cluster, Host, NodeType, Rack
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.placement import Mesh
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.topology.hostlist import natural_key

STAGES = "stages across racks"
REPLICAS = "replicas across racks"
RACKS = "rack by rack"
NAMES = "name order"


@frozen
class NodeNumbering:
    """Numbering of the node ranks of a job; all sizes are numbers of hosts."""

    nodes: int
    """Node ranks of the job."""
    pp: int
    """Pipeline parallel size."""
    pp_stride: int
    """Distance in node ranks between consecutive stages of a replica; 0 if stages share a host."""
    hosts_together: int
    """Number of consecutive hosts that should share an NVLink domain or a rack. These hosts contain
    the largest tensor, context or expert parallel block that fits."""


def named_host_orders(
    cluster: Cluster, numbering: NodeNumbering
) -> Iterator[tuple[str, tuple[Host, ...]]]:
    """Yield (name of the order, hosts by node rank) for each named order of hosts.

    The same name might be yielded several times, with different orders.
    """
    # Large racks fit more whole blocks, so starting with them can avoid a split block.
    for racks in _rack_orders(cluster.racks):
        if numbering.pp == 1 or not numbering.pp_stride:
            name = RACKS if numbering.pp == 1 else STAGES
            yield (
                name,
                _pack_hosts_into_blocks(racks, numbering, numbering.hosts_together)[
                    : numbering.nodes
                ],
            )
            continue
        stage = _pack_hosts_into_blocks(racks, numbering, numbering.nodes // numbering.pp)
        yield STAGES, _hosts_by_node_rank(stage, _stage_major_node_ranks(numbering))
        replica = _pack_hosts_into_blocks(
            racks, numbering, numbering.pp * _hosts_per_slice(numbering)
        )
        yield REPLICAS, _hosts_by_node_rank(replica, _replica_major_node_ranks(numbering))
    yield NAMES, hosts_by_name(cluster)[: numbering.nodes]


def hosts_by_name(cluster: Cluster) -> tuple[Host, ...]:
    """Return the usable hosts sorted by name, with n2 before n10, as Slurm numbers them."""
    return tuple(sorted(cluster.hosts, key=lambda host: natural_key(host.name)))


def _rack_orders(racks: tuple[Rack, ...]) -> list[tuple[Rack, ...]]:
    """Return two orders of the racks: as in the spec, and by descending number of hosts.

    If the two orders are equal, only one of them is returned.
    """
    largest_first = tuple(sorted(racks, key=lambda rack: -len(rack.hosts)))
    return [racks] if largest_first == racks else [racks, largest_first]


def _stage_major_node_ranks(numbering: NodeNumbering) -> list[int]:
    """Return all node ranks, sorted such that those of the first pipeline stage come first."""
    inner, span = numbering.pp_stride, numbering.pp_stride * numbering.pp
    return [
        outer + stage * inner + position
        for stage in range(numbering.pp)
        for outer in range(0, numbering.nodes, span)
        for position in range(inner)
    ]


def _replica_major_node_ranks(numbering: NodeNumbering) -> list[int]:
    """Return all node ranks, replica by replica.

    A slice consists of the same number of consecutive hosts from each pipeline stage. All stages of
    the first slice come first, then all stages of the second slice, and so on.
    """
    inner, span, width = (
        numbering.pp_stride,
        numbering.pp_stride * numbering.pp,
        _hosts_per_slice(numbering),
    )
    return [
        outer + stage * inner + first + position
        for outer in range(0, numbering.nodes, span)
        for first in range(0, inner, width)
        for stage in range(numbering.pp)
        for position in range(width)
    ]


def _hosts_per_slice(numbering: NodeNumbering) -> int:
    """Return the number of hosts of one stage in a slice (see ``_replica_major_node_ranks``)."""
    # The hosts to keep together, if they divide the stride between stages; else their gcd.
    return gcd(numbering.hosts_together, numbering.pp_stride)


def _hosts_by_node_rank(hosts: tuple[Host, ...], order: Sequence[int]) -> tuple[Host, ...]:
    """Return the hosts sorted by node rank; the node rank of ``hosts[i]`` is ``order[i]``."""
    # If there are more hosts than node ranks, the last hosts stay idle.
    placed = dict(zip(order, hosts, strict=False))
    return tuple(placed[node] for node in range(len(placed)))


def _pack_hosts_into_blocks(
    racks: tuple[Rack, ...], numbering: NodeNumbering, block: int
) -> tuple[Host, ...]:
    """Return all hosts, in the order in which they get node ranks.

    Whole blocks of ``block`` hosts come first, rack by rack. Smaller blocks of
    ``numbering.hosts_together`` hosts come next. All other hosts come last.
    """
    blocks: list[Host] = []
    units: list[Host] = []
    rest: list[Host] = []
    for rack in racks:
        whole: list[Host] = []
        for hosts in _split_rack_into_domains(rack, numbering.hosts_together):
            fitting = len(hosts) // numbering.hosts_together * numbering.hosts_together
            whole += hosts[:fitting]
            rest += hosts[fitting:]
        fitting = len(whole) // block * block
        blocks += whole[:fitting]
        units += whole[fitting:]
    return (*blocks, *units, *rest)


def _split_rack_into_domains(rack: Rack, hosts_together: int) -> list[list[Host]]:
    """Return the hosts of a rack, as one list per NVLink domain.

    If all domains of the rack have fewer than ``hosts_together`` hosts, the rack is not split: the
    result is a single list of all hosts.
    """
    domains = [list(hosts) for _, hosts in groupby(rack.hosts, key=lambda host: host.nvlink_domain)]
    # A unit larger than every domain has to span domains anyway.
    return domains if max(map(len, domains)) >= hosts_together else [list(rack.hosts)]


def gpu_order(node: NodeType, meshes: tuple[Mesh, ...], ranks_per_node: int) -> tuple[int, ...]:
    """Return the GPU number of each local rank; empty to keep the order of the driver.

    GPUs are sorted by NUMA node, then nearest NIC, then number, so that the ranks of a process
    group inside a host share a NUMA node. The order of the driver is kept if sorting puts no
    additional group on a single NUMA node. It is also kept if NVLink connects all GPUs of the host,
    if the NUMA nodes are unknown, or if the job leaves some GPUs of a host idle.
    """
    if node.nvlink_domain >= node.gpus or ranks_per_node != node.gpus or not node.gpu_numa:
        return ()
    # NUMA nodes are sorted by their first GPU, to stay close to the order of the driver.
    first = {numa: node.gpu_numa.index(numa) for numa in node.gpu_numa}
    # Without NICs all names are equal, and the sort falls back to the device number.
    nics = node.gpu_nics or ("",) * node.gpus
    order = sorted(range(node.gpus), key=lambda one: (first[node.gpu_numa[one]], nics[one], one))
    devices = range(node.gpus)
    sizes = _group_sizes_in_host(meshes, ranks_per_node)
    better = _count_groups_across_numa(order, node.gpu_numa, sizes) < _count_groups_across_numa(
        devices, node.gpu_numa, sizes
    )
    return tuple(order) if better else ()


def _group_sizes_in_host(meshes: tuple[Mesh, ...], ranks_per_node: int) -> set[int]:
    """Return the sizes of the blocks of consecutive ranks that process groups span in a host."""
    sizes = set()
    for mesh in meshes:
        for axis in mesh.axes:
            block = axis.stride * axis.size
            # A block of the size of the host spans all NUMA nodes in any order.
            if axis.size > 1 and block < ranks_per_node and ranks_per_node % block == 0:
                sizes.add(block)
    return sizes


def _count_groups_across_numa(
    order: range | list[int], numa: tuple[int, ...], sizes: set[int]
) -> int:
    """Return the number of process groups (blocks of consecutive ranks) that span NUMA nodes."""
    return sum(
        len({numa[device] for device in order[start : start + size]}) > 1
        for size in sizes
        for start in range(0, len(order), size)
    )


def engine_hosts(layout: ServingLayout, host_gpus: int) -> int | None:
    """Return the least number of hosts for one engine; None if no number of hosts fits evenly.

    A number of hosts fits evenly if every host contains whole tensor-parallel groups, or every
    group fills whole hosts. The GPUs of each data-parallel rank must fit in the same way.
    """
    gpus = layout.engine_gpus
    if gpus <= host_gpus:
        return 1
    # More hosts than necessary, with idle GPUs, may be needed to split the groups evenly. GPUs per
    # host are counted down, because a pinned layout can have millions of ranks.
    for local in range(host_gpus, 0, -1):
        if gpus % local == 0 and _has_aligned_groups(layout, local):
            return gpus // local
    return None


def _has_aligned_groups(layout: ServingLayout, local: int) -> bool:
    """Return True if hosts with ``local`` ranks each fit the groups of an engine evenly.

    Each group must fill whole hosts, or each host must contain whole groups. This applies to the
    tensor-parallel groups and to the GPUs of each data-parallel rank.
    """
    blocks = (layout.tp, layout.rank_gpus)
    return all(local % block == 0 or block % local == 0 for block in blocks)


def service_hosts(layout: ServingLayout, host_gpus: int) -> int | None:
    """Return the number of hosts that all engines need together.

    If engines share hosts, every host gets the same number of engines. Returns None if an engine
    does not fit evenly on any number of hosts.
    """
    each = engine_hosts(layout, host_gpus)
    if each is None or each > 1:
        return None if each is None else each * layout.replicas
    most = host_gpus // layout.engine_gpus
    return _shared_hosts(layout.replicas, most)


def _shared_hosts(engines: int, most: int) -> int:
    """Return the fewest hosts that share ``engines`` engines evenly, at most ``most`` per host."""
    # A placement has one number of ranks per host, so the engines are shared evenly.
    return next(engines // each for each in range(most, 0, -1) if engines % each == 0)


def replica_counts(layout: ServingLayout, host_gpus: int, hosts: int) -> Sequence[int]:
    """Return all numbers of replicas that fit evenly on up to ``hosts`` hosts, ascending."""
    each = engine_hosts(layout, host_gpus)
    if each is None:
        return ()
    if each > 1:
        return range(1, hosts // each + 1)
    return _counts_on_shared_hosts(host_gpus // layout.engine_gpus, hosts)


def compact_replica_counts(
    layout: ServingLayout, host_gpus: int, counts: Sequence[int]
) -> Sequence[int]:
    """Return the ascending ``counts`` without those that need more hosts than a larger one.

    For example, 9 engines of one GPU need 3 hosts with 8 GPUs, and 10 engines need 2.
    """
    each = engine_hosts(layout, host_gpus)
    if each is None or each > 1:
        return counts
    return _compact_counts(host_gpus // layout.engine_gpus, tuple(counts))


@lru_cache(maxsize=64)
def _compact_counts(most: int, counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ``counts`` that no larger one beats, with ``most`` engines per host at most."""
    kept: list[int] = []
    fewest = inf
    for count in reversed(counts):
        hosts = _shared_hosts(count, most)
        if hosts <= fewest:
            fewest = hosts
            kept.append(count)
    return tuple(reversed(kept))


@cache
def _counts_on_shared_hosts(most: int, hosts: int) -> tuple[int, ...]:
    """Return all numbers of engines on up to ``hosts`` hosts with at most ``most`` engines each.

    Every host has the same number of engines. The numbers are in ascending order.
    """
    counts = {engines * used for used in range(1, hosts + 1) for engines in range(1, most + 1)}
    return tuple(sorted(counts))


def serving_ranks_per_host(layout: ServingLayout, host_gpus: int) -> int:
    """Return the number of ranks per host of a serving job.

    Raises:
        ValueError: the engines do not fit the hosts evenly. Valid layouts always fit.
    """
    hosts = service_hosts(layout, host_gpus)
    if hosts is None:
        raise ValueError(
            f"engines of {layout.engine_gpus} ranks do not fit evenly on hosts of {host_gpus} GPUs"
        )
    return layout.gpus // hosts
