"""The text form of diagnostics for any line, any span and any message."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.diagnostics import Cause, Finding, Sink, Span, SpecPositions
from parc.compiler.diagnostics.render import render
from parc.compiler.diagnostics.render.text import (
    MAX_COLUMNS,
    cut_excerpt,
    display_width,
    make_printable,
)
from tests.property_settings import examples

TEXT = st.text(max_size=300)


@examples(75)
@given(line=TEXT, column=st.integers(0, 320), length=st.integers(0, 320))
def test_the_marker_is_within_the_printed_line(line: str, column: int, length: int) -> None:
    shown, offset, run = cut_excerpt(line, column, length)
    assert display_width(shown) <= MAX_COLUMNS
    assert 0 <= offset <= display_width(shown)
    assert run >= 1
    assert offset + run <= max(display_width(shown), offset + 1)


@examples(40)
@given(line=TEXT, message=TEXT, label=TEXT, column=st.integers(1, 320))
def test_control_characters_are_never_printed(
    line: str, message: str, label: str, column: int
) -> None:
    spans = {"layout.tp": Span("a.yaml", 1, column, 3), "model": Span("a.yaml", 1, 1)}
    sink = Sink(SpecPositions("a.yaml", spans, {}, {"a.yaml": (line,)}))
    finding = Finding(message, label=label, help=label, fix=label, causes=(Cause("model", label),))
    sink.report("D01", finding, at="layout.tp")
    text = render([sink])
    text.encode()
    assert text.splitlines()[0].startswith("error[PARC-D01]: ")
    assert not [
        sign for sign in text if unicodedata.category(sign) in ("Cc", "Cs") and sign != "\n"
    ]
    for style in ("json", "sarif", "github"):
        render([sink], style).encode()


@given(text=TEXT)
def test_printable_text_is_one_line_and_plain_text_is_unchanged(text: str) -> None:
    shown = make_printable(text)
    assert len(shown.splitlines()) <= 1
    if text.isascii() and text.isprintable():
        assert shown == text
