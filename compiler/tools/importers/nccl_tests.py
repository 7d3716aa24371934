"""Import outputs of nccl-tests as a calibration: latency and bandwidth in and between hosts.

A test with ranks on one host measures the links inside the host, a test with ranks on several hosts
measures the network. The parameters are fitted as in ``parc calibrate``, for the catalog's node
type whose GPU has the printed name.
"""

from __future__ import annotations

import re
from statistics import median
from typing import Any

from parc import __version__
from parc.backends.registry import built_in_backends, framework
from parc.compiler.catalog.library import Library
from parc.compiler.cost.setup.calibrated_parameters import (
    calibrated_collective_constants,
    efficiency_for_stack,
)
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir import Cluster
from parc.compiler.report.formatting import round_to_six_digits
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.tools.calibration.fit_nccl import CollectiveTimings, fit_nccl, read_nccl
from parc.compiler.topology.readers.reader_state import Fragment

_DEVICE = re.compile(r"(?m)^#[ \t]{1,9}Rank[ \t]{1,9}\d.{0,200}?\[[0-9a-fA-F:.]{1,40}\] (.{1,80})")
NODES = {
    "NVIDIA GB300": "gb300-nvl72",
    "NVIDIA GB200": "gb200-nvl72",
    "NVIDIA B300": "dgx-b300",
    "NVIDIA B200": "dgx-b200",
    "NVIDIA H200": "dgx-h200",
    "NVIDIA H100 PCIe": "h100-pcie-8",
    "NVIDIA H100": "dgx-h100",
    "NVIDIA H800": "hgx-h800",
    "NVIDIA H20": "hgx-h20",
    "NVIDIA A100-SXM4-40GB": "dgx-a100-40gb",
    "NVIDIA A100-PCIE": "a100-pcie-8",
    "NVIDIA A100": "dgx-a100",
    "NVIDIA A800": "hgx-a800",
    "NVIDIA L40S": "l40s-8",
}
"""Start of a device name -> node type of the catalog with this GPU.

The first match counts, so ``NVIDIA H100 PCIe`` precedes ``NVIDIA H100``.
"""
# The time of a message above LARGE_BYTES is mostly bandwidth, below SMALL_BYTES mostly latency.
LARGE_BYTES = 256 * 2**20
SMALL_BYTES = 8192


def read_nccl_tests(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return a calibration that is fitted to one output of nccl-tests; None after an error."""
    return read_outputs([(text, name)], sink)


def read_outputs(files: list[tuple[str, str]], sink: Sink) -> Fragment | None:
    """Return one calibration that is fitted to several outputs of nccl-tests; None after an error.

    ``files`` contains (text, name) of each output.
    """
    outputs = [read_nccl(text, name, sink) for text, name in files]
    known = [timings for timings in outputs if timings is not None]
    if len(known) < len(files) or sink.failed():
        return None
    cluster = _cluster_with_device(files[0], sink)
    if cluster is None:
        return None
    # Any framework's row can start the fit: the links do not depend on the program.
    row = efficiency_for_stack(
        cluster.generation, framework(built_in_backends("framework")[0].name).stack
    )
    found = fit_nccl(known, cluster, row, sink)
    if sink.failed():
        return None
    document: dict[str, Any] = {
        "calibration": 1,
        "written_by": f"parc {__version__}",
        "class": cluster.gpu.generation,  # without a stack: valid for every framework
        "parameters": {
            name: round_to_six_digits(value) for name, value in sorted(found.network.items())
        },
        "collectives": {
            operation: {name: round_to_six_digits(value) for name, value in sorted(terms.items())}
            for operation, terms in sorted(
                calibrated_collective_constants(found.fitted_values).items()
            )
        },
    }
    notes = (
        "save this file and name it in cluster.calibration",
        f"fitted for {cluster.node.name}; shares are relative to its data-sheet rates",
        *(_summarize_timings(timings) for timings in known),
    )
    return Fragment(spec=document, notes=notes)


def _cluster_with_device(file: tuple[str, str], sink: Sink) -> Cluster | None:
    """Return a cluster of two hosts whose GPU is the one that the file names.

    Return None after reporting that the catalog has no node type with this GPU (Q04).
    """
    text, name = file
    device = _DEVICE.search(text)
    named = device[1].strip() if device else "no device"
    node = next((node for start, node in NODES.items() if named.startswith(start)), None)
    if node is None:
        finding = Finding(
            f"{name}: the catalog has no node type with {named[:60]!r}",
            help="use parc calibrate --nccl: its table of runs names the node type",
        )
        line = text.count("\n", 0, device.start()) + 1 if device else 1
        sink.report("Q04", finding, span=Span(name, line, 1))
        return None
    return resolve_cluster(ClusterSpec(node=node, nodes=2), Library(), sink)


def _summarize_timings(timings: CollectiveTimings) -> str:
    """Return a note on one test: its ranks and hosts, latency and bus bandwidth.

    The latency is the median time of small messages, the bandwidth the median of large messages.
    """
    pairs = list(zip(timings.sizes, timings.seconds, strict=True))
    small = [seconds for size, seconds in pairs if size <= SMALL_BYTES] or [timings.seconds[0]]
    large = [pair for pair in pairs if pair[0] >= LARGE_BYTES] or [pairs[-1]]
    rate = median(size * _bus_factor(timings) / seconds for size, seconds in large) / 1e9
    return (
        f"{timings.test}, {timings.ranks} ranks on {timings.hosts} hosts: "
        f"{median(small) * 1e6:.1f} us for small messages, bus {rate:.1f} GB/s for large ones"
    )


def _bus_factor(timings: CollectiveTimings) -> float:
    """Return the bus bandwidth divided by the algorithm bandwidth of a collective.

    The two bandwidths are defined in doc/PERFORMANCE.md of nccl-tests.
    """
    share = (timings.ranks - 1) / timings.ranks
    return {"all_reduce": 2 * share, "send": 1.0}.get(timings.test, share)
