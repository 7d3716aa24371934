"""Reader of the output of nccl-tests: the collective, its hosts, and the time per message size.

Format: https://github.com/NVIDIA/nccl-tests (printed by src/common.cu); times are in microseconds.
Only the time column is read, because the bus bandwidth follows from it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from parc.compiler.cost.kernels.collective_time import Operation
from parc.compiler.diagnostics import Finding, Sink, Span

Test = Operation | Literal["send"]
TESTS: dict[str, Test] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send",
}
"""Program of nccl-tests (without ``_perf``) -> name in the cost model."""
_PROGRAM = re.compile(r"\b(\w+)_perf\b")
_NAMED = re.compile("|".join(TESTS))
_RANK = re.compile(r"\s*#\s+Rank\s+\d+\s.*?\bon\s+(\S+)\s+device\b")
MIN_SIZES = 4
"""Minimum number of message sizes; with fewer, latency and bandwidth cannot be separated."""
TIME_COLUMN = 5
"""Index of the out-of-place time, after size, count, type, redop and root."""


@dataclass(frozen=True, slots=True)
class CollectiveTimings:
    """Output of nccl-tests: seconds per message size."""

    file: str
    test: Test
    hosts: int
    ranks: int
    sizes: tuple[int, ...]
    """Bytes of the whole buffer, as nccl-tests counts them."""
    seconds: tuple[float, ...]


def read_nccl(text: str, file: str, sink: Sink) -> CollectiveTimings | None:
    """Return the timings of an output of nccl-tests; None after Q04 if it is incomplete."""
    test = _test(text, file)
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
            f"ranks per host: {counts or 'no line `#  Rank`'}",
            help="use at least two ranks, equally many per host",
        )
        sink.report("Q04", finding, span=Span(file, 1, 1))
        return None
    points = [point for line in text.splitlines() if (point := _point(line))]
    if len(points) < MIN_SIZES:
        finding = Finding(
            f"{file} has {len(points)} timings, at least {MIN_SIZES} are required",
            help="run it with -b 8 -e 8G -f 2: small sizes show latency, large sizes bandwidth",
        )
        sink.report("Q04", finding, span=Span(file, 1, 1))
        return None
    sizes, seconds = zip(*points, strict=True)
    return CollectiveTimings(file, test, len(hosts), sum(hosts.values()), sizes, seconds)


def _test(text: str, file: str) -> Test | None:
    """Return the collective, from the line with the program name or else from the file name.

    Older versions of nccl-tests do not print the program name.
    """
    for match in _PROGRAM.finditer(text):
        if match.group(1) in TESTS:
            return TESTS[match.group(1)]
    named = _NAMED.search(file.replace("\\", "/").rpartition("/")[2])
    return None if named is None or _PROGRAM.search(text) else TESTS[named.group()]


def _point(line: str) -> tuple[int, float] | None:
    """Return (bytes, seconds) of a result line; None for any other line."""
    words = line.split()
    if len(words) <= TIME_COLUMN or not words[0].isdigit():
        return None
    try:
        seconds = float(words[TIME_COLUMN]) * 1e-6
    except ValueError:
        return None
    size = int(words[0])
    return (size, seconds) if size > 0 and 0 < seconds < 1e6 else None
