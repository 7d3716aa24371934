"""Random damage to a text, as editors, pipes and wrong tools cause it."""

from __future__ import annotations

import random

ODD = (
    "\x00", "\t", "\r\n", "é", "\u2028", "😀", "[", "]", "{", "}", '"', "'", "\\", "=", ",", ":",
    "#", "-", "--", "n[1-1000000000]", "[1-99999999999999999999]", "9" * 40, "null", "[]", "{}",
    "true", "1e999", "-1", "GPU0", "$(x)", "${A", "Nodes=", "SwitchName=", "\x1b[4m", "NV99",
)  # fmt: skip
"""Inserted texts: syntax of the formats, ranges too long to expand, numbers too large."""


def mutated(text: str, random_: random.Random) -> str:
    """Return ``text`` after one to four random changes."""
    for _ in range(random_.randint(1, 4)):
        text = random_.choice(CHANGES)(text, random_)
    return text


def _place(text: str, random_: random.Random) -> int:
    return random_.randint(0, len(text))


def _cut(text: str, random_: random.Random) -> str:
    start = _place(text, random_)
    return text[:start] + text[start + random_.randint(1, 40) :]


def _end(text: str, random_: random.Random) -> str:
    return text[: _place(text, random_)]


def _insert(text: str, random_: random.Random) -> str:
    at = _place(text, random_)
    return text[:at] + random_.choice(ODD) + text[at:]


def _replace_word(text: str, random_: random.Random) -> str:
    words = text.split(" ")
    words[random_.randrange(len(words))] = random_.choice(ODD)
    return " ".join(words)


def _swap_lines(text: str, random_: random.Random) -> str:
    lines = text.split("\n")
    one, other = random_.randrange(len(lines)), random_.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return "\n".join(lines)


def _double_line(text: str, random_: random.Random) -> str:
    lines = text.split("\n")
    at = random_.randrange(len(lines))
    return "\n".join([*lines[:at], lines[at], *lines[at:]])


def _digit(text: str, random_: random.Random) -> str:
    digits = [index for index, letter in enumerate(text) if letter.isdigit()]
    if not digits:
        return text
    at = random_.choice(digits)
    return text[:at] + random_.choice("0123456789") + text[at + 1 :]


CHANGES = (_cut, _end, _insert, _replace_word, _swap_lines, _double_line, _digit)
