"""Which device each local rank uses: neighbours in a group on one side of the host's PCIe."""

from __future__ import annotations

from parc.compiler.ir.cluster import NodeType
from parc.compiler.ir.placement import Mesh


def gpu_order(node: NodeType, meshes: tuple[Mesh, ...], ranks_per_node: int) -> tuple[int, ...]:
    """Device of every local rank; empty where the driver's own order is as good.

    Where NVLink joins all GPUs of a host, every pair is as near as any other. Over PCIe the ranks
    of a group that stays in a host should share a NUMA node, and then a NIC: devices are sorted
    by the NUMA node that comes first, then by nearest NIC, then by number. Nothing changes where
    some GPUs stay idle (a scheduler picks them), where nobody said how the host is wired, or where
    no group gets nearer.
    """
    if node.nvlink_domain >= node.gpus or ranks_per_node != node.gpus or not node.gpu_numa:
        return ()
    first = {numa: node.gpu_numa.index(numa) for numa in node.gpu_numa}
    nics = node.gpu_nics or ("",) * node.gpus
    order = sorted(range(node.gpus), key=lambda one: (first[node.gpu_numa[one]], nics[one], one))
    devices = range(node.gpus)
    sizes = _group_sizes(meshes, ranks_per_node)
    better = _cut(order, node.gpu_numa, sizes) < _cut(devices, node.gpu_numa, sizes)
    return tuple(order) if better else ()


def _group_sizes(meshes: tuple[Mesh, ...], ranks_per_node: int) -> set[int]:
    """Sizes of blocks of neighbouring ranks that talk and stay in a host."""
    sizes = set()
    for mesh in meshes:
        for axis in mesh.axes:
            block = axis.stride * axis.size
            if axis.size > 1 and block < ranks_per_node and ranks_per_node % block == 0:
                sizes.add(block)
    return sizes


def _cut(order: range | list[int], numa: tuple[int, ...], sizes: set[int]) -> int:
    """Blocks of ranks that span NUMA nodes."""
    return sum(
        len({numa[device] for device in order[start : start + size]}) > 1
        for size in sizes
        for start in range(0, len(order), size)
    )
