"""Time of a collective: inside one NVLink domain by fit, across domains by formula.

Inside: T = alpha(n) + ramp(S) + S (p (n-1)/n + c/n) / B, with p = 2 for all-reduce (it moves the
bytes twice) and 1 for the others, c the share of a rank's own part that is copied. The ramp, a
cost that saturates with size, stands for the change from the low-latency protocols to the bulk one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2
from typing import Literal

Operation = Literal["all_gather", "reduce_scatter", "all_to_all", "all_reduce"]
OPERATIONS: tuple[Operation, ...] = ("all_gather", "reduce_scatter", "all_to_all", "all_reduce")
MEASURED_RANKS = 8
"""Latency was measured up to here; beyond it grows with the tree's depth, an assumption."""


@dataclass(frozen=True, slots=True)
class CollectiveFit:
    """One operation on one GPU type inside an NVLink (or PCIe) domain."""

    operation: Operation
    link_gb_per_s: float
    """Data-sheet rate, one direction, of the link that was measured."""
    latency_seconds: float
    rank_seconds: float
    """Latency of every rank beyond the first."""
    bus_gb_per_s: float
    """What the link yields for large messages."""
    copy: float
    ramp_seconds: float
    ramp_bytes: float
    crowding: float = 0.0
    """Bandwidth falls as (2/n) to this power: 0 behind a switch, about 2 over shared PCIe."""
    switch_factor: float = 1.0
    """Traffic time from eight ranks on, over that below: reduction in the NVLink switch."""

    def at_link(self, link_gb_per_s: float) -> CollectiveFit:
        """The same shares of another link's data-sheet rate."""
        scale = link_gb_per_s / self.link_gb_per_s
        return replace(self, link_gb_per_s=link_gb_per_s, bus_gb_per_s=self.bus_gb_per_s * scale)


@dataclass(frozen=True, slots=True)
class Network:
    """Between the domains: one GPU's share of the NICs and the latency of a hop."""

    gb_per_s_per_gpu: float
    hop_seconds: float


def collective_seconds(fit: CollectiveFit, nbytes: float, ranks: int) -> float:
    """Seconds of one collective of ``ranks`` in one domain.

    ``nbytes`` is the whole message: gathered output, scattered input, reduced buffer, or what one
    rank sends to all (its own part included).
    """
    if ranks <= 1 or nbytes <= 0.0:
        return 0.0
    return _fixed_seconds(fit, nbytes, ranks) + _wire_seconds(fit, nbytes, ranks)


def two_level_seconds(
    fit: CollectiveFit, network: Network, nbytes: float, local: int, domains: int
) -> float:
    """Seconds over ``domains`` of ``local`` ranks each, a NIC a GPU; formula, not fitted.

    The levels are pipelined, so the slower one sets the pace. A ring over all n ranks sends
    p (n-1)/n of the message through every domain's NICs, whatever the ranks inside hold already;
    in an all-to-all a rank sends all that leaves its domain.
    Hops: a ring's d-1 or twice a tree's depth, whichever is less.
    """
    if domains <= 1:
        return collective_seconds(fit, nbytes, local)
    if nbytes <= 0.0:
        return 0.0
    passes = ring_passes(fit.operation)
    ranks = local * domains
    inside, outside = nbytes, passes * (ranks - 1) / ranks * nbytes / local
    if fit.operation == "all_to_all":
        inside, outside = nbytes / domains, nbytes * (domains - 1) / domains
    wire = outside / (network.gb_per_s_per_gpu * 1e9)
    fixed = fit.latency_seconds
    if local > 1:
        wire = max(wire, _wire_seconds(fit, inside, local))
        fixed = _fixed_seconds(fit, inside, local)
    hops = passes * min(domains - 1.0, 2.0 * log2(domains))
    return fixed + hops * network.hop_seconds + wire


def send_seconds(fit: CollectiveFit, nbytes: float) -> float:
    """One point-to-point message: half of an all-to-all of two ranks, whose fit is wanted."""
    return collective_seconds(fit, 2.0 * nbytes, 2)


def ring_passes(operation: Operation) -> int:
    """Return how many times a rank of n sends (n - 1) / n of the message."""
    return 2 if operation == "all_reduce" else 1


def _fixed_seconds(fit: CollectiveFit, nbytes: float, ranks: int) -> float:
    steps = min(ranks, MEASURED_RANKS) - 1.0
    if ranks > MEASURED_RANKS:
        steps += 2.0 * log2(ranks / MEASURED_RANKS)
    ramp = fit.ramp_seconds * nbytes / (nbytes + fit.ramp_bytes)
    return fit.latency_seconds + fit.rank_seconds * steps + ramp


def _wire_seconds(fit: CollectiveFit, nbytes: float, ranks: int) -> float:
    factor = (ring_passes(fit.operation) * (ranks - 1) + fit.copy) / ranks
    if ranks >= MEASURED_RANKS:
        factor *= fit.switch_factor
    if fit.crowding:
        factor *= (ranks / 2.0) ** fit.crowding
    return factor * nbytes / (fit.bus_gb_per_s * 1e9)
