"""Pipeline schedules: chunks in flight, and the bubble.

A chunk is the activations of one micro-batch on one stage. ``schedule_registry`` has every
schedule with its action table, and tests hold these forms to that table.
Sources: Narayanan et al. 2021 (arXiv:2104.04473) section 2.2 for 1F1B and interleaving; Qi et
al. 2024 (arXiv:2401.10241) for zero bubble; DeepSeek-V3 (arXiv:2412.19437) table 2 for DualPipe.
"""

from __future__ import annotations

from parc.compiler.cost.schedules.table import Shape


def chunks_in_flight(stage: int, pp: int, vpp: int, micro_batches: int) -> int:
    """Peak number of (micro-batch, chunk) pairs whose activations a pipeline rank holds.

    1F1B: min(m, p - r). Interleaved: min(m v, 2 (p - 1 - r) + (v - 1) p + 1).
    """
    if vpp == 1:
        return min(micro_batches, pp - stage)
    return min(micro_batches * vpp, 2 * (pp - 1 - stage) + (vpp - 1) * pp + 1)


def gpipe_in_flight(shape: Shape, rank: int) -> int:
    """Every micro-batch: m, on every rank."""
    return shape.micro_batches


def one_f_one_b_in_flight(shape: Shape, rank: int) -> int:
    """min(m, p - r)."""
    return min(shape.micro_batches, shape.ranks - rank)


def interleaved_warmup(shape: Shape, rank: int) -> int:
    """Forwards before the steady state: min(m v, 2 (p - 1 - r) + (v - 1) g)."""
    warmup = 2 * (shape.ranks - 1 - rank) + (shape.chunks - 1) * shape.run
    return min(warmup, shape.micro_batches * shape.chunks)


def interleaved_in_flight(shape: Shape, rank: int) -> int:
    """min(m v, 2 (p - 1 - r) + (v - 1) g + 1): the warm-up and the first forward after it."""
    return min(interleaved_warmup(shape, rank) + 1, shape.micro_batches * shape.chunks)


def zb_h1_in_flight(shape: Shape, rank: int) -> int:
    """min(m v, p + (v - 1) g) on every rank, until the weight gradient.

    Until the input gradient it is r fewer; what a rank keeps between the two is less than a
    chunk's activations, so this is an upper bound in bytes.
    """
    return min(shape.micro_batches * shape.chunks, shape.ranks + (shape.chunks - 1) * shape.run)


def zb_v_in_flight(shape: Shape, rank: int) -> int:
    """min(2 m, 2 p, m + 1 + r): 1F1B's peak, as a chunk is half a rank's layers, on every rank."""
    return min(2 * shape.micro_batches, 2 * shape.ranks, shape.micro_batches + 1 + rank)


def dualpipe_v_in_flight(shape: Shape, rank: int) -> int:
    """2 p + 1: one more than ZB-V, because a pair's forward runs before its backward ends."""
    return 2 * shape.ranks + 1


def dualpipe_in_flight(shape: Shape, rank: int) -> int:
    """Both directions together p + 1; a rank also holds two stages' parameters."""
    return shape.ranks + 1
