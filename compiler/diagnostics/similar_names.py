"""Search for similar names, for hints such as "did you mean"."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_LENGTH = 64
"""Maximum length of a compared word in characters. Longer words are hardly misspelled names, and
comparing them is slow."""


_CUTOFF = 0.6
"""Smallest similarity (ratio of difflib) of a suggested name; the default of difflib."""


def did_you_mean(
    word: str, names: Iterable[str], *, most: int = 3, cutoff: float = _CUTOFF
) -> tuple[str, ...]:
    """Return at most ``most`` of ``names`` that are similar to ``word``, the most similar first.

    ``cutoff`` is the smallest similarity, from 0 to 1 (equal).
    """
    if len(word) > _MAX_LENGTH:
        return ()
    folded = {_fold_case_and_dashes(name): name for name in names}
    near = close_matches(_fold_case_and_dashes(word), folded, most, cutoff)
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


def has_same_numbers(word: str, name: str) -> bool:
    """Return True if both names contain the same numbers.

    Otherwise, ``word`` cannot be a misspelling of ``name``: gemma-7b and gemma-3-27b are different
    models, but llama3-70b can mean llama-3-70b.
    """
    import re

    return re.findall(r"[0-9]+", word[:_MAX_LENGTH]) == re.findall(r"[0-9]+", name)


def _fold_case_and_dashes(name: str) -> str:
    return name.lower().replace("-", "_")
