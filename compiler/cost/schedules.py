"""Pipeline schedules: micro-batches in flight, and the bubble.

Sources: Narayanan et al. 2021 (arXiv:2104.04473) section 2.2; the in-flight counts equal an
event simulation of Megatron's schedules.
"""

from __future__ import annotations


def chunks_in_flight(stage: int, pp: int, vpp: int, micro_batches: int) -> int:
    """Peak number of (micro-batch, chunk) pairs whose activations a pipeline rank holds.

    1F1B: min(m, p - r). Interleaved: min(m v, 2 (p - 1 - r) + (v - 1) p + 1).
    """
    if vpp == 1:
        return min(micro_batches, pp - stage)
    return min(micro_batches * vpp, 2 * (pp - 1 - stage) + (vpp - 1) * pp + 1)


def bubble_fraction(pp: int, vpp: int, micro_batches: int) -> float:
    """Idle share of the ideal step: (p - 1) / (m v)."""
    return (pp - 1) / (micro_batches * vpp)
