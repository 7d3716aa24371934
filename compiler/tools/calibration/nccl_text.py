"""The output of nccl-tests: which collective, over which hosts, how long each size took.

Format: https://github.com/NVIDIA/nccl-tests (src/common.cu prints it); GB there are 10^9 bytes,
times are microseconds. Only the time column is read: bus bandwidth follows from it.
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
"""Program of nccl-tests (without ``_perf``) -> what the cost model calls it."""
_PROGRAM = re.compile(r"\b(\w+)_perf\b")
_NAMED = re.compile("|".join(TESTS))
_RANK = re.compile(r"\s*#\s+Rank\s+\d+\s.*?\bon\s+(\S+)\s+device\b")
LEAST_SIZES = 4
"""Message sizes below which latency and bandwidth cannot be told apart."""
TIME_COLUMN = 5
"""After size, count, type, redop and root stands the out-of-place time."""


@dataclass(frozen=True, slots=True)
class CollectiveTimings:
    """One output: seconds by message size."""

    file: str
    test: Test
    hosts: int
    ranks: int
    sizes: tuple[int, ...]
    """Bytes, as nccl-tests counts them: the whole buffer."""
    seconds: tuple[float, ...]


def read_nccl(text: str, file: str, sink: Sink) -> CollectiveTimings | None:
    """What an output of nccl-tests says; Q04 and None where it says too little."""
    test = _test(text, file)
    if test is None:
        finding = Finding(
            f"{file} does not say which collective it measured",
            help=f"known: {', '.join(f'{name}_perf' for name in TESTS)}",
        )
        sink.report("Q04", finding, span=Span(file, 1, 1))
        return None
    ranks = (_RANK.match(line) for line in text.splitlines())
    hosts = Counter(match.group(1) for match in ranks if match)
    if not hosts or len(set(hosts.values())) > 1 or sum(hosts.values()) < 2:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(hosts.items())[:4])
        finding = Finding(
            f"{file}: the ranks are not spread evenly over hosts",
            f"ranks by host: {counts or 'no line `#  Rank`'}",
            help="two ranks or more, the same number on every host",
        )
        sink.report("Q04", finding, span=Span(file, 1, 1))
        return None
    points = [point for line in text.splitlines() if (point := _point(line))]
    if len(points) < LEAST_SIZES:
        finding = Finding(
            f"{file} has {len(points)} timings, {LEAST_SIZES} are needed",
            help="run it with -b 8 -e 8G -f 2: small sizes give latency, large ones bandwidth",
        )
        sink.report("Q04", finding, span=Span(file, 1, 1))
        return None
    sizes, seconds = zip(*points, strict=True)
    return CollectiveTimings(file, test, len(hosts), sum(hosts.values()), sizes, seconds)


def _test(text: str, file: str) -> Test | None:
    """From the line that names the program; older versions have none, so from the file's name."""
    for match in _PROGRAM.finditer(text):
        if match.group(1) in TESTS:
            return TESTS[match.group(1)]
    named = _NAMED.search(file.replace("\\", "/").rpartition("/")[2])
    return None if named is None or _PROGRAM.search(text) else TESTS[named.group()]


def _point(line: str) -> tuple[int, float] | None:
    """(bytes, seconds) of a row; None for every other line."""
    words = line.split()
    if len(words) <= TIME_COLUMN or not words[0].isdigit():
        return None
    try:
        seconds = float(words[TIME_COLUMN]) * 1e-6
    except ValueError:
        return None
    size = int(words[0])
    return (size, seconds) if size > 0 and 0 < seconds < 1e6 else None
