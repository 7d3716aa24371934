"""Closed formulas of pipeline schedules: seconds of a step with equal stages, chunks in flight.

The seconds equal those of the event simulation. If no formula is known for the sizes, the result is
None, and callers use the simulation. A chunk in flight is one micro-batch on one stage whose
activations are stored. Tests compare all formulas with the action tables of ``registry.py``.

Notation: p ranks, v chunks per rank, m micro-batches, g micro-batches per group, r the pipeline
rank; F, I, W seconds of one stage (chunk), B = I + W, t = F + B; h seconds of a hop between ranks.
Sources: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2, for 1F1B and interleaving; Qi et al.
2024 (arXiv:2401.10241) for zero bubble; DeepSeek-V3 (arXiv:2412.19437), table 2, for DualPipe.
"""

from __future__ import annotations

from parc.compiler.cost.schedules.simulation import StageCosts, StageSeconds
from parc.compiler.cost.schedules.table import PipelineShape
from parc.compiler.ir.frozen import frozen


@frozen
class EqualStages:
    """Seconds of the stages of a pipeline whose stages all take the same time."""

    stage: StageSeconds
    hop_seconds: float = 0.0
    overlap: float = 0.0
    """Fraction of the shorter computation that the longer one hides if a forward and a backward
    overlap. Only DualPipe and DualPipeV overlap forwards and backwards."""

    @property
    def pair_seconds(self) -> float:
        """Return the time in seconds of a forward and a backward that overlap (DeepSeek's F&B)."""
        stage = self.stage
        return stage.total - self.overlap * min(stage.forward, stage.backward)

    def simulation_costs(self, depth: int) -> StageCosts:
        """Return the times of ``depth`` equal stages in the form that the simulation requires."""
        return StageCosts((self.stage,) * depth, self.hop_seconds, self.overlap)


def gpipe_seconds(shape: PipelineShape, stages: EqualStages) -> float:
    """Return the time in seconds of a GPipe step: (m + p - 1) t + 2 (p - 1) h.

    m is the number of micro-batches and p the number of ranks. t is the time of the forward plus
    backward of one micro-batch on one stage, h the time of one hop between ranks.
    """
    # The bubble is (p - 1) t: GPipe (arXiv:1811.06965), section 2.3.
    p, m = shape.ranks, shape.micro_batches
    return (m + p - 1) * stages.stage.total + 2 * (p - 1) * stages.hop_seconds


