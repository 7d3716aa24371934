"""The list of backends as a table and as JSON, and the defects of installed plugins."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from parc.backends.declaration import Declaration
from parc.backends.plugins import shadowed
from parc.backends.registry import BUILT_IN, all_names, find, has_role, versions_of
from parc.compiler.diagnostics import Sink
from parc.compiler.report.formatting import table


def backend_records(sink: Sink) -> list[dict[str, Any]]:
    """Return name, description, versions and roles per usable backend, sorted by name.

    Plugins with a defect are reported as X23.
    """
    records = []
    for name in all_names():
        found = find(name)
        if isinstance(found, Declaration):
            records.append(_record(found))
        elif found is not None:
            sink.report("X23", found.finding())
    for problem in shadowed(tuple(one.name for one in BUILT_IN)):
        sink.report("X23", problem.finding())
    return records


def backend_text(sink: Sink) -> str:
    """Return the table of the backends for a terminal; plugins with a defect are reported."""
    rows = [
        (
            one["name"],
            ", ".join(one["versions"]),
            one["default_version"],
            ", ".join(one["jobs"]),
            one["about"],
        )
        for one in backend_records(sink)
    ]
    return table(("name", "versions", "default", "jobs", "emits"), rows, left=5)


def _record(found: Declaration) -> dict[str, Any]:
    versions, default = versions_of(found.name)
    about = (import_module(found.package).__doc__ or "").strip().partition(": ")[2]
    return {
        "name": found.name,
        "about": about,
        "versions": list(versions),
        "default_version": default,
        "framework": found.binds_layout,
        "jobs": [kind for kind in ("train", "serve") if has_role(found, kind)],
    }
