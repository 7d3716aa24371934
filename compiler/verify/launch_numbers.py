"""Compare host files and numbers of launch scripts with the rank map."""

from __future__ import annotations

import re

from parc.backends.verifier import JobShape, LauncherNumber
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.read_emitted import read_lines, read_numbers
from parc.compiler.verify.shell_lines import without_trailing_comments

SHOWN = 4
"""Maximum number of differing hosts that a finding names."""


def verify_host_file(file: str, text: str, hosts: list[str], sink: Sink) -> None:
    """Report lines of a host file whose host differs from that in the rank map (A02).

    ``hosts`` contains the host of each node rank in the rank map. The host of node rank n must be
    on line n + 1.
    """
    lines = read_lines(text)
    if lines == hosts:
        return
    if len(lines) != len(hosts):
        message = f"{file} has {len(lines)} hosts, but the rank map has {len(hosts)}"
        sink.report("A02", message, span=Span(file, min(len(lines), len(hosts)) + 1, 1))
        return
    wrong = [n for n, pair in enumerate(zip(lines, hosts, strict=True)) if pair[0] != pair[1]]
    message = f"{len(wrong)} of {len(hosts)} node ranks have another host in {file}"
    first = [f"node rank {n}: {lines[n]!r:.60}, must be {hosts[n]!r:.60}" for n in wrong[:SHOWN]]
    sink.report("A02", Finding(message, "; ".join(first)), span=Span(file, wrong[0] + 1, 1))


def verify_numbers(
    file: str, text: str, numbers: tuple[LauncherNumber, ...], job: JobShape, sink: Sink
) -> None:
    """Report each number in ``file`` that is missing or contradicts the rank map (A07).

    ``numbers`` describes the numbers that the file must contain. If a number occurs on several
    lines, only the first wrong line is reported.
    """
    text = without_trailing_comments(text)
    for one in numbers:
        found, expected = read_numbers(text, one.pattern), job.counts[one.count]
        wrong = [(line, f"is {number}") for line, number in found if number != expected]
        # One finding per number: the same wrong value often occurs on many lines.
        for line, state in wrong[:1] if found else [(1, "is missing")]:
            message = f"{one.name} {state} in {file}, but the rank map has {expected}"
            sink.report("A07", message, span=Span(file, line, 1))


def verify_rendezvous(file: str, text: str, hosts: list[str], sink: Sink) -> None:
    """Report that the rendezvous host of a launch script is not the host of rank 0 (A07).

    The script stores the rendezvous host in the shell variable ``first``.
    """
    text = without_trailing_comments(text)
    found = re.search(r"""^[ \t]*first=(["']?)([^"'\n]*?)\1[ \t]*$""", text, re.MULTILINE)
    if found and found[2] != hosts[0]:
        message = (
            f"the rendezvous in {file} is on {found[2]!r:.60}, but rank 0 is on {hosts[0]!r:.60}"
        )
        sink.report("A07", message, span=Span(file, text.count("\n", 0, found.start()) + 1, 1))
