"""Comparison of versions of a framework or launcher; without imports, so any table can use it."""

from __future__ import annotations


def parse_version(version: str) -> tuple[int, ...]:
    """Return ``0.19.6`` as (0, 19, 6): as text, 0.9 would compare greater than 0.19."""
    return tuple(int(part) for part in version.split("."))


def is_in_range(version: str, since: str | None, until: str | None) -> bool:
    """Return True if ``since`` <= ``version`` <= ``until``; None leaves that end open."""
    number = parse_version(version)
    early = since is not None and number < parse_version(since)
    late = until is not None and number > parse_version(until)
    return not (early or late)
