"""Similar names, for "did you mean" hints."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 64
"""Longest word to compare. Longer words cannot be misspelled names, and comparing them is slow."""


def did_you_mean(word: str, names: Iterable[str], *, most: int = 3) -> tuple[str, ...]:
    """Return at most ``most`` of ``names`` that are similar to ``word``, the most similar first."""
    from difflib import get_close_matches

    if len(word) > _LONGEST:
        return ()
    folded = {_fold(name): name for name in names}
    return tuple(folded[near] for near in get_close_matches(_fold(word), folded, n=most))


def _fold(name: str) -> str:
    return name.lower().replace("-", "_")
