"""What torch's allocator counts after the first step of a Megatron run.

Requests come in this order: the parameters as they are built; buffers, into which the distributed
optimizer moves the parameters; fp32 copies, each by way of a 16-bit one (optimizer.py,
distrib_optimizer.py). A step's activations then hold what was free, so that what the step leaves
behind lies in segments of theirs. When the optimizer makes its state all of that is free again:
segments of 20 MiB and larger ones. How many there are of which size depends on the kernels of a
GPU and of a version, so that a tensor of some MiB may get a block with another remainder than here.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.accuracy.caching_allocator import Block, CachingAllocator
from benchmarks.accuracy.static_tensors import Buffer, Sizes, element_bytes
from parc.compiler.cost.memory.runtime import MIB

ACTIVATION_BYTES, ACTIVATIONS = 2 * MIB, 1000
"""Activations of shared segments: as many as the tensors of any record's state may need."""
LARGEST_BYTES = 2**40
"""Activations in segments of their own: more than any tensor of the state."""


def allocated_bytes(buffers: list[Buffer], beside: Sizes, precision: str) -> int:
    """Bytes after a step that leaves tensors of ``beside`` bytes."""
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
    _run_step(allocator, beside)
    if precision == "fp16":  # its gradients are copied to fp32 and stay until the next step
        _allocate(allocator, (4 * part for part in parts))
    _allocate(allocator, (4 * part for part in parts for _ in range(2)))
    return allocator.allocated_bytes


def _run_step(allocator: CachingAllocator, beside: Sizes) -> None:
    """Activations come and go, and ``beside`` stays."""
    free = [size for size, _, _ in allocator.pools[False]]
    activations = _allocate(allocator, free)
    activations += _allocate(allocator, [ACTIVATION_BYTES] * ACTIVATIONS)
    _allocate(allocator, beside)
    activations += _allocate(allocator, [LARGEST_BYTES])
    _release(allocator, activations)


def _allocate(allocator: CachingAllocator, sizes: Iterable[int]) -> list[Block]:
    return [allocator.allocate(size) for size in sizes]


def _release(allocator: CachingAllocator, blocks: Iterable[Block]) -> None:
    for block in blocks:
        allocator.release(block)
