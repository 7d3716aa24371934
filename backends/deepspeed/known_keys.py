"""Which keys of ``ds_config.json`` DeepSpeed reads, refuses or passes over in silence.

``known_keys.json`` has a row for every key that one of the versions reads, with dots between
sections: first and last version (absent: all), ``closed_since`` for a section that refuses keys
which it does not know, ``refused_since`` for a key that was removed and now stops the start. What
is known of a section are the keys that have rows; inside a section without any nothing is known.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from parc.backends.deepspeed.versions import VERSIONS
from parc.backends.shared.versions import is_in_range
from parc.compiler.diagnostics import Finding

PACKAGE = "parc.backends.deepspeed"
TYPO = 0.82
"""How like a key another one must be to be a misspelling: programs add keys of their own."""


@cache
def known_keys() -> dict[str, dict[str, str]]:
    """Key -> row."""
    rows: list[dict[str, str]] = json.loads((files(PACKAGE) / "known_keys.json").read_text("utf-8"))
    return {row["key"]: row for row in rows}


@cache
def keys_of(section: str, version: str) -> tuple[str, ...]:
    """Keys that ``version`` reads in a section, sorted; "" is the whole config."""
    found = []
    for key, row in known_keys().items():
        above, _, name = key.rpartition(".")
        if above == section and is_in_range(version, row.get("since"), row.get("until")):
            found.append(name)
    return tuple(sorted(found))


def key_fault(section: str, key: str, value: Any, version: str) -> Finding | None:
    """What ``version`` does with a key that it does not read; None: it reads it, or may.

    A value of ``auto`` never reaches the check of a section: DeepSpeed drops it before.
    """
    names = keys_of(section, version)
    if not names or key in names:
        return None
    row = known_keys().get(f"{section}.{key}" if section else key)
    near = next(iter(get_close_matches(key, names, 1, TYPO)), "")
    hint = f"did you mean {near}?" if near else ""
    label = f"known {_range(row)}" if row is not None else "unknown key"
    if row is not None and _holds(row, "refused_since", version):
        message = f"DeepSpeed {version} refuses the key {key!r}, which it once had"
        return Finding(message, label, fix=f"remove {key}")
    if _closed(section, version) and value != "auto":
        message = f"DeepSpeed {version} refuses the key {key[:60]!r} in {section}"
        return Finding(message, label, help=hint, fix=near)
    if row is None and not near:
        return None
    message = f"DeepSpeed {version} reads no key {key[:60]!r}, and says nothing"
    return Finding(message, label, help=hint, fix=near)


def _closed(section: str, version: str) -> bool:
    return _holds(known_keys().get(section, {}), "closed_since", version)


def _holds(row: dict[str, str], since: str, version: str) -> bool:
    """Whether the range that ``row`` opens with ``since`` has ``version`` in it."""
    return since in row and is_in_range(version, row[since], None)


def _range(row: dict[str, str]) -> str:
    return f"from {row.get('since', VERSIONS[0])} to {row.get('until', 'today')}"
