"""Simulation of torch's caching allocator on one stream, without expandable segments.

A request is rounded up to a multiple of 512 bytes. Requests of up to 1 MiB use segments of 2 MiB,
requests below 10 MiB use segments of 20 MiB, and each larger request gets a separate segment, a
multiple of 2 MiB. The allocator returns the smallest free block that is large enough and splits off
the remainder as a new block. Exception: in the pool of large blocks, a remainder of at most 1 MiB
is not split off and counts as allocated. Free neighbors are merged
(c10/cuda/CUDACachingAllocator.cpp, default settings).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import count

from parc.backends.megatron.memory import BLOCK_BYTES

MIB = 2**20
SMALL_BYTES, LARGE_BYTES = MIB, 10 * MIB
"""Largest request of the small pool, and smallest request that gets a separate segment."""
SEGMENT_BYTES, SMALL_SEGMENT_BYTES, SHARED_SEGMENT_BYTES = 2 * MIB, 2 * MIB, 20 * MIB
REMAINDER_BYTES = MIB
"""Largest remainder that a block of the large pool does not split off."""


@dataclass(eq=False, slots=True)
class Block:
    """Contiguous part of a segment."""

    size: int
    small: bool
    order: int
    """Sort key among blocks of one size: order of segment creation, then address."""
    free: bool = False
    before: Block | None = None
    after: Block | None = None


@dataclass(eq=False, slots=True)
class CachingAllocator:
    """Free blocks by pool, and the number of allocated bytes."""

    allocated_bytes: int = 0
    pools: dict[bool, list[tuple[int, int, Block]]] = field(
        default_factory=lambda: {True: [], False: []}
    )
    segments: count[int] = field(default_factory=count)

    def allocate(self, size: int) -> Block:
        """Allocate ``size`` >= 1 bytes and return the block."""
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
        """Free ``block`` and merge it with its free neighbors."""
        self.allocated_bytes -= block.size
        for neighbor in (block.before, block.after):
            if neighbor is not None and neighbor.free:
                self._remove(neighbor)
                _merge(block, neighbor)
        self._offer(block)

    def _segment(self, wanted: int, small: bool) -> Block:
        size = SMALL_SEGMENT_BYTES if small else SHARED_SEGMENT_BYTES
        if wanted >= LARGE_BYTES:
            size = -(-wanted // SEGMENT_BYTES) * SEGMENT_BYTES
        # The shift leaves space for addresses, so blocks sort by segment first.
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


def _merge(block: Block, neighbor: Block) -> None:
    """Merge a free neighbor into ``block``."""
    block.size += neighbor.size
    if neighbor is block.before:
        block.order, block.before = neighbor.order, neighbor.before
        if block.before is not None:
            block.before.after = block
    else:
        block.after = neighbor.after
        if block.after is not None:
            block.after.before = block
