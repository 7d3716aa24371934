"""Settings of a plan that the verifier of a plugin does not compare with the emitted files.

A test compares the verifiers of PARC's own backends with all fields of a plan. For a plugin, the
fields that it declares to use are compared with those that its verifier reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parc.backends.spec_fields import (
    SERVING_SETTINGS,
    SpecFields,
    declared_spec_fields,
    spec_field,
)
from parc.backends.verifier import Verifier
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir.field_paths import is_path_in_fields

SHOWN = 12
"""Largest number of settings that a finding names."""


def report_unread_settings(
    name: str, verifier: Verifier, plan: Mapping[str, Any], artifacts: Mapping[str, str], sink: Sink
) -> None:
    """Report settings of ``plan`` that the verifier of the plugin ``name`` does not read (A13).

    Fields under ``not_in_files`` of the verifier are left out.
    """
    declared = declared_spec_fields(name)
    file = getattr(verifier, "file", "")
    if declared is None or file not in artifacts:
        return
    read = {_spec_path(one.path) for one in verifier.derive_settings(artifacts)}
    excused = {_spec_path(path) for path in verifier.not_in_files}
    expected = list(dict.fromkeys(_expected_settings(plan, declared)))
    unread = [
        path
        for path in expected
        if not _covers(read, path) and not is_path_in_fields(path, excused)
    ]
    if not unread:
        return
    shown = ", ".join(unread[:SHOWN]) + (", ..." if len(unread) > SHOWN else "")
    finding = Finding(
        f"the verifier of {name} reads {len(expected) - len(unread)} of {len(expected)} settings; "
        f"not {shown}",
        help="edits of these are found only by checksum; a complete verifier yields them in "
        "derive_settings, or names them in not_in_files",
    )
    sink.report("A13", finding, span=Span(file, 1, 1))


def _spec_path(path: str) -> str:
    """Return the spec field behind a path of ``plan.json``."""
    return spec_field(path if path.startswith("problem.pins.") else path.removeprefix("problem."))


def _expected_settings(plan: Mapping[str, Any], declared: SpecFields) -> Iterator[str]:
    """Yield the spec fields whose values the files of the plugin contain."""
    problem, layout = plan["problem"], plan["layout"]
    if "service" in problem:
        yield from (path for path in SERVING_SETTINGS if path in declared.used)
        if problem["service"]["setup"]["pool"] != "both":
            yield "job.pool"
        return
    for path in sorted(declared.used):
        if path == "job":
            yield from (f"job.{name}" for name, value in problem["job"].items() if value)
        elif path.startswith("model") or (path.startswith("job.") and _is_set(problem, path)):
            yield path
    yield from ("layout.micro_batch", "layout.zero_stage", "layout.recompute.granularity")
    if layout["schedule"] != "1f1b":
        yield "layout.schedule"
    if layout["sequence_parallel"]:
        yield "layout.sequence_parallel"


def _is_set(problem: Mapping[str, Any], path: str) -> bool:
    """Return True if the job of the plan has a value for the spec field ``path``."""
    return problem["job"].get(path.removeprefix("job."), True) not in (None, [], False)


def _covers(read: set[str], path: str) -> bool:
    """Return True if a verifier reads ``path``, or any part of the section ``path``."""
    return path in read or any(one.startswith(f"{path}.") for one in read)
