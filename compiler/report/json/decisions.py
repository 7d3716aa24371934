"""Decisions of a lock file, compared with those of a new plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


class LockUnreadable(ValueError):
    """The lock file cannot be used; the message gives the reason."""


def decisions(text: str) -> dict[str, Any]:
    """Return the decisions in the text of a parc.lock.

    Raises:
        LockUnreadable: the text is not JSON or has no decisions.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LockUnreadable(f"it is not JSON: {error}") from None
    found = document.get("decisions") if isinstance(document, dict) else None
    if not isinstance(found, dict):
        raise LockUnreadable("it has no decisions")
    return found


def changed_decisions(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, change) of each leaf that differs, such as (``layout.tp``, ``8 -> 4``)."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            below = f"{path}.{key}" if path else key
            yield from changed_decisions(old.get(key), new.get(key), below)
    elif old != new:
        yield path, _difference(old, new)


def _difference(old: Any, new: Any) -> str:
    """Return both values; for lists of equal length only a count and the first difference."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(before, after) for before, after in zip(old, new, strict=True) if before != after]
        first = f"{_short(pairs[0][0])} -> {_short(pairs[0][1])}"
        return f"{len(pairs)} of {len(old)} differ, the first: {first}"
    return f"{_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}..."
