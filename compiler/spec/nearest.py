"""Did you mean: the nearest of a list of names."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 64
"""Longer words are no misspelling of ours, and comparing them is slow."""


def did_you_mean(word: str, names: Iterable[str], *, most: int = 3) -> tuple[str, ...]:
    """At most ``most`` of ``names`` that look like ``word``, the nearest first."""
    from difflib import get_close_matches

    if len(word) > _LONGEST:
        return ()
    folded = {_fold(name): name for name in names}
    return tuple(folded[near] for near in get_close_matches(_fold(word), folded, n=most))


def _fold(name: str) -> str:
    return name.lower().replace("-", "_")
