"""Values of a diff as text, with units; long texts start shortly before their first difference."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from parc.compiler.report.diff.plan_fields import FieldChange
from parc.compiler.report.formatting import (
    format_duration,
    format_gib,
    format_percent,
    format_quantity,
    format_seconds,
    format_without_exponent,
)

MAX_CELL = 60
CONTEXT = 16
"""Number of characters that are shown before the first difference of two long texts."""
FORMATS: tuple[tuple[re.Pattern[str], Callable[[float], str]], ...] = (
    (re.compile("_bytes$"), format_gib),
    (re.compile("^wall_seconds$"), format_duration),
    (re.compile(r"(?:^|[._])seconds$"), format_seconds),
    (re.compile(r"^goals\.[a-z0-9]+\.(?:p[0-9]+|mean)$"), format_seconds),
    (re.compile("^(?:mfu|effective_share)$"), format_percent),
    (re.compile("^tokens_per_second$"), format_quantity),
    (re.compile("^energy_kwh$"), lambda energy: format_quantity(1e3 * energy, "Wh")),
    (re.compile("_hours$"), lambda hours: format_without_exponent(hours, 3)),
    (re.compile("^(?:requests_per_second|max_concurrency)$"), format_without_exponent),
    (re.compile("^cost$"), lambda cost: f"{cost:,.2f}"),
    (re.compile("port$|seed$|version"), str),
)
"""Pattern of the names of numbers -> format; other numbers are written with all digits."""
_PLAIN = re.compile(r"[A-Za-z_/][^\s,:\[\]{}#&*!|>'\"%@`]*")


def value_pair(change: FieldChange, exact: bool) -> tuple[str, str]:
    """Return the old and the new value as texts, in the unit of the field.

    If ``exact`` is True and the rounded values are equal, all digits are returned.
    """
    old, new = (_format_value(change.name, one) for one in (change.old, change.new))
    if old == new and exact:
        old, new = (_yaml_text(one) for one in (change.old, change.new))
    return clip_pair(old, new)


def clip_pair(old: str, new: str) -> tuple[str, str]:
    """Return both texts, cut to at most ``MAX_CELL`` characters around their first difference."""
    if max(len(old), len(new)) <= MAX_CELL:
        return old, new
    pairs = enumerate(zip(old, new, strict=False))
    first = next((at for at, (one, two) in pairs if one != two), min(len(old), len(new)))
    # A text that is absent on one side is shown from its start.
    start = 0 if first <= CONTEXT or min(len(old), len(new)) < 2 else first - CONTEXT
    # Names of hosts and elements of lists are not cut in two.
    places = [old.find(sign, start, first) for sign in ", "] if start else []
    gap = min((place for place in places if place >= 0), default=-1) + 1
    return _clip(old, gap or start), _clip(new, gap or start)


def _clip(text: str, start: int) -> str:
    shown = f"...{text[start:]}" if start else text
    return shown if len(shown) <= MAX_CELL else f"{shown[: MAX_CELL - 3]}..."


def _format_value(name: str, value: Any) -> str:
    """Return ``value`` as text, in the unit that ``name`` implies."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _yaml_text(value)
    found = next((show for pattern, show in FORMATS if pattern.search(name)), _yaml_text)
    return found(value)


def _yaml_text(value: Any) -> str:
    """Return ``value`` as YAML writes it on one line; ``-`` for an absent value."""
    if value in (None, "", []):
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:,}"
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml_item, value))}]"
    return json.dumps(value)


def _yaml_item(value: Any) -> str:
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    return str(value) if type(value) in (int, float) else _yaml_text(value)
