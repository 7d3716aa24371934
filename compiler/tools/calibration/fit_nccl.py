"""Fits links and network to measured collectives.

Ranks in one NVLink domain calibrate that collective's latency and bandwidth inside it; ranks over
several domains calibrate what all collectives share between hosts: NIC share and hop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from parc.compiler.cost.fitting import Prior, fit
from parc.compiler.cost.kernels.collective_time import (
    CollectiveFit,
    Network,
    Operation,
    send_seconds,
    two_level_seconds,
)
from parc.compiler.cost.setup.calibrated import Values, fitted_parameters, prior
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir import Cluster, Efficiency
from parc.compiler.resolve.resolve_kernels import cluster_fit
from parc.compiler.tools.calibration.nccl_text import Timings

LINK_TERMS = ("bus", "fixed", "ramp")
"""Factors on bandwidth, on latency (of the first rank and of the others), on the ramp."""
LINK_PRIOR = Prior(1.0, 1.0, 0.02, 50.0)
NETWORK_TERMS = ("network", "hop_seconds")


@dataclass(frozen=True, slots=True)
class Measured:
    """One output of nccl-tests against the cost model."""

    timings: Timings
    before: tuple[float, ...]
    """Seconds by size, by the shipped parameters."""
    after: tuple[float, ...]


@dataclass
class LinksFit:
    """What came of the collectives."""

    collectives: dict[str, float] = field(default_factory=dict)
    """Calibrated names (``all_reduce.bus_gb_per_s``) and values."""
    network: dict[str, float] = field(default_factory=dict)
    """``network`` and ``hop_seconds``, where hosts were crossed."""
    measured: list[Measured] = field(default_factory=list)

    @property
    def values(self) -> Values:
        """The collectives, sorted by name."""
        return tuple(sorted(self.collectives.items()))


def fit_nccl(outputs: Sequence[Timings], cluster: Cluster, row: Efficiency, sink: Sink) -> LinksFit:
    """Links from the outputs in one domain, then the network from those over several.

    Two outputs in one domain for the same collective are Q04: it is not known which one holds.
    """
    fitting = _Fitting(cluster, row)
    found = LinksFit()
    inside: dict[Operation, Timings] = {}
    for timings in outputs:
        operation = _operation(timings)
        if fitting.domains(timings) > 1:
            continue
        if operation in inside:
            message = f"{timings.file} and {inside[operation].file} both measure {operation}"
            finding = Finding(message, help="give one output a collective and domain")
            sink.report("Q04", finding, span=Span(timings.file, 1, 1))
            continue
        inside[operation] = timings
        found.measured.append(fitting.link(timings, found.collectives))
    outside = [timings for timings in outputs if fitting.domains(timings) > 1]
    if outside:
        found.measured += fitting.between(outside, found.network)
    return found


def _operation(timings: Timings) -> Operation:
    """A send is half of an all-to-all of two (``collectives.send_seconds``)."""
    return "all_to_all" if timings.test == "send" else timings.test


class _Fitting:
    """The links and the network of one cluster, as they are known so far."""

    def __init__(self, cluster: Cluster, row: Efficiency) -> None:
        node = cluster.node
        fits = cluster_fit(cluster).collectives
        self.shipped = {each: fit.at_link(node.link_gb_per_s) for each, fit in fits.items()}
        self.fits = dict(self.shipped)
        self.cluster = cluster
        self.start = fitted_parameters(row)

    def domains(self, timings: Timings) -> int:
        return -(-timings.ranks // self._local(timings))

    def _local(self, timings: Timings) -> int:
        """Ranks in one NVLink domain; a host's, where domains end at the host."""
        node, a_host = self.cluster.node, timings.ranks // timings.hosts
        hosts = max(node.nvlink_domain // node.gpus, 1)
        return a_host * min(hosts, timings.hosts)

    def _network(self, values: Mapping[str, float]) -> Network:
        node, fabric = self.cluster.node, self.cluster.fabric
        rate = max(node.network_gb_per_s_per_gpu * values["network"], 0.05)
        return Network(rate, values["hop_seconds"] + fabric.latency_seconds)

    def _seconds(
        self, timings: Timings, fit_: CollectiveFit, network: Mapping[str, float]
    ) -> tuple[float, ...]:
        local, domains = self._local(timings), self.domains(timings)
        between = self._network({**self.start, **network})
        if timings.test != "send":
            return tuple(
                two_level_seconds(fit_, between, nbytes, local, domains) for nbytes in timings.sizes
            )
        if domains == 1:
            return tuple(send_seconds(fit_, nbytes) for nbytes in timings.sizes)
        rate = between.gb_per_s_per_gpu * 1e9
        return tuple(nbytes / rate + between.hop_seconds for nbytes in timings.sizes)

    def link(self, timings: Timings, found: dict[str, float]) -> Measured:
        """Fit the factors of one collective in its domain; adds its terms to ``found``."""
        operation = _operation(timings)
        before = self.shipped[operation]
        priors = dict.fromkeys(LINK_TERMS, LINK_PRIOR)
        best = fit(
            lambda values: self._seconds(timings, _scaled(before, values), {}),
            timings.seconds,
            dict.fromkeys(LINK_TERMS, 1.0),
            priors,
        )
        after = self.fits[operation] = _scaled(before, best.parameters)
        for term in ("bus_gb_per_s", "latency_seconds", "rank_seconds", "ramp_seconds"):
            found[f"{operation}.{term}"] = getattr(after, term)
        return Measured(
            timings, self._seconds(timings, before, {}), self._seconds(timings, after, {})
        )

    def between(self, outputs: Sequence[Timings], found: dict[str, float]) -> list[Measured]:
        """Fit NIC share and hop to all ``outputs`` together; adds them to ``found``."""
        priors = {
            name: replace(prior(name, self.start[name]), spread=1.0) for name in NETWORK_TERMS
        }

        def predict(values: Mapping[str, float]) -> list[float]:
            each = (self._seconds(one, self.fits[_operation(one)], values) for one in outputs)
            return [seconds for one in each for seconds in one]

        measured = [seconds for one in outputs for seconds in one.seconds]
        start = {name: each.centre for name, each in priors.items()}
        found.update(fit(predict, measured, start, priors).parameters)
        return [
            Measured(
                one,
                self._seconds(one, self.shipped[_operation(one)], {}),
                self._seconds(one, self.fits[_operation(one)], found),
            )
            for one in outputs
        ]


def _scaled(fit_: CollectiveFit, values: Mapping[str, float]) -> CollectiveFit:
    return replace(
        fit_,
        bus_gb_per_s=fit_.bus_gb_per_s * values["bus"],
        latency_seconds=fit_.latency_seconds * values["fixed"],
        rank_seconds=fit_.rank_seconds * values["fixed"],
        ramp_seconds=fit_.ramp_seconds * values["ramp"],
    )
