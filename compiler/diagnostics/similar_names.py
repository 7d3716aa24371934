"""Search for similar names, for hints such as "did you mean"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MAX_LENGTH = 64
"""Maximum length of a compared word in characters. Longer words are hardly misspelled names, and
comparing them is slow."""
_WORDS = re.compile(r"[a-z0-9]+")
_CUTOFF = 0.6
"""Smallest similarity (ratio of difflib) of a suggested name; the default of difflib."""


def did_you_mean(word: str, names: Iterable[str], *, cutoff: float = _CUTOFF) -> tuple[str, ...]:
    """Return at most three of ``names`` that are similar to ``word``, the most similar first.

    ``cutoff`` is the smallest similarity, from 0 to 1 (equal).
    """
    if len(word) > _MAX_LENGTH:
        return ()
    folded = {_fold_case_and_dashes(name): name for name in names}
    near = close_matches(_fold_case_and_dashes(word), folded, cutoff=cutoff)
    return tuple(folded[name] for name in near)


def close_matches(
    word: str, names: Iterable[str], most: int = 3, cutoff: float = _CUTOFF
) -> list[str]:
    """Return the result of ``difflib.get_close_matches``, which takes far longer.

    ``difflib`` compares ``word`` with each name in full. Here, the names with the highest upper
    bounds of the similarity are compared first, until no other name can be among the best.
    """
    from difflib import SequenceMatcher

    matcher = SequenceMatcher()
    matcher.set_seq2(word)
    bounds: list[tuple[float, str]] = []
    for name in names:
        matcher.set_seq1(name)
        if matcher.real_quick_ratio() >= cutoff and (bound := matcher.quick_ratio()) >= cutoff:
            bounds.append((bound, name))
    found: list[tuple[float, str]] = []
    for bound, name in sorted(bounds, reverse=True):
        # With an equal similarity, the name decides the order.
        if len(found) == most and bound < found[-1][0]:
            break
        matcher.set_seq1(name)
        ratio = matcher.ratio()
        if ratio >= cutoff:
            found = sorted([*found, (ratio, name)], reverse=True)[:most]
    return [name for _, name in found]


def suggest_entries(word: str, names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return (at most three ``names`` that ``word`` may mean, the only name that it can mean).

    The second value is empty if ``word`` may mean several entries or something else. Names with the
    parts of ``word``, such as h200-sxm-141gb for h200, precede names with a similar spelling.
    """
    word = word[:_MAX_LENGTH].lower()
    if word in names:
        return (word,), word
    parts = set(_WORDS.findall(word))
    longer = [name for name in names if parts and parts <= set(_WORDS.findall(name))]
    longer.sort(key=len)
    near = close_matches(word, names, 3, 0.5)
    if len(longer) == 1 and any(character.isdigit() for character in word):
        return (longer[0],), longer[0]
    misspelled = next((name for name in near if _is_misspelling(word, name)), "")
    return tuple(dict.fromkeys((*longer, *near)))[:3], "" if longer else misspelled


def _is_misspelling(word: str, name: str) -> bool:
    """Return True if ``word`` differs from ``name`` only in separators, or in words of letters.

    Words with digits must be equal: gb200 and b200, or gemma-7b and gemma-3-27b, are different
    entries.
    """
    from difflib import SequenceMatcher

    one, other = _WORDS.findall(word), _WORDS.findall(name)
    if "".join(one) == "".join(other):
        return True
    return len(one) == len(other) and all(
        a == b or (a.isalpha() and b.isalpha() and SequenceMatcher(None, a, b).ratio() > _CUTOFF)
        for a, b in zip(one, other, strict=True)
    )


def _fold_case_and_dashes(name: str) -> str:
    return name.lower().replace("-", "_")
