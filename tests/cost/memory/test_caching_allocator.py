"""Replay of torch's caching allocator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy.memory.caching_allocator import MIB, CachingAllocator

SIZES = st.lists(st.integers(1, 64 * MIB), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("requests", "allocated"),
    [
        ([1], 512),
        ([MIB], MIB),
        ([3 * MIB], 3 * MIB),
        ([31 * MIB], 32 * MIB),
        ([31 * MIB - 512], 31 * MIB - 512),
        ([49 * MIB + MIB // 4], 50 * MIB),
        ([10 * MIB - 512, 9 * MIB + 512], 20 * MIB),
        (4 * [4 * MIB] + [3 * MIB], 20 * MIB),
        ([32 * MIB + 1024, MIB + MIB // 2], 34 * MIB),
    ],
    ids=[
        "a block is 512 bytes",
        "1 MiB is small",
        "more is cut from 20 MiB",
        "above 10 MiB a segment is rounded to 2 MiB and the last MiB is kept",
        "more than a MiB is split off",
        "a remainder of three quarters of a MiB is kept",
        "the second request keeps what the first left",
        "the fifth keeps a MiB",
        "a hole of 2 MiB less 1 KiB is kept whole",
    ],
)
def test_a_request_keeps_a_remainder_of_up_to_a_mebibyte(
    requests: list[int], allocated: int
) -> None:
    allocator = CachingAllocator()
    for size in requests:
        allocator.allocate(size)
    assert allocator.allocated_bytes == allocated


@given(SIZES)
def test_no_block_is_larger_than_its_request_plus_the_remainder(sizes: list[int]) -> None:
    allocator = CachingAllocator()
    for size in sizes:
        block = allocator.allocate(size)
        assert size <= block.size <= size + MIB + 511
        assert block.size - size < 512 or size > MIB
    assert allocator.allocated_bytes >= sum(sizes)


@given(SIZES, st.randoms(use_true_random=False))
def test_freed_blocks_merge_into_the_requested_segments(sizes: list[int], order: object) -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(size) for size in sizes]
    order.shuffle(blocks)  # type: ignore[attr-defined]
    for block in blocks:
        allocator.release(block)
    assert allocator.allocated_bytes == 0
    free = [block for pool in allocator.pools.values() for _, _, block in pool]
    assert all(block.before is None and block.after is None for block in free)
    assert all(block.size % (2 * MIB) == 0 for block in free)


def test_a_request_gets_the_smallest_sufficient_free_block() -> None:
    allocator = CachingAllocator()
    large, small = allocator.allocate(64 * MIB), allocator.allocate(32 * MIB)
    allocator.release(large)
    allocator.release(small)
    assert allocator.allocate(31 * MIB) is small
    assert allocator.allocate(31 * MIB) is large
    assert allocator.allocated_bytes == (32 + 31) * MIB
