"""Versions of a target, and ranges of them."""

from __future__ import annotations


def as_number(version: str) -> tuple[int, ...]:
    """``0.19.6`` -> (0, 19, 6), which compares as versions do."""
    return tuple(int(part) for part in version.split("."))


def knows(version: str, since: str | None, until: str | None) -> bool:
    """Whether ``version`` lies between two others; None leaves an end open."""
    number = as_number(version)
    early = since is not None and number < as_number(since)
    late = until is not None and number > as_number(until)
    return not (early or late)
