"""Catalog entries for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from parc.compiler.report.table import table

COLUMNS: dict[str, tuple[str, ...]] = {
    "gpus": ("vendor", "generation", "memory", "memory_gb_per_s"),
    "generations": ("vendor", "precisions", "driver_context_mb", "host_link_gb_per_s"),
    "nodes": ("gpu", "gpus", "nvlink_domain", "link_gb_per_s", "nics", "nic_gbps"),
    "fabrics": ("kind", "latency_seconds", "oversubscription"),
    "models": ("family", "layers", "hidden", "heads", "vocab"),
    "clusters": ("node", "nodes"),
}
"""What a list shows of an entry, where the entry has it."""


def list_text(kind: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
    """A line an entry, with the fields that tell entries apart."""
    columns = [name for name in COLUMNS[kind] if any(entry.get(name) for entry in entries.values())]
    rows = [
        (name, *(_cell(entry.get(column)) for column in columns))
        for name, entry in sorted(entries.items())
    ]
    return table(("name", *columns), rows)


def entry_text(name: str, entry: Mapping[str, Any]) -> str:
    """Every field of one entry, nested ones indented; sources as they stand in the catalog."""
    return "\n".join([name, *_lines(entry, "  ")]) + "\n"


def unknown_name(kind: str, name: str, names: Sequence[str]) -> str:
    """The message for a name that the catalog lacks."""
    near = get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}?" if near else f"parc catalog {kind} lists all"
    return f"no entry {name!r} among {kind}: {hint}"


def _lines(entry: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in entry.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {_cell(value)}"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    return json.dumps(value, default=str)
