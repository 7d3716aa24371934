"""The exact text form of diagnostics."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from parc.compiler.diagnostics import Cause, Finding, Sink, Span, SpecPositions
from parc.compiler.diagnostics.render import render
from parc.compiler.diagnostics.render.text import MAX_COLUMNS, cut_excerpt, display_width

HEADS = Finding(
    "64 attention heads cannot be split over tp=6",
    label="64 % 6 = 4, must be 0",
    help="legal tp within one NVLink domain of 8: 1, 2, 4, 8",
    fix="layout.tp: 8   (keeps 48 GPUs: pp 2, dp 3)",
    causes=(Cause("model.heads", "heads come from here"),),
    targets=("megatron", "vllm", "torchtitan"),
)


def sink_of(lines: dict[int, str], **spans: Span) -> Sink:
    """Return a sink over ``spec.yaml`` with text in ``lines``; spans by path, with ``__`` for a
    dot.
    """
    text = tuple(lines.get(number, "") for number in range(1, max(lines) + 1))
    values = {path.replace("__", "."): span for path, span in spans.items()}
    return Sink(SpecPositions("spec.yaml", values, {}, {"spec.yaml": text}))


def test_a_diagnostic_has_message_position_source_lines_formula_help_and_fix() -> None:
    sink = sink_of(
        {4: "  heads: 64", 12: "  tp: 6"},
        model__heads=Span("spec.yaml", 4, 10, 2),
        layout__tp=Span("spec.yaml", 12, 7, 1),
    )
    sink.report("D01", HEADS, at="layout.tp")
    assert render([sink]) == (
        "error[PARC-D01]: 64 attention heads cannot be split over tp=6\n"
        "  --> spec.yaml:12:7            layout.tp\n"
        "   |\n"
        " 4 |   heads: 64\n"
        "   |          -- heads come from here\n"
        "12 |   tp: 6\n"
        "   |       ^ 64 % 6 = 4, must be 0           (megatron, vllm, torchtitan)\n"
        "   = help: legal tp within one NVLink domain of 8: 1, 2, 4, 8\n"
        "   = fix:  layout.tp: 8   (keeps 48 GPUs: pp 2, dp 3)\n"
        "   = more: parc explain PARC-D01\n"
        "\n"
        "1 error\n"
    )


def test_lines_far_apart_have_dots_between_them() -> None:
    sink = sink_of(
        {4: "  heads: 64", 212: "  tp: 6"},
        model__heads=Span("spec.yaml", 4, 10, 2),
        layout__tp=Span("spec.yaml", 212, 7, 1),
    )
    sink.report("D01", HEADS, at="layout.tp")
    lines = render([sink]).splitlines()
    assert lines[3:6] == [
        "  4 |   heads: 64",
        "    |          -- heads come from here",
        "...",
    ]
    assert lines[6] == "212 |   tp: 6"


def test_two_spans_of_one_line_print_the_line_once() -> None:
    sink = sink_of(
        {1: "{heads: 64, tp: 6}"},
        model__heads=Span("spec.yaml", 1, 9, 2),
        layout__tp=Span("spec.yaml", 1, 17, 1),
    )
    sink.report("D01", HEADS, at="layout.tp")
    text = render([sink])
    assert text.count("{heads: 64, tp: 6}") == 1
    assert "  |         -- heads come from here\n  |                 ^ 64 % 6" in text


def test_each_marker_is_under_its_word_if_a_long_line_is_cut() -> None:
    line = f"heads: 64, {'x' * 80}, tp: 6, {'y' * 80}"
    sink = sink_of(
        {1: line},
        model__heads=Span("spec.yaml", 1, 8, 2),
        layout__tp=Span("spec.yaml", 1, line.index("6, y") + 1, 1),
    )
    sink.report("D01", HEADS, at="layout.tp")
    lines = [one.partition("| ")[2] for one in render([sink]).splitlines() if "| " in one]
    marks = {after.lstrip()[0]: after for after in lines if after.lstrip()[:1] in ("^", "-")}
    words = {}
    for before, after in pairwise(lines):
        if after in marks.values():
            start = len(after) - len(after.lstrip())
            words[after[start]] = before[start : start + len(after.split()[0])]
    assert words == {"-": "64", "^": "6"}


def test_a_cause_in_another_file_has_its_own_listing() -> None:
    lines = {"spec.yaml": ("tp: 6",), "--set": ("model.heads=64",)}
    values = {"tp": Span("spec.yaml", 1, 5), "model.heads": Span("--set", 1, 13, 2)}
    sink = Sink(SpecPositions("spec.yaml", values, {}, lines))
    sink.report("D01", HEADS, at="tp")
    text = render([sink])
    listing = " ::: --set:1:13\n1 | model.heads=64\n  |             -- heads come from here\n"
    assert listing in text


def test_a_cause_without_a_position_becomes_a_note() -> None:
    sink = sink_of({1: "tp: 6"}, layout__tp=Span("spec.yaml", 1, 5))
    finding = replace(HEADS, causes=(Cause("model.heads", "the model has 64 heads"),))
    sink.report("D01", finding, at="layout.tp")
    assert "  = note: the model has 64 heads\n" in render([sink])


def test_a_cause_that_only_points_to_a_line_is_left_out_without_this_line() -> None:
    sink = sink_of({1: "tp: 6"}, layout__tp=Span("spec.yaml", 1, 5))
    sink.report("D01", HEADS, at="layout.tp")
    assert "heads come from here" not in render([sink])


def test_a_cause_points_to_the_value_that_determines_it() -> None:
    node = Span("spec.yaml", 1, 7)
    sink = sink_of({1: "node: dgx-a100"}, cluster__node=node)
    cause = Cause("cluster.gpu", "the GPU is set here")
    sink.report("D01", replace(HEADS, causes=(cause,)), at="layout.tp")
    (found,) = sink.diagnostics
    assert found.finding.causes == (replace(cause, span=node),)


@pytest.mark.parametrize(
    ("path", "text", "note"),
    [
        ("the model", "the model has 64 heads", "the model has 64 heads"),
        ("layout.dp", "dp 256", "dp 256"),
        ("the version (--version)", "version 0.19", "version 0.19"),
        ("cluster", "4 hosts x 8 GPUs", "cluster: 4 hosts x 8 GPUs"),
        ("layout.tp", "http", "layout.tp: http"),
    ],
)
def test_a_note_names_its_field_once(path: str, text: str, note: str) -> None:
    sink = Sink(SpecPositions("spec.yaml"))
    sink.report("D01", Finding("no layout", causes=(Cause(path, text),)))
    assert f"  = note: {note}\n" in render([sink])


def test_a_line_whose_end_fits_is_cut_only_at_its_beginning() -> None:
    line = "x" * 150 + " --pp 5 --bf16"
    text, offset, length = cut_excerpt(line, line.index("--pp") + 1, 4)
    assert text.startswith("...")
    assert text.endswith("--pp 5 --bf16")
    assert text[offset : offset + length] == "--pp"
    assert cut_excerpt(line + "y" * 2000, line.index("--pp") + 1, 4)[0].endswith("...")


def test_without_a_span_only_the_file_is_named() -> None:
    sink = Sink(SpecPositions("spec.yaml"))
    sink.report("D01", Finding("nothing fits", label="2 > 1"))
    assert render([sink]) == (
        "error[PARC-D01]: nothing fits\n"
        " --> spec.yaml\n"
        "  = note: 2 > 1\n"
        "  = more: parc explain PARC-D01\n"
        "\n1 error\n"
    )


def caret_under(line: str, column: int, length: int = 1) -> str:
    """Return the columns of the rendered line that are above the carets."""
    sink = sink_of({1: line}, layout__tp=Span("spec.yaml", 1, column, length))
    sink.report("D01", "wrong", at="layout.tp")
    rows = render([sink]).splitlines()
    source, marker = rows[3], rows[4]
    start, run = marker.index("^"), marker.count("^")
    shown, at = "", 0
    for character in source:
        if start <= at < start + run:
            shown += character
        at += display_width(character)
    return shown


def test_the_caret_is_under_the_value_after_tabs_and_wide_and_combining_characters() -> None:
    assert caret_under("\ttp: 6", 6) == "6"
    assert caret_under("名前: x, tp: 77", 12, 2) == "77"
    assert caret_under("e\u0301te\u0301: 5", 8) == "5"
    assert caret_under("tp: 漢字", 5, 2) == "漢字"


def test_a_long_line_is_cut_around_its_span() -> None:
    line = "hosts: [" + "r01n01, " * 500 + "HERE" + ", r02n02" * 500 + "]"
    assert caret_under(line, line.index("HERE") + 1, 4) == "HERE"
    sink = sink_of({1: line}, layout__tp=Span("spec.yaml", 1, 2000, 4))
    sink.report("D01", "wrong", at="layout.tp")
    assert max(display_width(row) for row in render([sink]).splitlines()) <= MAX_COLUMNS + 4


def test_escape_sequences_of_a_spec_do_not_reach_the_terminal() -> None:
    sink = sink_of({1: "name: \x1b[31mred\u202e"}, name=Span("spec.yaml", 1, 7, 9))
    sink.report("D01", Finding("bad \x1b]0;title\x07 name\nerror: forged"), at="name")
    text = render([sink])
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "\nerror: forged" not in text


def test_a_span_outside_of_the_file_prints_no_source_line() -> None:
    sink = sink_of({1: "tp: 6"}, layout__tp=Span("spec.yaml", 9, 1))
    sink.report("D01", "wrong", at="layout.tp")
    assert " --> spec.yaml:9:1" in render([sink])


def test_color_only_adds_escape_sequences() -> None:
    import click

    sink = sink_of({1: "tp: 6"}, layout__tp=Span("spec.yaml", 1, 5))
    sink.report("D01", HEADS, at="layout.tp")
    colored = render([sink], color=True)
    assert colored != render([sink])
    assert click.unstyle(colored) == render([sink])


def test_the_summary_counts_by_severity() -> None:
    sink = Sink(SpecPositions("spec.yaml"))
    assert render([sink]) == ""
    sink.report("D01", "one")
    sink.report("D01", "two")
    assert render([sink]).endswith("\n\n2 errors\n")
