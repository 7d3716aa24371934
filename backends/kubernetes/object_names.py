"""Conversion of names in the spec to Kubernetes names, and checks of names and quantities."""

from __future__ import annotations

import re

MOST_LABEL = 63
"""Maximum number of characters of a DNS label (RFC 1123)."""
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def dns_label(name: str) -> str:
    """Return ``name`` as a DNS label: in lower case, with a dash for any other character."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def is_dns_label(text: str) -> bool:
    """Return True if ``text`` is a valid DNS label (RFC 1123)."""
    return len(text) <= MOST_LABEL and bool(_LABEL.fullmatch(text))


# Kubernetes documentation, "Labels and Selectors": at most 63 characters in the name, 253 in the
# prefix.
_PART = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/"
_KEY = re.compile(f"({_PREFIX})?{_PART}")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?([eE][0-9]+|[mkMGTPE]|[KMGTPE]i)?")


def is_qualified_name(text: str) -> bool:
    """Return True if ``text`` can name a label or resource, as ``name`` or ``prefix/name``."""
    return bool(_KEY.fullmatch(text))


def is_label_value(text: str) -> bool:
    """Return True if ``text`` is a valid value of a label; the empty text is valid."""
    return text == "" or bool(re.fullmatch(_PART, text))


def is_quantity(text: str) -> bool:
    """Return True if ``text`` is a quantity of a resource, such as ``8``, ``64Gi`` or ``500m``."""
    return bool(_QUANTITY.fullmatch(text))


_TAINT = re.compile(
    rf"(?P<key>({_PREFIX})?{_PART})(=(?P<value>({_PART})?))?"
    r"(:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute))?"
)


def is_taint(text: str) -> bool:
    """Return True if ``text`` names a taint: KEY, KEY:EFFECT, KEY=VALUE or KEY=VALUE:EFFECT."""
    return bool(_TAINT.fullmatch(text))


def toleration(taint: str) -> dict[str, str]:
    """Return the toleration of ``taint``.

    Without a value it tolerates all values of the taint, without an effect all effects.
    """
    found = _TAINT.fullmatch(taint)
    parts = found.groupdict() if found else {"key": taint}
    value, effect = parts.get("value"), parts.get("effect")
    match = {"operator": "Exists"} if value is None else {"operator": "Equal", "value": value}
    return {"key": str(parts["key"]), **match, **({"effect": effect} if effect else {})}
