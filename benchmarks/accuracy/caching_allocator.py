"""The caching allocator of torch on one stream, where segments do not expand.

A request takes a multiple of 512 bytes. Up to 1 MiB it comes from segments of 2 MiB, below 10 MiB
from segments of 20 MiB, above from a segment of its own of a multiple of 2 MiB. The smallest free
block that holds it is taken; what is left is split off as a block, unless it is at most 1 MiB of
a large segment: then the request keeps it, and it counts as allocated. Freed neighbours merge
(c10/cuda/CUDACachingAllocator.cpp; its defaults).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import count

from parc.compiler.cost.memory.runtime import BLOCK_BYTES, MIB

SMALL_BYTES, LARGE_BYTES = MIB, 10 * MIB
"""Largest request of the small pool, and least that has a segment of its own."""
SEGMENT_BYTES, SMALL_SEGMENT_BYTES, SHARED_SEGMENT_BYTES = 2 * MIB, 2 * MIB, 20 * MIB
REMAINDER_BYTES = MIB
"""Most that a large block keeps beyond what was asked for."""


@dataclass(eq=False, slots=True)
class Block:
    """A stretch of a segment."""

    size: int
    small: bool
    order: int
    """Place among blocks of one size: segments as they were made, then addresses."""
    free: bool = False
    before: Block | None = None
    after: Block | None = None


@dataclass(eq=False, slots=True)
class CachingAllocator:
    """Blocks that are free by pool, and the bytes of those that are not."""

    allocated_bytes: int = 0
    pools: dict[bool, list[tuple[int, int, Block]]] = field(
        default_factory=lambda: {True: [], False: []}
    )
    segments: count[int] = field(default_factory=count)

    def allocate(self, size: int) -> Block:
        """The block of a request of ``size`` bytes, 1 or more."""
        wanted = -(-size // BLOCK_BYTES) * BLOCK_BYTES
        small = wanted <= SMALL_BYTES
        pool = self.pools[small]
        place = bisect_left(pool, wanted, key=lambda entry: entry[0])
        block = pool.pop(place)[2] if place < len(pool) else self._segment(wanted, small)
        block.free = False
        if block.size - wanted > (0 if small else REMAINDER_BYTES):
            self._split(block, wanted)
        self.allocated_bytes += block.size
        return block

    def release(self, block: Block) -> None:
        """Give a block back; it merges with free neighbours."""
        self.allocated_bytes -= block.size
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.free:
                self._remove(neighbour)
                _merge(block, neighbour)
        self._offer(block)

    def _segment(self, wanted: int, small: bool) -> Block:
        size = SMALL_SEGMENT_BYTES if small else SHARED_SEGMENT_BYTES
        if wanted >= LARGE_BYTES:
            size = -(-wanted // SEGMENT_BYTES) * SEGMENT_BYTES
        return Block(size, small, next(self.segments) << 48)

    def _split(self, block: Block, wanted: int) -> None:
        rest = Block(block.size - wanted, block.small, block.order + wanted)
        rest.before, rest.after = block, block.after
        if rest.after is not None:
            rest.after.before = rest
        block.after, block.size = rest, wanted
        self._offer(rest)

    def _offer(self, block: Block) -> None:
        block.free = True
        insort(self.pools[block.small], (block.size, block.order, block), key=_rank)

    def _remove(self, block: Block) -> None:
        pool = self.pools[block.small]
        pool.pop(bisect_left(pool, (block.size, block.order), key=_rank))


def _rank(entry: tuple[int, int, Block]) -> tuple[int, int]:
    return entry[:2]


def _merge(block: Block, neighbour: Block) -> None:
    """Take a free neighbour into ``block``."""
    block.size += neighbour.size
    if neighbour is block.before:
        block.order, block.before = neighbour.order, neighbour.before
        if block.before is not None:
            block.before.after = block
    else:
        block.after = neighbour.after
        if block.after is not None:
            block.after.before = block
