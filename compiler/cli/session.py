"""One run of the compiler for a command: read, plan, show what was found, leave with a code."""

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
    """Plan ``spec``; diagnostics that are not errors are shown, errors end the command.

    With a machine format the diagnostics of a failed run are the document on standard output.
    """
    from parc.compiler.pipeline import plan_spec
    from parc.compiler.spec.reading.source import read_source

    sink = Sink()
    plan = plan_spec(read_source(spec), overrides, sink)
    if plan is None or sink.failed():
        exit_with_findings((sink,), style)
    assert plan is not None
    return plan, sink


def exit_with_findings(sinks: Sequence[Sink], style: str) -> None:
    """Show the diagnostics and exit with 1."""
    if style == "json":
        show_findings(sinks, "json", sys.stdout)
    else:
        show_findings(sinks, "text", sys.stderr)
    click.get_current_context().exit(FOUND)


def show_findings(sinks: Sequence[Sink], style: Format, stream: TextIO) -> None:
    """Write the diagnostics of ``sinks``; nothing where there are none."""
    colored = style == "text" and use_color(stream)
    click.echo(render(sinks, style, color=colored), file=stream, nl=False, color=colored)


def use_color(stream: TextIO) -> bool:
    """A terminal, and nobody said NO_COLOR (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def any_failed(sinks: Sequence[Sink], level: Severity) -> bool:
    """Whether any sink holds something at or above ``level``."""
    return any(sink.failed(level) for sink in sinks)


def print_json(document: dict[str, Any]) -> None:
    """Write ``document`` to standard output, keys sorted."""
    click.echo(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False))
