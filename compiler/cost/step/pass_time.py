"""Time of the forward or of the backward pass of one layer, on device and host together."""

from __future__ import annotations

from typing import NamedTuple

from parc.compiler.cost.kernels.gemm import overlapped_seconds
from parc.compiler.ir import Efficiency

LAUNCH_NORM = 4.0
"""Norm that combines the host's launch time and the device time (1: sum, 8: about the maximum);
assumed."""
BLOCKING_NORM = 1.0
"""The same if the host waits for every kernel before it launches the next one: the device idles
while the host launches."""


class PassTime(NamedTuple):
    """Time in seconds of the forward or of the backward pass of one layer, by term."""

    compute: float
    tp: float
    cp: float
    launch: float
    """Derivative of the time of the pass by the logarithm of the launch time."""

    @property
    def total(self) -> float:
        """Return the time of the pass in seconds."""
        return self.compute + self.tp + self.cp


def pass_time(
    device: tuple[float, float, float], host: tuple[float, float], copies: float
) -> PassTime:
    """Return the time of the forward or of the backward pass of one layer, by term.

    ``device`` contains the seconds in which the device computes, and waits for tensor-parallel and
    for context-parallel communication. ``host`` is the time in seconds in which the host launches
    these kernels, and the norm that combines it with the time of the device. ``copies`` is the time
    in seconds of copies between device and host, 0 for none.
    """
    # If the device is faster than the host can launch kernels, the launches determine the time.
    # Communication too runs on the device while the host launches the next kernels. Therefore a
    # pass never takes longer if computation becomes faster, although it then hides less.
    # Copies overlap with the kernels of one layer: to the host in the forward pass, and back in the
    # backward pass. If the copies take longer, they determine the time.
    (compute, tp, cp), (launch, norm) = device, host
    first, second, whole = (
        max(overlapped_seconds(seconds, launch, norm), copies)
        for seconds in (compute, compute + tp, compute + tp + cp)
    )
    slope = whole * (launch / whole) ** norm if whole else 0.0
    return PassTime(first, second - first, whole - second, slope)


def launch_norm(row: Efficiency) -> float:
    """Return the norm that combines launch time and device time for a stack."""
    return BLOCKING_NORM if row.blocking_launches else LAUNCH_NORM
