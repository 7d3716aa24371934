"""Search for similar names, for hints such as "did you mean"."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_LENGTH = 64
"""Maximum length of a compared word in characters. Longer words are hardly misspelled names, and
comparing them is slow."""


def did_you_mean(word: str, names: Iterable[str], *, most: int = 3) -> tuple[str, ...]:
    """Return at most ``most`` of ``names`` that are similar to ``word``, the most similar first."""
    from difflib import get_close_matches

    if len(word) > _MAX_LENGTH:
        return ()
    folded = {_ignoring_case_and_dashes(name): name for name in names}
    return tuple(
        folded[near] for near in get_close_matches(_ignoring_case_and_dashes(word), folded, n=most)
    )


def _ignoring_case_and_dashes(name: str) -> str:
    return name.lower().replace("-", "_")
