"""Comparison of versions of frameworks and launchers.

The module imports no other module of PARC, so every table can use it.
"""

from __future__ import annotations

from functools import cache


@cache
def parse_version(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: "0.19.6" becomes (0, 19, 6).

    As texts, versions would compare wrongly: "0.9" is greater than "0.19".
    """
    return tuple(int(part) for part in version.split("."))


def is_in_range(version: str, since: str | None, until: str | None) -> bool:
    """Return True if ``version`` is not before ``since`` and not after ``until``.

    None as ``since`` or ``until`` means that there is no limit on that side.
    """
    number = parse_version(version)
    early = since is not None and number < parse_version(since)
    late = until is not None and number > parse_version(until)
    return not (early or late)
