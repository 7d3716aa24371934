"""Megatron's pipeline layout string: ``Et*3|(tt|)*29,m|L``.

``E`` embedding, ``t`` decoder layer, ``m`` multi-token-prediction layer, ``L`` loss; ``|`` ends a
stage, ``x*n`` and ``(..)*n`` repeat (not nested), commas are cosmetic. Stage ``k`` is chunk
``k // pp`` of pipeline rank ``k % pp``.
Source: megatron/core/transformer/pipeline_parallel_layer_layout.py, ``parse_str_to_list``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

MOST_STAGES = 65_536
"""Longest layout that is unrolled; a longer one is a typing mistake."""


class LayoutStringError(ValueError):
    """A layout that Megatron would refuse, or would read in another way than it looks.

    ``at`` is the 0-based offset of the culprit in the text.
    """

    def __init__(self, message: str, at: int) -> None:
        """``message`` says what is wrong, without the position."""
        super().__init__(message)
        self.at = at


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage of the string holds, in this order: E, t, m, L."""

    embedding: bool
    layers: int
    mtp_layers: int
    loss: bool


def parse(text: str) -> tuple[Stage, ...]:
    """The stages of ``text``; LayoutStringError where it is not a layout."""
    flat = _unroll(text)
    stages = flat.split("|")
    if not flat.startswith("E"):
        raise LayoutStringError("the first stage must start with the embedding, E", 0)
    if not flat.endswith("L"):
        raise LayoutStringError("the last stage must end with the loss, L", max(len(text) - 1, 0))
    for letter, name in (("E", "embedding"), ("L", "loss")):
        if flat.count(letter) != 1:
            at = text.find(letter, text.find(letter) + 1)
            raise LayoutStringError(f"{letter} ({name}) must stand once", max(at, 0))
    if "t" in flat[flat.find("m") :] and "m" in flat:
        at = text.rfind("t")
        raise LayoutStringError("decoder layers (t) must stand before the MTP layers (m)", at)
    return tuple(Stage("E" in s, s.count("t"), s.count("m"), "L" in s) for s in stages)


def _unroll(text: str) -> str:
    """Every repeat written out; first the groups, then single letters, as Megatron does."""
    total, at, flat = 0, 0, ""
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise LayoutStringError(_complaint(text, at), at)
        piece = match["letter"] or match["group"] or ""
        if match["group"] is not None:
            piece = _unroll_group(piece, at + 1)
        times = int(match["times"] or match["again"] or 1)
        total += len(piece) * times
        if times == 0 or total > MOST_STAGES:
            why = "a repeat of 0" if times == 0 else f"more than {MOST_STAGES} letters"
            raise LayoutStringError(f"{why} is no layout", at)
        flat += piece * times
        at = match.end()
    return flat


_TOKEN = re.compile(
    r"\((?P<group>[^()]+)\)\*(?P<times>\d{1,5})|(?P<letter>[EtmL|])(?:\*(?P<again>\d{1,5}))?|,"
)
_INNER = re.compile(r"(?P<letter>[EtmL|])(?:\*(?P<times>\d{1,5}))?|,")


def _unroll_group(text: str, start: int) -> str:
    """The inside of one pair of parentheses; ``start`` is its offset in the whole."""
    at, flat = 0, ""
    while at < len(text):
        match = _INNER.match(text, at)
        if match is None:
            raise LayoutStringError(_complaint(text, at), start + at)
        flat += (match["letter"] or "") * min(int(match["times"] or 1), MOST_STAGES)
        at = match.end()
    return flat


def _complaint(text: str, at: int) -> str:
    """Why nothing that starts at ``at`` can be read."""
    char = text[at]
    if char == "(":
        return "a group needs the form (..)*n and may not be nested"
    if char == "*":
        return "a repeat * needs a letter or a group before it and a number after it"
    return f"{char!r} is not one of E t m L | ( ) * ,"


def spell(stages: tuple[Stage, ...]) -> str:
    """The shortest spelling that this grammar offers; ``parse`` gives ``stages`` back."""
    words = [_word(stage) for stage in stages[:-1]]
    text = ""
    for word, run in groupby(words):
        times = len(list(run))
        comma = "," if text.endswith(tuple("0123456789")) else ""
        text += comma + (f"{word}|" if times == 1 else f"({word}|)*{times}")
    comma = "," if text.endswith(tuple("0123456789")) else ""
    return text + comma + _word(stages[-1])


def _word(stage: Stage) -> str:
    """One stage without its bar."""
    word = "E" if stage.embedding else ""
    for letter, count in (("t", stage.layers), ("m", stage.mtp_layers)):
        word += letter * count if count <= 2 else f"{letter}*{count}"
    if stage.loss:
        word += ",L" if word[-1:].isdigit() else "L"
    return word
