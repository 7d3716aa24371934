"""How numbers are written: one rounding for files, a few units for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

GIB = 2**30
DIGITS = 6
_EXACT = frozenset((str, int, bool, NoneType))
_encode = json.JSONEncoder(ensure_ascii=False).encode


def rounded(value: float) -> int | float:
    """``value`` to six significant digits; an int where nothing is left behind the point."""
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short


def round_tree(tree: Any) -> Any:
    """A JSON tree with every float rounded, so that the same plan is the same bytes."""
    if type(tree) in _EXACT:
        return tree
    if isinstance(tree, Mapping):
        return {str(key): round_tree(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [round_tree(item) for item in tree]
    return rounded(tree) if isinstance(tree, float) else tree


def json_text(document: dict[str, Any]) -> str:
    """A document as it is written to a file: sorted keys, floats rounded, a newline at the end."""
    return _indented(round_tree(document), "\n") + "\n"


def _indented(tree: Any, margin: str) -> str:
    """What ``json.dumps(indent=2, sort_keys=True)`` prints, which does it all in Python."""
    if not tree or not isinstance(tree, dict | list):
        return _encode(tree)
    inner = f"{margin}  "
    if isinstance(tree, dict):
        items = [f"{_encode(key)}: {_indented(tree[key], inner)}" for key in sorted(tree)]
    else:
        items = [_encode(one) if type(one) is str else _indented(one, inner) for one in tree]
    start, end = "{}" if isinstance(tree, dict) else "[]"
    return f"{start}{inner}{f',{inner}'.join(items)}{margin}{end}"


def plural(count: int, noun: str) -> str:
    """``1 host``, ``1,024 hosts``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def number_range(first: int, last: int) -> str:
    """``3``, or ``3-7``."""
    return str(first) if first == last else f"{first}-{last}"


def gib(count_bytes: float) -> str:
    """``61.2 GiB``; two digits behind the point under 10."""
    size = count_bytes / GIB
    return f"{size:.2f} GiB" if abs(size) < 10 else f"{size:,.1f} GiB"


def seconds(duration_seconds: float) -> str:
    """``4.21 s`` or ``83.0 ms``."""
    if abs(duration_seconds) < 1:
        return f"{duration_seconds * 1e3:.1f} ms"
    return f"{duration_seconds:,.2f} s"


def percent(share: float) -> str:
    """``41.3 %``."""
    return f"{share * 100:.1f} %"


def quantity(count: float, unit: str = "") -> str:
    """``1.99 GB``: three digits, a decimal prefix, the unit (a word starts with a blank)."""
    for prefix, factor in zip("ZEPTGMk", (1e21, 1e18, 1e15, 1e12, 1e9, 1e6, 1e3), strict=True):
        if abs(count) >= 0.9995 * factor:
            return f"{count / factor:.3g} {prefix}{unit}"
    return f"{count:.3g} {unit.lstrip()}".rstrip()


def without_exponent(value: float, digits: int = 4) -> str:
    """``value`` with that many significant digits, and never with an exponent: 12,800."""
    return f"{value:,.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Lines of aligned columns; the first ``left`` columns lean left, the others right."""
    body = [tuple(row) for row in rows]
    widths = [max(len(row[column]) for row in (head, *body)) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *body)
    ]
    return "\n".join(lines) + "\n"
