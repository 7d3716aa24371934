"""Parser and writer of Megatron's pipeline layout string: ``Et*3|(tt|)*29,m|L``.

``E`` embedding, ``t`` decoder layer, ``m`` multi-token-prediction layer, ``L`` loss; ``|`` ends a
stage, ``x*n`` and ``(..)*n`` repeat (not nested), commas are cosmetic. Stage ``k`` is chunk
``k // pp`` of pipeline rank ``k % pp``.
Source: megatron/core/transformer/pipeline_parallel_layer_layout.py, ``parse_str_to_list``.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import groupby
from typing import Any

from parc.compiler.ir.frozen import frozen

MOST_LETTERS = 65_536
"""Maximum number of letters in an expanded layout string; a longer one is taken for a typo."""


class LayoutStringError(ValueError):
    """Layout string that Megatron rejects or interprets in an unexpected way.

    ``at`` is the 0-based offset of the error in the text.
    """

    def __init__(self, message: str, at: int) -> None:
        """Store the message, and the offset of the error as ``at``."""
        super().__init__(message)
        self.at = at


@frozen
class Stage:
    """Contents of a pipeline stage: embedding (E), decoder layers (t), MTP layers (m), loss (L)."""

    embedding: bool
    layers: int
    mtp_layers: int
    loss: bool


def parse_layout_string(text: str) -> tuple[Stage, ...]:
    """Return the stages that the layout string ``text`` describes.

    Raises:
        LayoutStringError: ``text`` is not a valid layout.
    """
    flat = _expand_repeats(text)
    stages = flat.split("|")
    if not flat.startswith("E"):
        raise LayoutStringError("the first stage must start with the embedding, E", 0)
    if not flat.endswith("L"):
        raise LayoutStringError("the last stage must end with the loss, L", max(len(text) - 1, 0))
    for letter, name in (("E", "embedding"), ("L", "loss")):
        if flat.count(letter) != 1:
            at = text.find(letter, text.find(letter) + 1)
            raise LayoutStringError(f"{letter} ({name}) must occur exactly once", max(at, 0))
    # MTP layers use the output of the last decoder layer.
    if "t" in flat[flat.find("m") :] and "m" in flat:
        at = text.rfind("t")
        raise LayoutStringError("decoder layers (t) must precede the MTP layers (m)", at)
    return tuple(Stage("E" in s, s.count("t"), s.count("m"), "L" in s) for s in stages)


def _expand_repeats(text: str) -> str:
    """Return the layout string ``text`` with all repeats written out, and without commas."""
    total, at, flat = 0, 0, ""
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise LayoutStringError(_explain_syntax_error(text, at), at)
        piece = match["letter"] or match["group"] or ""
        if match["group"] is not None:
            piece = _expand_group(piece, at + 1)
        times = int(match["times"] or match["again"] or 1)
        total += len(piece) * times
        # The length is checked before the text is repeated, so that t*99999 of t*99999 cannot
        # exhaust memory.
        if times == 0 or total > MOST_LETTERS:
            why = "a repeat of 0" if times == 0 else f"a layout of more than {MOST_LETTERS} letters"
            raise LayoutStringError(f"{why} is not valid", at)
        flat += piece * times
        at = match.end()
    return flat


_TOKEN = re.compile(
    r"\((?P<group>[^()]+)\)\*(?P<times>\d{1,5})|(?P<letter>[EtmL|])(?:\*(?P<again>\d{1,5}))?|,"
)
_INNER = re.compile(r"(?P<letter>[EtmL|])(?:\*(?P<times>\d{1,5}))?|,")


def _expand_group(text: str, start: int) -> str:
    """Return the text inside parentheses with its repeats written out.

    ``start`` is the offset of this text in the layout string.
    """
    at, flat = 0, ""
    while at < len(text):
        match = _INNER.match(text, at)
        if match is None:
            raise LayoutStringError(_explain_syntax_error(text, at), start + at)
        flat += (match["letter"] or "") * min(int(match["times"] or 1), MOST_LETTERS)
        at = match.end()
    return flat


def _explain_syntax_error(text: str, at: int) -> str:
    """Return why the layout string ``text`` is invalid at the offset ``at``."""
    char = text[at]
    if char == "(":
        return "a group needs the form (..)*n and may not be nested"
    if char == "*":
        return "a repeat * requires a letter or a group before it and a number after it"
    return f"{char!r} is not one of E t m L | ( ) * ,"


def format_layout_string(stages: tuple[Stage, ...]) -> str:
    """Return a short layout string, with repeats, that describes ``stages``.

    This function is the inverse of ``parse_layout_string``.
    """
    words = [_format_stage(stage) for stage in stages[:-1]]
    text = ""
    for word, run in groupby(words):
        times = len(list(run))
        comma = "," if text.endswith(tuple("0123456789")) else ""
        text += comma + (f"{word}|" if times == 1 else f"({word}|)*{times}")
    comma = "," if text.endswith(tuple("0123456789")) else ""
    return text + comma + _format_stage(stages[-1])


def _format_stage(stage: Stage) -> str:
    """Return the part of a layout string that describes ``stage``, without the bar at the end."""
    word = "E" if stage.embedding else ""
    for letter, count in (("t", stage.layers), ("m", stage.mtp_layers)):
        word += letter * count if count <= 2 else f"{letter}*{count}"
    if stage.loss:
        word += ",L" if word[-1:].isdigit() else "L"
    return word


def add_implied_vpp(layout: dict[str, Any]) -> dict[str, Any]:
    """Add the virtual pipeline size that the layout string implies, and return ``layout``."""
    text = layout.get("pipeline_layout")
    if text is None or "vpp" in layout:
        return layout
    with suppress(LayoutStringError):
        stages, pp = len(parse_layout_string(text)), layout.get("pp", 1)
        if pp > 0 and stages % pp == 0:
            layout["vpp"] = stages // pp
    return layout
