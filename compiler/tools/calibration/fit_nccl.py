"""Read the output of nccl-tests, and fit link and network parameters of the cost model to it.

The source of the format is https://github.com/NVIDIA/nccl-tests, src/common.cu. Times are in
microseconds. Only the time column is read, because the bus bandwidth follows from it.

A test whose ranks are in one NVLink domain determines latency and bandwidth of its collective
inside the domain. Tests with ranks in several domains determine the parameters that all collectives
share between hosts: the share of the NIC rate that is reached, and the latency of a hop.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from parc.compiler.cost.fitting import ParameterPrior, fit_parameters
from parc.compiler.cost.kernels.collective_time import (
    CollectiveFit,
    InterDomainNetwork,
    Operation,
    send_seconds,
    two_level_collective_seconds,
)
from parc.compiler.cost.setup.calibrated_parameters import (
    Values,
    numeric_efficiency_parameters,
    parameter_prior,
)
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir import Cluster, Efficiency
from parc.compiler.ir.frozen import frozen
from parc.compiler.resolve.resolve_kernels import kernel_fit_of_cluster

Test = Operation | Literal["send"]
TESTS: dict[str, Test] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send",
}
"""Program of nccl-tests (without ``_perf``) -> name of its collective in the cost model."""
_PROGRAM = re.compile(r"\b(\w+)_perf\b")
_NAMED = re.compile("|".join(TESTS))
_RANK = re.compile(r"\s*#\s+Rank\s+\d+\s.*?\bon\s+(\S+)\s+device\b")
MIN_SIZES = 4
"""Minimum number of message sizes; fewer do not separate latency from bandwidth."""
TIME_COLUMN = 5
"""Index of the column with the out-of-place time; size, count, type, redop and root precede it."""


@frozen
class CollectiveTimings:
    """Measured time of one collective per message size, from one output of nccl-tests."""

    file: str
    test: Test
    hosts: int
    ranks: int
    sizes: tuple[int, ...]
    """Bytes of the whole buffer, as nccl-tests counts them."""
    seconds: tuple[float, ...]


def read_nccl(text: str, file: str, sink: Sink) -> CollectiveTimings | None:
    """Return the timings in one output of nccl-tests; None after an error.

    An output is reported as incomplete (Q04) if its collective is unknown, if it has too few
    timings, or if it does not show the same number of ranks on each host.
    """
    test = _detect_collective(text, file)
    if test is None:
        finding = Finding(
            f"{file} does not name a known collective",
            help=f"valid programs: {', '.join(f'{name}_perf' for name in TESTS)}",
        )
        sink.report("Q04", finding, span=Span(file, 1, 1))
        return None
    ranks = (_RANK.match(line) for line in text.splitlines())
    hosts = Counter(match.group(1) for match in ranks if match)
    if not hosts or len(set(hosts.values())) > 1 or sum(hosts.values()) < 2:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(hosts.items())[:4])
        finding = Finding(
            f"{file}: the ranks are not spread evenly over hosts",
            f"ranks per host: {counts}" if counts else "no line starts with `#  Rank`",
            help="use at least two ranks, and the same number of ranks on every host",
        )
        sink.report("Q04", finding, span=Span(file, 1, 1))
        return None
    points = [point for line in text.splitlines() if (point := _parse_result_line(line))]
    if len(points) < MIN_SIZES:
        finding = Finding(
            f"{file} has {len(points)} timings, at least {MIN_SIZES} are required",
            help="run the test with -b 8 -e 8G -f 2: small messages show the latency, large "
            "messages the bandwidth",
        )
        sink.report("Q04", finding, span=Span(file, 1, 1))
        return None
    sizes, seconds = zip(*points, strict=True)
    return CollectiveTimings(file, test, len(hosts), sum(hosts.values()), sizes, seconds)


def _detect_collective(text: str, file: str) -> Test | None:
    """Return the collective that the output in ``text`` measures; None if it is unknown.

    The text names the test program, except in older versions of nccl-tests. If the text names no
    program, the file name determines the collective.
    """
    for match in _PROGRAM.finditer(text):
        if match.group(1) in TESTS:
            return TESTS[match.group(1)]
    # If the text names a program that is not in TESTS, the file name must not hide that.
    named = _NAMED.search(file.replace("\\", "/").rpartition("/")[2])
    return None if named is None or _PROGRAM.search(text) else TESTS[named.group()]


def _parse_result_line(line: str) -> tuple[int, float] | None:
    """Return (message bytes, seconds) of a result line of nccl-tests; None for any other line."""
    words = line.split()
    if len(words) <= TIME_COLUMN or not words[0].isdigit():
        return None
    try:
        seconds = float(words[TIME_COLUMN]) * 1e-6
    except ValueError:
        return None
    size = int(words[0])
    return (size, seconds) if size > 0 and 0 < seconds < 1e6 else None


LINK_TERMS = ("bus", "fixed", "ramp")
"""Factors fitted per collective: on its bandwidth, its latency (fixed and per rank), its ramp.