def one_f_one_b_seconds(shape: PipelineShape, stages: EqualStages) -> float:
    """Return the time in seconds of a 1F1B step: n t + 2 h (n - ceil(n / p)) with n = m + p - 1.

    m is the number of micro-batches and p the number of ranks. t is the time of the forward plus
    backward of one micro-batch on one stage, h the time of one hop between ranks.
    """
    # The bubble is (p - 1) t (arXiv:2104.04473, section 2.2). Hops are exposed because a rank has
    # at most p micro-batches in flight: every p micro-batches wait for one round trip over all
    # ranks, so that a micro-batch takes t + 2 h (p - 1) / p in the steady state.
    p = shape.ranks
    n = shape.micro_batches + p - 1
    return n * stages.stage.total + 2 * stages.hop_seconds * (n - -(-n // p))


def interleaved_seconds(shape: PipelineShape, stages: EqualStages) -> float | None:
    """Return the time in seconds of an interleaved 1F1B step; None if no formula is known.

    There is no formula in two cases:
    - a hop takes longer than the forward or the backward of a chunk;
    - there are more micro-batches than ranks, but fewer in the last group than there are ranks.
    """
    # For m > p: (m v + p - 1) t + 2 (p - 1) h + (v - 1) (max(0, p h - (g - p) F) + max(0, p h -
    # (l - p) B)); for m <= p: (p v + m - 1) t + 2 (p v - 1) h. m: micro-batches; p: ranks; v:
    # chunks per rank; g: micro-batches per group; l: micro-batches in the last group; F, B: forward
    # and backward seconds of one chunk, t = F + B; h: seconds of one hop between ranks. The bubble,
    # (p - 1) t of a chunk, is that of 1F1B divided by v (arXiv:2104.04473, section 2.2). Groups
    # larger than p hide the hop from the last rank back to the first.
    p, m, v, stage = shape.ranks, shape.micro_batches, shape.chunks, stages.stage
    hop = stages.hop_seconds if p > 1 else 0.0
    # Longer hops determine the steady state, for which no formula is known.
    if hop > min(stage.forward, stage.backward):
        return None
    if m <= p:
        return (p * v + m - 1) * stage.total + 2 * (p * v - 1) * hop
    last = m % shape.group_size or shape.group_size
    if last < p:
        return None
    # Hops from the last rank back to the first, as far as a longer group does not hide them.
    wrap = max(0.0, p * hop - (shape.group_size - p) * stage.forward)
    wrap += max(0.0, p * hop - (last - p) * stage.backward)
    return (m * v + p - 1) * stage.total + 2 * (p - 1) * hop + (v - 1) * wrap


def zb_h1_seconds(shape: PipelineShape, stages: EqualStages) -> float | None:
    """Return the time in seconds of a ZB-H1 step; None if no formula is known.

    There is no formula in two cases:
    - hops between ranks take time;
    - a rank has several chunks, and the last group has fewer micro-batches than there are ranks.
    """
    # m v t plus the bubble max((p-1)(F+I) - (k-1) W, (p-1) F + (p-k) I, (p-k) F + (p-1) I); for
    # m >= p the bubble is (p - 1) max(F + I - W, F, I). m: micro-batches; p: ranks; v: chunks per
    # rank; F, I, W: seconds of forward, input gradient and weight gradient of one chunk,
    # t = F + I + W; k = min(m, p). The published bubble (p - 1)(F + I - W) (arXiv:2401.10241,
    # section 2; DeepSeek's ZB1P) is exact for W <= min(F, I) and too small for longer W.
    p, m, stage = shape.ranks, shape.micro_batches, stages.stage
    last = m % shape.group_size or shape.group_size
    if stages.hop_seconds or (shape.chunks > 1 and last < p):
        return None
    # With fewer micro-batches than ranks, only m weight gradients can fill the bubble.
    k = min(m, p)
    forward, gradient = stage.forward, stage.input_gradient
    bubble = max(
        (p - 1) * (forward + gradient) - (k - 1) * stage.weight_gradient,
        (p - 1) * forward + (p - k) * gradient,
        (p - k) * forward + (p - 1) * gradient,
    )
    return m * shape.chunks * stage.total + bubble


def zb_v_seconds(shape: PipelineShape, stages: EqualStages) -> float | None:
    """Return the time in seconds of a ZB-V step; None if no formula is known.

    There is no formula in two cases:
    - hops between ranks take time;
    - p ranks process fewer than 2 p - 1 micro-batches.
    """
    # 2 m t plus the longest of eight paths through warm-up and cool-down, which were found by
    # following the critical path of the simulation. m: micro-batches; F, I, W: seconds of forward,
    # input gradient and weight gradient of one of the two stages of a rank, t = F + I + W. For
    # F <= I >= W the bubble is (p - 1) max(I, 2 (I - W)). The paper counts its zero bubble for
    # F = I = W (arXiv:2401.10241, section 6) from the first to the last action of each rank; the
    # step takes (p - 1) F longer, because the last rank starts that late.
    p, m, stage = shape.ranks, shape.micro_batches, stages.stage
    if stages.hop_seconds or m < 2 * p - 1:
        return None
    if p == 1:
        return 2 * m * stage.total
    f, i, w = stage.forward, stage.input_gradient, stage.weight_gradient
    bubble = max(
        (p - 1) * i,
        (p - 1) * 2 * (i - w),
        i + (p - 2) * w,
        f + (p - 2) * w,
        (2 * p - 3) * f - (p - 2) * i,
        (2 * p - 3) * f + i - (2 * p - 2) * w,
        (2 * p - 2) * f - (p - 1) * i - w,
        (2 * p - 2) * f - (2 * p - 1) * w,
    )
    return 2 * m * stage.total + bubble


def dualpipe_v_seconds(shape: PipelineShape, stages: EqualStages) -> float | None:
    """Return the time in seconds of a DualPipeV step; None if no formula is known.

    There is no formula in two cases:
    - hops between ranks take time, so that every overlapped pair waits for a hop;
    - p ranks process fewer than 2 p micro-batches.
    """
    # (2m-p-2) F&B + 2p F + (p+2) I + 3W + (p-1) max(I, W) + max(p F, (p-1) I). m: micro-batches;
    # F, I, W: seconds of forward, input gradient and weight gradient of one stage, B = I + W; F&B:
    # an overlapped forward and backward. The published bubble (p - 1)(F&B + B - 3W) (DeepSeek-V3,
    # arXiv:2412.19437, table 2, whose PP is 2p) is equal if F = I >= W and F&B = F + B. Otherwise
    # it differs by a fraction of |F - I| or W - I per rank.
    p, m, stage = shape.ranks, shape.micro_batches, stages.stage
    if stages.hop_seconds or m < 2 * p:
        return None
    f, i, w = stage.forward, stage.input_gradient, stage.weight_gradient
    # Overlapped pairs of the steady state; the other terms are warm-up and cool-down.
    paired = (2 * m - p - 2) * stages.pair_seconds
    single = 2 * p * f + (p + 2) * i + 3 * w
    return paired + single + (p - 1) * max(i, w) + max(p * f, (p - 1) * i)


def dualpipe_seconds(shape: PipelineShape, stages: EqualStages) -> float | None:
    """Return the time in seconds of a DualPipe step; None if ``dualpipe_v_seconds`` returns None.

    A step takes as long as a DualPipeV step on half the ranks with half the micro-batches, because
    the two halves of the pipeline mirror each other.
    """
    return dualpipe_v_seconds(PipelineShape(shape.ranks // 2, shape.micro_batches // 2), stages)


def chunks_in_flight(stage: int, pp: int, vpp: int, micro_batches: int) -> int:
    """Return the peak number of chunks in flight on pipeline rank ``stage`` under 1F1B.

    A chunk in flight is one micro-batch on one chunk whose activations are stored. With m
    micro-batches, p ranks and v chunks per rank, rank r stores min(m, p - r) chunks if v = 1. If v
    > 1 (interleaved 1F1B), it stores min(m v, 2 (p - 1 - r) + (v - 1) p + 1).
    """
    # Sizes are passed as integers because the search calls this function often.
    if vpp == 1:
        return min(micro_batches, pp - stage)
    return min(micro_batches * vpp, 2 * (pp - 1 - stage) + (vpp - 1) * pp + 1)


def gpipe_chunks_in_flight(shape: PipelineShape, rank: int) -> int:
    """Return the peak number of chunks in flight of GPipe: every rank stores all micro-batches."""
    return shape.micro_batches


def one_f_one_b_chunks_in_flight(shape: PipelineShape, rank: int) -> int:
    """Return the peak number of chunks in flight of 1F1B on ``rank``: min(m, p - ``rank``).

    m is the number of micro-batches and p the number of ranks.
    """
    return min(shape.micro_batches, shape.ranks - rank)


def interleaved_warmup_forwards(shape: PipelineShape, rank: int) -> int:
    """Return the number of warm-up forwards of interleaved 1F1B on ``rank`` (r).

    The number is min(m v, 2 (p - 1 - r) + (v - 1) g) for m micro-batches, p ranks, v chunks per
    rank and g micro-batches per group. The first forward of the steady state is not a warm-up
    forward.
    """
    warmup = 2 * (shape.ranks - 1 - rank) + (shape.chunks - 1) * shape.group_size
    return min(warmup, shape.micro_batches * shape.chunks)


def interleaved_chunks_in_flight(shape: PipelineShape, rank: int) -> int:
    """Return the peak number of chunks in flight of interleaved 1F1B on ``rank``.

    The peak is one more than the number of warm-up forwards, but at most the number of all chunks
    of the step.
    """
    return min(interleaved_warmup_forwards(shape, rank) + 1, shape.micro_batches * shape.chunks)


def zb_h1_chunks_in_flight(shape: PipelineShape, rank: int) -> int:
    """Return the peak number of chunks in flight of ZB-H1, which is the same on all ranks.

    The number is min(m v, p + (v - 1) g) for m micro-batches, p ranks, v chunks per rank and g
    micro-batches per group. A chunk is in flight until its weight gradient has been computed.
    """
    # After the input gradient a rank stores only part of the activations of a chunk, so that bytes
    # computed from this number are an upper bound. If chunks counted only until the input gradient,
    # the number would be r lower on rank r.
    return min(
        shape.micro_batches * shape.chunks, shape.ranks + (shape.chunks - 1) * shape.group_size
    )


def zb_v_chunks_in_flight(shape: PipelineShape, rank: int) -> int:
    """Return the peak number of chunks in flight of ZB-V on ``rank`` (r): min(2 m, 2 p, m + 1 + r).

    m is the number of micro-batches and p the number of ranks. A chunk has half of a rank's layers,
    so that 2 p chunks need the memory of p micro-batches, the peak of 1F1B on its first rank.
    """
    return min(2 * shape.micro_batches, 2 * shape.ranks, shape.micro_batches + 1 + rank)


def dualpipe_v_chunks_in_flight(shape: PipelineShape, rank: int) -> int:
    """Return the peak number of chunks in flight of DualPipeV: 2 p + 1 on each of p ranks.

    The peak is one chunk higher than that of ZB-V. While a forward overlaps with a backward, the
    rank stores the activations of both.
    """
    return 2 * shape.ranks + 1


def dualpipe_chunks_in_flight(shape: PipelineShape, rank: int) -> int:
    """Return the peak number of chunks in flight of DualPipe: p + 1 on each of p ranks.

    The chunks of both directions of the pipeline are counted.
    """
    return shape.ranks + 1
