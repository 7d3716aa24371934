"""Time of a collective: fitted inside one NVLink domain, by formula across domains.

Inside a domain of n ranks, a message of S bytes takes T = alpha(n) + ramp(S) + S (p (n-1)/n + c/n)
/ B seconds. alpha is the latency and B the bandwidth; p is 2 for all-reduce, which moves the bytes
twice, and 1 for other operations; c is the fraction of a rank's own part that is copied. The ramp,
a time that saturates with S, models NCCL's change from low-latency protocols to the bulk protocol.
"""

from __future__ import annotations

from dataclasses import replace
from math import log2
from typing import Literal

from parc.compiler.ir.frozen import frozen

Operation = Literal["all_gather", "reduce_scatter", "all_to_all", "all_reduce"]
OPERATIONS: tuple[Operation, ...] = ("all_gather", "reduce_scatter", "all_to_all", "all_reduce")
RING_ONLY: tuple[Operation, ...] = ("all_gather", "reduce_scatter")
"""Operations for which NCCL has only a ring between hosts with several ranks."""
MEASURED_RANKS = 8
"""Largest number of ranks for which the latency was measured. For more ranks, the latency is
assumed to grow with the depth of a tree."""


@frozen
class CollectiveFit:
    """Fitted constants of one operation on one GPU type inside an NVLink (or PCIe) domain."""

    operation: Operation
    link_gb_per_s: float
    """Data-sheet rate of the measured link in one direction."""
    latency_seconds: float
    rank_seconds: float
    """Latency per rank after the first."""
    bus_gb_per_s: float
    """Rate that large messages reach."""
    copy: float
    """Fraction of a rank's own part of the message that the rank copies."""
    ramp_seconds: float
    ramp_bytes: float
    crowding: float = 0.0
    """Exponent c in the bandwidth of n ranks, which is (2/n)^c of the bandwidth of two ranks. c is
    0 with a switch and about 2 if the ranks share PCIe."""
    switch_factor: float = 1.0
    """Factor on the transfer time for eight or more ranks, because the NVLink switch can then do
    the reduction."""

    def scaled_to_link(self, link_gb_per_s: float) -> CollectiveFit:
        """Return this collective fit, with the bandwidth scaled to another link.

        ``link_gb_per_s`` is the data-sheet rate of the other link in one direction.
        """
        scale = link_gb_per_s / self.link_gb_per_s
        return replace(self, link_gb_per_s=link_gb_per_s, bus_gb_per_s=self.bus_gb_per_s * scale)


@frozen
class InterDomainNetwork:
    """Network between domains: the NIC share of one GPU and the latency per hop."""

    gb_per_s_per_gpu: float
    hop_seconds: float


def collective_seconds(fit: CollectiveFit, nbytes: float, ranks: int) -> float:
    """Return the time in seconds of one collective among ``ranks`` ranks of one NVLink domain.

    ``nbytes`` is the size of the whole message. For an all-gather this is the gathered output, for
    a reduce-scatter the input, for an all-reduce the buffer. For an all-to-all it is all data that
    one rank sends, including the part for itself.
    """
    if ranks <= 1 or nbytes <= 0.0:
        return 0.0
    return _latency_seconds(fit, nbytes, ranks) + _transfer_seconds(fit, nbytes, ranks)


def two_level_collective_seconds(
    fit: CollectiveFit, network: InterDomainNetwork, nbytes: float, local: int, domains: int
) -> float:
    """Return the time in seconds of a collective over ``domains`` NVLink domains.

    Each domain has ``local`` ranks of the process group, and each GPU has its own share of the
    NICs. Transfers inside and between domains are pipelined, so that the slower of these two
    transfers determines the time. The time between domains is computed from the network rates; no
    constant is fitted.
    """
    # In a ring over all n = local x domains ranks, each domain sends p (n-1)/n of the message
    # through its NICs (p: 2 for all-reduce, else 1). In an all-to-all, a rank sends every byte
    # whose target is in another domain. For d domains, a pass of a ring has d - 1 hops. Other
    # operations than all-gather and reduce-scatter take 2 log2(d) hops if that is less: NCCL has
    # trees for all-reduces, but not for these two (graph/tuning.cc, ncclTopoTuneModel).
    if domains <= 1:
        return collective_seconds(fit, nbytes, local)
    if nbytes <= 0.0:
        return 0.0
    # A domain's traffic leaves through the NICs of all its ``local`` ranks at the same time.
    passes = ring_passes(fit.operation)
    ranks = local * domains
    inside, outside = nbytes, passes * (ranks - 1) / ranks * nbytes / local
    if fit.operation == "all_to_all":
        inside, outside = nbytes / domains, nbytes * (domains - 1) / domains
    wire = outside / (network.gb_per_s_per_gpu * 1e9)
    fixed = fit.latency_seconds
    if local > 1:
        wire = max(wire, _transfer_seconds(fit, inside, local))
        fixed = _latency_seconds(fit, inside, local)
    hops = passes * (domains - 1.0)
    if fit.operation not in RING_ONLY:
        hops = min(hops, passes * 2.0 * log2(domains))
    return fixed + hops * network.hop_seconds + wire


def send_seconds(fit: CollectiveFit, nbytes: float) -> float:
    """Return the time in seconds of one message of ``nbytes`` bytes inside an NVLink domain.

    ``fit`` must be the fit of an all-to-all.
    """
    # In an all-to-all between two ranks, each rank sends half of its message to the other one.
    return collective_seconds(fit, 2.0 * nbytes, 2)


def ring_passes(operation: Operation) -> int:
    """Return how many times a ring moves the message: 2 for all-reduce, 1 for other operations."""
    return 2 if operation == "all_reduce" else 1


def _latency_seconds(fit: CollectiveFit, nbytes: float, ranks: int) -> float:
    """Return the latency in seconds of a collective among ``ranks`` ranks.

    The latency grows with the message size, because NCCL changes to another protocol for large
    messages.
    """
    # Linear as a ring up to the measured number of ranks, then logarithmic as a tree.
    steps = min(ranks, MEASURED_RANKS) - 1.0
    if ranks > MEASURED_RANKS:
        steps += 2.0 * log2(ranks / MEASURED_RANKS)
    ramp = fit.ramp_seconds * nbytes / (nbytes + fit.ramp_bytes)
    return fit.latency_seconds + fit.rank_seconds * steps + ramp


def _transfer_seconds(fit: CollectiveFit, nbytes: float, ranks: int) -> float:
    """Return the seconds that a collective takes to transfer its data, without latency."""
    factor = (ring_passes(fit.operation) * (ranks - 1) + fit.copy) / ranks
    # From eight ranks on, the NVLink switch can do the reduction.
    if ranks >= MEASURED_RANKS:
        factor *= fit.switch_factor
    if fit.crowding:
        factor *= (ranks / 2.0) ** fit.crowding
    return factor * nbytes / (fit.bus_gb_per_s * 1e9)
