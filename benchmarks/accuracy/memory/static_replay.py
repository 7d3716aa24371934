"""Replay of the allocations of the first Megatron step, to predict torch's allocated bytes.

Order of the requests: parameters as they are constructed; buffers, into which the distributed
optimizer moves the parameters; fp32 copies, each made through a 16-bit copy (optimizer.py,
distrib_optimizer.py). The activations of a step then fill the free blocks, so the tensors that the
step leaves behind lie in segments of activations. When the optimizer creates its state, these
segments, of 20 MiB and larger, are free again. Their number and sizes depend on the kernels of a
GPU and of a version, so a tensor of a few MiB may get a block with a different remainder in the
replay.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.accuracy.memory.caching_allocator import MIB, Block, CachingAllocator
from benchmarks.accuracy.memory.static_tensors import Buffer, Sizes, element_bytes

ACTIVATION_BYTES, ACTIVATIONS = 2 * MIB, 1000
"""Activations in shared segments: more than the state of any record needs."""
LARGEST_BYTES = 2**40
"""Activation in a separate segment: larger than any tensor of the state."""


def allocated_bytes(buffers: list[Buffer], auxiliary: Sizes, precision: str) -> int:
    """Return the allocated bytes after a step that leaves tensors of ``auxiliary`` bytes."""
    gradient, _ = element_bytes(precision)
    allocator = CachingAllocator()
    built = [[allocator.allocate(2 * size) for size in buffer.sizes] for buffer in buffers]
    for buffer, blocks in zip(buffers, built, strict=True):
        if buffer.sharded:
            allocator.allocate(2 * buffer.whole)
        allocator.allocate(gradient * buffer.whole)
        if buffer.sharded:
            _release(allocator, reversed(blocks))
    parts = [part for buffer in buffers for part in buffer.parts]
    for part in parts:
        half = allocator.allocate(2 * part)
        allocator.allocate(4 * part)
        allocator.release(half)
    _run_step(allocator, auxiliary)
    if precision == "fp16":  # the optimizer's fp32 copies of gradients stay until the next step
        _allocate(allocator, (4 * part for part in parts))
    _allocate(allocator, (4 * part for part in parts for _ in range(2)))
    return allocator.allocated_bytes


def _run_step(allocator: CachingAllocator, auxiliary: Sizes) -> None:
    """Allocate and release the activations of a step; keep the tensors of ``auxiliary`` bytes."""
    free = [size for size, _, _ in allocator.pools[False]]
    activations = _allocate(allocator, free)
    activations += _allocate(allocator, [ACTIVATION_BYTES] * ACTIVATIONS)
    _allocate(allocator, auxiliary)
    activations += _allocate(allocator, [LARGEST_BYTES])
    _release(allocator, activations)


def _allocate(allocator: CachingAllocator, sizes: Iterable[int]) -> list[Block]:
    return [allocator.allocate(size) for size in sizes]


def _release(allocator: CachingAllocator, blocks: Iterable[Block]) -> None:
    for block in blocks:
        allocator.release(block)
