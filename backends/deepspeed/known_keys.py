"""Check of ``ds_config.json`` for keys that DeepSpeed rejects or silently ignores.

``known_keys.json`` has one row for every key that any supported version reads. Dots separate the
sections in a key. ``since`` and ``until`` are the first and the last version that reads the key; if
absent, there is no limit. From version ``closed_since`` on, the section rejects unknown keys. From
version ``refused_since`` on, DeepSpeed does not start if the key is present. Bounds, such as
``minimum``, limit the value (backends/value_range.py). Sections without rows are not
checked.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from parc.backends.deepspeed.capabilities import VERSIONS
from parc.backends.shared.versions import is_in_range
from parc.backends.value_range import find_range_fault
from parc.compiler.diagnostics import Finding
from parc.compiler.diagnostics.similar_names import close_matches

PACKAGE = "parc.backends.deepspeed"
ZERO = "zero_optimization"
TYPO = 0.82
"""Similarity (0 to 1) above which an unknown key counts as a misspelling of a known key.

The value is high because programs add their own keys to the file.
"""


@cache
def known_keys() -> dict[str, dict[str, Any]]:
    """Return key, such as ``zero_optimization.stage`` -> row of ``known_keys.json``."""
    rows: list[dict[str, Any]] = json.loads((files(PACKAGE) / "known_keys.json").read_text("utf-8"))
    return {row["key"]: row for row in rows}


@cache
def keys_in_section(section: str, version: str) -> tuple[str, ...]:
    """Return the sorted names of the keys that DeepSpeed ``version`` reads in ``section``.

    ``section`` is "" for the top level of the file.
    """
    found = []
    for key, row in known_keys().items():
        above, _, name = key.rpartition(".")
        if above == section and is_in_range(version, row.get("since"), row.get("until")):
            found.append(name)
    return tuple(sorted(found))


def check_config_key(section: str, key: str, value: Any, version: str) -> Finding | None:
    """Return a finding if DeepSpeed ``version`` rejects or ignores ``key``, else None.

    In sections that allow unknown keys, PARC reports an unknown key only if it resembles a known
    key or belongs to another version. Other unknown keys may belong to the user's program. In
    sections that forbid unknown keys, a key with the value ``auto`` is not rejected, because
    DeepSpeed removes such keys before the check.
    """
    names = keys_in_section(section, version)
    # Free-form sections, such as the parameters of an optimizer, have no rows and are not checked.
    if not names or key in names:
        return None
    row = known_keys().get(f"{section}.{key}" if section else key)
    near = next(iter(close_matches(key, names, 1, TYPO)), "")
    hint = f"did you mean {near}?" if near else ""
    label = f"known {_format_version_range(row)}" if row is not None else "unknown key"
    if row is not None and _is_since_version(row, "refused_since", version):
        message = f"DeepSpeed {version} rejects the key {key!r}, which older versions support"
        return Finding(message, label, fix=f"remove {key}")
    # Such sections are pydantic models with extra=forbid: zero_optimization, bf16, fp16,
    # tensor_parallel and others.
    if _rejects_unknown_keys(section, version) and value != "auto":
        message = f"DeepSpeed {version} rejects the unknown key {key[:60]!r} in {section}"
        return Finding(message, label, help=hint, fix=near)
    if not section and "_" in key and f"{ZERO}.{key}" in known_keys():
        message = f"DeepSpeed {version} silently ignores the key {key!r} outside of {ZERO}"
        return Finding(message, f"this is a key of {ZERO}", help=f"move {key} into {ZERO}")
    # An unknown key that resembles no known one may belong to the user's program; DeepSpeed ignores
    # it at the top level.
    if row is None and not near:
        return None
    message = f"DeepSpeed {version} silently ignores the key {key[:60]!r}"
    return Finding(message, label, help=hint, fix=near)


def check_config_value(section: str, key: str, value: Any) -> Finding | None:
    """Return a finding if the number ``value`` of ``key`` is outside its range, else None."""
    row = known_keys().get(f"{section}.{key}" if section else key, {})
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return find_range_fault(key, value, row, written="{name}: {value}")


def _rejects_unknown_keys(section: str, version: str) -> bool:
    return _is_since_version(known_keys().get(section, {}), "closed_since", version)


def _is_since_version(row: dict[str, Any], column: str, version: str) -> bool:
    """Return True if ``version`` is at least the version in ``row[column]``.

    Return False if ``row`` does not have this column.
    """
    return column in row and is_in_range(version, row[column], None)


def _format_version_range(row: dict[str, Any]) -> str:
    return f"from {row.get('since', VERSIONS[0])} to {row.get('until', 'today')}"
