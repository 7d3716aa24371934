"""``parc check``."""

from __future__ import annotations

import sys
from typing import cast

import click

from parc.compiler.cli import options, session
from parc.compiler.cli.exit_codes import UNREADABLE
from parc.compiler.diagnostics.render import Format
from parc.compiler.diagnostics.sink import Sink
from parc.compiler.ir.finding import Severity


@click.command("check")
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
@options.set_option
@options.format_option("text", "json", "sarif", "github")
@options.fail_on_option
@click.pass_context
def command(
    ctx: click.Context, specs: tuple[str, ...], overrides: tuple[str, ...], style: str, fail_on: str
) -> None:
    """Report everything that is wrong with each SPEC; write nothing.

    SPEC is a file, or - for standard input. All findings of all specs come in one run.
    """
    checked = [_check(spec, overrides) for spec in specs]
    sinks = [sink for sink in checked if sink is not None]
    session.show_findings(sinks, cast(Format, style), sys.stdout)
    if len(sinks) < len(specs):
        ctx.exit(UNREADABLE)
    if style == "text" and not any(sink.diagnostics for sink in sinks):
        click.echo(f"{len(specs)} specs are fine" if len(specs) > 1 else f"{specs[0]} is fine")
    if session.any_failed(sinks, cast(Severity, fail_on)):
        ctx.exit(session.FOUND)


def _check(spec: str, overrides: tuple[str, ...]) -> Sink | None:
    """What is wrong with one spec; None, and a line, where it cannot be read."""
    from parc.compiler.pipeline import plan_spec
    from parc.compiler.spec.reading.source import Unreadable, read_source

    sink = Sink()
    try:
        plan_spec(read_source(spec), overrides, sink)
    except Unreadable as error:
        click.echo(f"parc: {error}", err=True)
        return None
    return sink
