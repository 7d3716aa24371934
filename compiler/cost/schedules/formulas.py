"""Closed forms of a pipeline's makespan where all stages take the same time.

Each equals the event simulation wherever it answers at all; None says that no closed form is
known for these sizes, and that the simulation is to be asked. Notation: p ranks, v chunks a
rank, m micro-batches, g micro-batches a group; F, I, W seconds of one stage (chunk), B = I + W,
t = F + B; h seconds of a hop.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.schedules.simulation import Costs, StageSeconds
from parc.compiler.cost.schedules.table import Shape


@dataclass(frozen=True, slots=True)
class Even:
    """Every stage takes the same time."""

    stage: StageSeconds
    hop_seconds: float = 0.0
    overlap: float = 0.0
    """As in ``Costs``; only DualPipe and DualPipeV have something to overlap."""

    @property
    def pair_seconds(self) -> float:
        """An overlapped forward and backward: F&B in the papers."""
        stage = self.stage
        return stage.total - self.overlap * min(stage.forward, stage.backward)

    def costs(self, depth: int) -> Costs:
        """The same for a model of ``depth`` stages."""
        return Costs((self.stage,) * depth, self.hop_seconds, self.overlap)


def gpipe_seconds(shape: Shape, even: Even) -> float:
    """(m + p - 1) t + 2 (p - 1) h: bubble (p - 1)(F + B), GPipe (arXiv:1811.06965) section 2.3."""
    p, m = shape.ranks, shape.micro_batches
    return (m + p - 1) * even.stage.total + 2 * (p - 1) * even.hop_seconds


def one_f_one_b_seconds(shape: Shape, even: Even) -> float:
    """(m + p - 1) t + 2 h (n - ceil(n / p)) with n = m + p - 1.

    Bubble (p - 1)(F + B), Narayanan et al. 2021 (arXiv:2104.04473) section 2.2. Hops: a rank
    has at most p - r micro-batches under way, so p of them pay a round trip over all ranks;
    the steady state costs t + 2 h (p - 1) / p a micro-batch however short h is.
    """
    p = shape.ranks
    n = shape.micro_batches + p - 1
    return n * even.stage.total + 2 * even.hop_seconds * (n - -(-n // p))


def interleaved_seconds(shape: Shape, even: Even) -> float | None:
    """(m v + p - 1) t + 2 (p - 1) h + (v - 1)(max(0, p h - (g - p) F) + max(0, p h - (l - p) B)).

    Bubble (p - 1)(F + B) of a chunk: 1F1B's over v, arXiv:2104.04473 section 2.2. l is the size
    of the last group. Groups larger than p hide the way back from the last rank to the first.
    m <= p: (p v + m - 1) t + 2 (p v - 1) h. None where a hop is longer than a chunk's forward
    or backward (then hops pace the steady state), or where a group is shorter than p.
    """
    p, m, v, stage = shape.ranks, shape.micro_batches, shape.chunks, even.stage
    hop = even.hop_seconds if p > 1 else 0.0
    if hop > min(stage.forward, stage.backward):
        return None
    if m <= p:
        return (p * v + m - 1) * stage.total + 2 * (p * v - 1) * hop
    last = m % shape.run or shape.run
    if last < p:
        return None
    wrap = max(0.0, p * hop - (shape.run - p) * stage.forward)
    wrap += max(0.0, p * hop - (last - p) * stage.backward)
    return (m * v + p - 1) * stage.total + 2 * (p - 1) * hop + (v - 1) * wrap


def zb_h1_seconds(shape: Shape, even: Even) -> float | None:
    """Work m v t and a bubble of (p - 1) max(F + I - W, F, I), for m >= p.

    The published bubble (p - 1)(F + I - W) (arXiv:2401.10241 section 2; DeepSeek's ZB1P) is its
    first term: exact while W is no longer than F and I, too small beyond. With k = min(m, p):
    max((p-1)(F+I) - (k-1) W, (p-1) F + (p-k) I, (p-k) F + (p-1) I). None with hops, and for
    v > 1 with a group shorter than p.
    """
    p, m, stage = shape.ranks, shape.micro_batches, even.stage
    last = m % shape.run or shape.run
    if even.hop_seconds or (shape.chunks > 1 and last < p):
        return None
    k = min(m, p)
    forward, gradient = stage.forward, stage.input_gradient
    bubble = max(
        (p - 1) * (forward + gradient) - (k - 1) * stage.weight_gradient,
        (p - 1) * forward + (p - k) * gradient,
        (p - k) * forward + (p - 1) * gradient,
    )
    return m * shape.chunks * stage.total + bubble


def zb_v_seconds(shape: Shape, even: Even) -> float | None:
    """2 m t + the longest of eight ways through warm-up and cool-down.

    Found by following the critical path of the simulation. For F <= I >= W the bubble is
    (p - 1) max(I, 2 (I - W)). The paper's zero (arXiv:2401.10241, section 6) holds for F = I = W
    from a rank's own first action to its last; the step still ends (p - 1) F later, as the last
    rank starts that late. None with hops or for m < 2 p - 1.
    """
    p, m, stage = shape.ranks, shape.micro_batches, even.stage
    if even.hop_seconds or m < 2 * p - 1:
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


def dualpipe_v_seconds(shape: Shape, even: Even) -> float | None:
    """(2m-p-2) F&B + 2p F + (p+2) I + 3W + (p-1) max(I, W) + max(p F, (p-1) I).

    The published bubble (p - 1)(F&B + B - 3W) (DeepSeek-V3, arXiv:2412.19437, table 2, with its
    PP = 2p) is this for F = I >= W and F&B = F + B; elsewhere it misses by a share of
    |F - I| or W - I a rank, either way. None with hops (each pair waits for one) or m < 2p.
    """
    p, m, stage = shape.ranks, shape.micro_batches, even.stage
    if even.hop_seconds or m < 2 * p:
        return None
    f, i, w = stage.forward, stage.input_gradient, stage.weight_gradient
    paired = (2 * m - p - 2) * even.pair_seconds
    alone = 2 * p * f + (p + 2) * i + 3 * w
    return paired + alone + (p - 1) * max(i, w) + max(p * f, (p - 1) * i)


def dualpipe_seconds(shape: Shape, even: Even) -> float | None:
    """DualPipeV on half the ranks with half the micro-batches: the two ends mirror each other."""
    return dualpipe_v_seconds(Shape(shape.ranks // 2, shape.micro_batches // 2), even)
