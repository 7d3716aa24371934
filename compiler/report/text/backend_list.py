"""The backends for people and as JSON."""

from __future__ import annotations

import sys
from typing import Any

from parc.backends.registry import BUILT_IN, ENGINES, FRAMEWORKS, SERVING, TRAINING, backend
from parc.compiler.report.table import table

JOBS = (("train", TRAINING), ("serve", SERVING))


def backend_records() -> list[dict[str, Any]]:
    """Name, what it is, versions, and the rank orders of a framework; sorted by name."""
    return [_record(name) for name in sorted(BUILT_IN)]


def backend_text() -> str:
    """A table, then a line of explanation each."""
    records = backend_records()
    rows = [
        (
            one["name"],
            ", ".join(one["versions"]),
            one["default_version"],
            ", ".join(one["jobs"]),
            one["about"],
        )
        for one in records
    ]
    return table(("name", "versions", "default", "jobs", "emits"), rows, left=5)


def _record(name: str) -> dict[str, Any]:
    target = backend(name)
    package = sys.modules[BUILT_IN[name].rpartition(".")[0]]
    about = (package.__doc__ or "").strip().partition(": ")[2]
    return {
        "name": name,
        "about": about,
        "versions": list(target.versions),
        "default_version": getattr(target, "default_version", target.versions[-1]),
        "framework": name in (*FRAMEWORKS, *ENGINES),
        "jobs": [kind for kind, names in JOBS if name in names],
    }
