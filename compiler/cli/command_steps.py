"""Steps that commands share: plan a spec, print findings, exit with a code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from parc.compiler.diagnostics.render import Format, render
from parc.compiler.diagnostics.sink import Sink
from parc.compiler.ir import AnyPlan
from parc.compiler.ir.finding import Severity

FOUND = 1
MANY_SPECS = 32
"""Smallest number of specs that are read on all cores; starting processes takes a while."""

Result = TypeVar("Result")


def map_specs(work: Callable[[str], Result], specs: Sequence[str]) -> Iterable[Result]:
    """Return the result of ``work`` for each spec, in order; use all cores for many specs."""
    if "-" in specs or len(specs) < MANY_SPECS:
        return map(work, specs)
    from parc.compiler.tools.sweep.run_sweep import local_executor

    pool = local_executor(len(specs))
    if pool is None:
        return map(work, specs)
    with pool:
        return list(pool.map(work, specs, chunksize=4))


def plan_or_exit(
    spec: str, overrides: Sequence[str], *, style: str = "text", root: Path | None = None
) -> tuple[AnyPlan, Sink]:
    """Return (plan of the spec file ``spec``, sink with its warnings).

    If the spec has errors, print these errors and exit with 1. If ``style`` is ``"json"``, the
    errors are printed as JSON to standard output, otherwise as text to standard error. Files that
    the spec names must be below ``root``.
    """
    # Imported here because the pipeline imports pydantic, which would slow down `parc --help`.
    from parc.compiler.pipeline import plan_spec
    from parc.compiler.spec.reading.source import read_source

    sink = Sink()
    plan = plan_spec(read_source(spec, root=root), overrides, sink)
    if plan is None or sink.failed():
        exit_with_findings((sink,), style)
    assert plan is not None
    return plan, sink


def exit_with_findings(sinks: Sequence[Sink], style: str) -> None:
    """Print the findings of ``sinks`` and exit with 1.

    The findings are printed as JSON to standard output if ``style`` is ``"json"``, otherwise as
    text to standard error.
    """
    if style == "json":
        show_findings(sinks, "json", sys.stdout)
    else:
        show_findings(sinks, "text", sys.stderr)
    click.get_current_context().exit(FOUND)


def show_findings(sinks: Sequence[Sink], style: Format, stream: TextIO) -> None:
    """Write the findings of ``sinks`` to ``stream``, in color only if ``use_color`` allows it."""
    colored = style == "text" and use_color(stream)
    click.echo(render(sinks, style, color=colored), file=stream, nl=False, color=colored)


def use_color(stream: TextIO) -> bool:
    """Return True if ``stream`` is a terminal and NO_COLOR is not set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def any_failed(sinks: Sequence[Sink], level: Severity) -> bool:
    """Return True if a sink has a finding whose severity is ``level`` or higher."""
    return any(sink.failed(level) for sink in sinks)


def print_json(document: dict[str, Any]) -> None:
    """Print ``document`` as JSON with sorted keys to standard output."""
    click.echo(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False))
