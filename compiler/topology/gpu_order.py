"""Order of the GPUs inside a host: the ranks of a group share a NUMA node."""

from __future__ import annotations

from parc.compiler.ir.cluster import NodeType
from parc.compiler.ir.placement import Mesh


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
