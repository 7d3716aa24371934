"""Steps that commands share: read and plan a spec, show findings, exit with a code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import click

from parc.compiler.diagnostics.render import Format, render
from parc.compiler.diagnostics.sink import Sink
from parc.compiler.ir import AnyPlan
from parc.compiler.ir.finding import Severity

FOUND = 1


def plan_or_exit(
    spec: str, overrides: Sequence[str], *, style: str = "text"
) -> tuple[AnyPlan, Sink]:
    """Plan ``spec`` and return the plan with its warnings; exit with 1 after errors.

    With ``style`` json, the diagnostics of a failed run are a document on standard output.
    """
    # Imported here: the pipeline loads pydantic, which `parc --help` must not wait for.
    from parc.compiler.pipeline import plan_spec
    from parc.compiler.spec.reading.source import read_source

    sink = Sink()
    plan = plan_spec(read_source(spec), overrides, sink)
    if plan is None or sink.failed():
        exit_with_findings((sink,), style)
    assert plan is not None
    return plan, sink


def exit_with_findings(sinks: Sequence[Sink], style: str) -> None:
    """Show the findings and exit with 1."""
    if style == "json":
        show_findings(sinks, "json", sys.stdout)
    else:
        show_findings(sinks, "text", sys.stderr)
    click.get_current_context().exit(FOUND)


def show_findings(sinks: Sequence[Sink], style: Format, stream: TextIO) -> None:
    """Write the findings of ``sinks``; nothing if there are none."""
    colored = style == "text" and use_color(stream)
    click.echo(render(sinks, style, color=colored), file=stream, nl=False, color=colored)


def use_color(stream: TextIO) -> bool:
    """Return True on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def any_failed(sinks: Sequence[Sink], level: Severity) -> bool:
    """Return True if a sink has a finding at or above ``level``."""
    return any(sink.failed(level) for sink in sinks)


def print_json(document: dict[str, Any]) -> None:
    """Write ``document`` to standard output with sorted keys."""
    click.echo(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False))