The ramp is the part of the time that saturates with the message size (``collective_time.py``).
"""
# A factor of 1 keeps the shipped value. The prior is wide (a spread of 1 of the logarithm), so that
# a direct measurement of the links outweighs the shipped values.
LINK_PRIOR = ParameterPrior(1.0, 1.0, 0.02, 50.0)
NETWORK_TERMS = ("network", "hop_seconds")


@frozen
class MeasuredCollective:
    """Measured times of one collective, and the predictions before and after a fit."""

    timings: CollectiveTimings
    before: tuple[float, ...]
    """Predicted seconds per message size, with the shipped parameters."""
    after: tuple[float, ...]
    """Predicted seconds per message size, with the fitted parameters."""


@dataclass
class LinksFit:
    """Link and network parameters fitted to outputs of nccl-tests."""

    collectives: dict[str, float] = field(default_factory=dict)
    """Parameter (``all_reduce.bus_gb_per_s``) -> fitted value."""
    network: dict[str, float] = field(default_factory=dict)
    """``network`` and ``hop_seconds``; empty if all outputs are from a single domain."""
    measured: list[MeasuredCollective] = field(default_factory=list)

    @property
    def fitted_values(self) -> Values:
        """Fitted parameters of the collectives as (name, value), sorted by name."""
        return tuple(sorted(self.collectives.items()))


def fit_nccl(
    outputs: Sequence[CollectiveTimings], cluster: Cluster, row: Efficiency, sink: Sink
) -> LinksFit:
    """Fit the link and network parameters of collectives to ``outputs`` of nccl-tests.

    Tests inside one NVLink domain determine the link parameters, and tests across several domains
    the network parameters. Two tests of the same collective inside one domain are reported (Q04),
    because PARC cannot decide which of the two to use.
    """
    fitting = _LinkFitter(cluster, row)
    found = LinksFit()
    inside: dict[Operation, CollectiveTimings] = {}
    for timings in outputs:
        operation = _modeled_operation(timings)
        if fitting.domain_count(timings) > 1:
            continue
        if operation in inside:
            message = f"{timings.file} and {inside[operation].file} both measure {operation}"
            finding = Finding(
                message, help="pass only one output per collective with ranks in one domain"
            )
            sink.report("Q04", finding, span=Span(timings.file, 1, 1))
            continue
        inside[operation] = timings
        found.measured.append(fitting.fit_link(timings, found.collectives))
    outside = [timings for timings in outputs if fitting.domain_count(timings) > 1]
    if outside:
        found.measured += fitting.fit_network(outside, found.network)
    return found


def _modeled_operation(timings: CollectiveTimings) -> Operation:
    """Return the collective of the cost model that is fitted to the timings.

    This is the collective that the test measures. The exception is a send test, to which all-to-all
    is fitted: a send is half of an all-to-all between two ranks.
    """
    return "all_to_all" if timings.test == "send" else timings.test


class _LinkFitter:
    """Fitter of the link and network parameters of one cluster."""

    def __init__(self, cluster: Cluster, row: Efficiency) -> None:
        node = cluster.node
        fits = kernel_fit_of_cluster(cluster).collectives
        self.shipped = {each: fit.scaled_to_link(node.link_gb_per_s) for each, fit in fits.items()}
        self.fits = dict(self.shipped)
        self.cluster = cluster
        self.start = numeric_efficiency_parameters(row)

    def domain_count(self, timings: CollectiveTimings) -> int:
        return -(-timings.ranks // self._ranks_per_domain(timings))

    def _ranks_per_domain(self, timings: CollectiveTimings) -> int:
        """Return the number of ranks of a test that communicate without the network.

        These are the ranks on the hosts of one NVLink domain, or on one host if a domain is
        smaller.
        """
        node, per_host = self.cluster.node, timings.ranks // timings.hosts
        hosts = max(node.nvlink_domain // node.gpus, 1)
        return per_host * min(hosts, timings.hosts)

    def _network_with(self, values: Mapping[str, float]) -> InterDomainNetwork:
        node, fabric = self.cluster.node, self.cluster.fabric
        # The minimum of 0.05 GB/s keeps times finite if the fit tries a share close to 0.
        rate = max(node.network_gb_per_s_per_gpu * values["network"], 0.05)
        return InterDomainNetwork(rate, values["hop_seconds"] + fabric.latency_seconds)

    def _predict_seconds(
        self, timings: CollectiveTimings, fit_: CollectiveFit, network: Mapping[str, float]
    ) -> tuple[float, ...]:
        local, domains = self._ranks_per_domain(timings), self.domain_count(timings)
        between = self._network_with({**self.start, **network})
        if timings.test != "send":
            return tuple(
                two_level_collective_seconds(fit_, between, nbytes, local, domains)
                for nbytes in timings.sizes
            )
        if domains == 1:
            return tuple(send_seconds(fit_, nbytes) for nbytes in timings.sizes)
        # Between domains, a send uses one NIC and one hop.
        rate = between.gb_per_s_per_gpu * 1e9
        return tuple(nbytes / rate + between.hop_seconds for nbytes in timings.sizes)

    def fit_link(self, timings: CollectiveTimings, found: dict[str, float]) -> MeasuredCollective:
        """Fit the link parameters of a collective to a test inside one NVLink domain.

        The fitted parameters are added to ``found``. Return the test with the times that are
        predicted before and after the fit.
        """
        operation = _modeled_operation(timings)
        before = self.shipped[operation]
        priors = dict.fromkeys(LINK_TERMS, LINK_PRIOR)
        best = fit_parameters(
            lambda values: self._predict_seconds(
                timings, _scale_collective_fit(before, values), {}
            ),
            timings.seconds,
            dict.fromkeys(LINK_TERMS, 1.0),
            priors,
        )
        after = self.fits[operation] = _scale_collective_fit(before, best.parameters)
        for term in ("bus_gb_per_s", "latency_seconds", "rank_seconds", "ramp_seconds"):
            found[f"{operation}.{term}"] = getattr(after, term)
        return MeasuredCollective(
            timings,
            self._predict_seconds(timings, before, {}),
            self._predict_seconds(timings, after, {}),
        )

    def fit_network(
        self, outputs: Sequence[CollectiveTimings], found: dict[str, float]
    ) -> list[MeasuredCollective]:
        """Fit the share of the NIC rate and the hop latency to tests across NVLink domains.

        The two fitted parameters are added to ``found``. Return each test of ``outputs`` with the
        times that are predicted before and after the fit.
        """
        priors = {
            name: replace(parameter_prior(name, self.start[name]), spread=1.0)
            for name in NETWORK_TERMS
        }

        def predict(values: Mapping[str, float]) -> list[float]:
            each = (
                self._predict_seconds(one, self.fits[_modeled_operation(one)], values)
                for one in outputs
            )
            return [seconds for one in each for seconds in one]

        measured = [seconds for one in outputs for seconds in one.seconds]
        start = {name: each.center for name, each in priors.items()}
        found.update(fit_parameters(predict, measured, start, priors).parameters)
        return [
            MeasuredCollective(
                one,
                self._predict_seconds(one, self.shipped[_modeled_operation(one)], {}),
                self._predict_seconds(one, self.fits[_modeled_operation(one)], found),
            )
            for one in outputs
        ]


def _scale_collective_fit(fit_: CollectiveFit, values: Mapping[str, float]) -> CollectiveFit:
    return replace(
        fit_,
        bus_gb_per_s=fit_.bus_gb_per_s * values["bus"],
        latency_seconds=fit_.latency_seconds * values["fixed"],
        rank_seconds=fit_.rank_seconds * values["fixed"],
        ramp_seconds=fit_.ramp_seconds * values["ramp"],
    )
