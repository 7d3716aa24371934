"""Numbers in messages: counts with their word, and lists of valid values."""

from __future__ import annotations

import pytest

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.wording import format_count, format_values, singularize


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((), "none"),
        ((4,), "4"),
        ((1, 2, 3, 4), "1, 2, 3, 4"),
        (range(1, 9), "1 to 8"),
        ((1, 2, 4, 8, 16), "1, 2, 4, 8, 16"),
        ((*range(1, 9), 10, 12), "1 to 8, 10, 12"),
        (range(2, 60, 2), "2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, ..., 58"),
    ],
)
def test_all_values_are_listed_or_the_gap_is_shown(values: tuple[int, ...], text: str) -> None:
    assert format_values(values) == text


def test_a_single_thing_has_no_plural() -> None:
    assert [format_count(n, "host") for n in (0, 1, 1024)] == ["0 hosts", "1 host", "1,024 hosts"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 hosts are left out", "1 host is left out"),
        ("4 GPUs are 1 hosts of 4", "4 GPUs are 1 host of 4"),
        ("1 ranks do not fill 2 hosts of 1 GPUs", "1 rank does not fill 2 hosts of 1 GPU"),
        ("1 processes, 1 micro-batches and 1 switches", "1 process, 1 micro-batch and 1 switch"),
        ("pp 1 x vpp 1 stages of tp 1 ranks", "pp 1 x vpp 1 stages of tp 1 ranks"),
        (
            "8.1 GPUs, 11 hosts, 0-1 hosts, 0 to 1 hosts",
            "8.1 GPUs, 11 hosts, 0-1 hosts, 0 to 1 hosts",
        ),
        (
            "tp x cp = 1 ranks, 2 * 1 GPUs, ZeRO 1 ranks",
            "tp x cp = 1 ranks, 2 * 1 GPUs, ZeRO 1 ranks",
        ),
        ("1 hosts-file", "1 hosts-file"),
        ("groups of 1 ranks do not fit 1 hosts", "groups of 1 rank do not fit 1 host"),
    ],
)
def test_counts_of_one_thing_are_singular_in_each_finding(text: str, expected: str) -> None:
    assert singularize(text) == expected
    sink = Sink()
    finding = Finding(text, text, text, f"layout.tp: {text}", (Cause("job", text),))
    sink.report("D01", finding)
    (found,) = sink.diagnostics
    shown = found.finding
    assert {shown.message, shown.label, shown.help, shown.causes[0].text} == {expected}
    assert shown.fix == f"layout.tp: {text}"
