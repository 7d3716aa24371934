"""Text of ``parc catalog``: lists of entries, single entries, and unknown names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from parc.compiler.report.formatting import table

COLUMNS: dict[str, tuple[str, ...]] = {
    "gpus": ("vendor", "generation", "memory", "memory_gb_per_s"),
    "generations": ("vendor", "precisions", "driver_context_mb", "host_link_gb_per_s"),
    "nodes": ("gpu", "gpus_per_node", "nvlink_domain", "link_gb_per_s", "nics", "nic_speed"),
    "fabrics": ("kind", "latency", "oversubscription"),
    "models": ("family", "layers", "hidden", "heads", "vocab"),
    "clusters": ("node", "nodes"),
    "sites": ("scheduler", "node", "fabric", "modules"),
}
"""Kind of catalog entry -> fields that are columns in the list of these entries."""
UNITS = {"memory": "GB", "nic_speed": "Gb/s", "latency": "s"}
"""Field whose name lacks the unit of its value -> the unit."""


def catalog_list_text(kind: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table with one row per catalog entry of the given kind."""
    if kind == "sites":
        entries = {name: _site_row(entry, entries) for name, entry in entries.items()}
    # A column in which no entry has a value would be empty.
    columns = [name for name in COLUMNS[kind] if any(entry.get(name) for entry in entries.values())]
    rows = [
        (name, *(_format_cell(entry.get(column), column) for column in columns))
        for name, entry in sorted(entries.items())
    ]
    return table(("name", *columns), rows)


def _site_row(site: Mapping[str, Any], sites: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns of a site; those that it does not set come from its base in ``sites``.

    A node type that the site describes is shown by its name.
    """
    base = _site_row(sites[site["base"]], sites) if "base" in site else {}
    cluster = site.get("cluster", {})
    node = cluster.get("node")
    own = {
        "scheduler": "kubernetes" if "kubernetes" in site.get("launch", {}) else "",
        "node": node.get("name", node["base"]) if isinstance(node, Mapping) else node,
        "fabric": cluster.get("fabric"),
        "modules": site.get("modules"),
    }
    return {"scheduler": "slurm", **base, **{key: value for key, value in own.items() if value}}


def catalog_entry_text(name: str, entry: Mapping[str, Any]) -> str:
    """Return all fields of one catalog entry, including its sources; nested fields are indented."""
    return "\n".join([name, *_field_lines(entry, "  ")]) + "\n"


def unknown_name_message(kind: str, name: str, names: Sequence[str]) -> str:
    """Return the error message for a name that the catalog lacks, with names that are similar."""
    near = get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"Did you mean {', '.join(near)}?" if near else f"To list all: parc catalog {kind}"
    return f"The catalog has no {name!r} in {kind}. {hint}"


def _field_lines(entry: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in entry.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _field_lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {_format_cell(value, key)}"


def _format_cell(value: Any, field: str) -> str:
    """Return the value of ``field`` as text, with its unit if the name of the field lacks it."""
    if value is None:
        return ""
    if field in UNITS and isinstance(value, int | float):
        return f"{value:g} {UNITS[field]}"
    # Booleans are integers in Python but are printed as in JSON: true, not True.
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    return json.dumps(value, default=str)
