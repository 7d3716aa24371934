"""Command ``parc check``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import click

from parc.compiler.cli import command_steps, options
from parc.compiler.cli.exit_codes import UNREADABLE
from parc.compiler.diagnostics.render import Format
from parc.compiler.diagnostics.sink import Sink
from parc.compiler.ir.finding import Severity


@click.command("check")
@click.argument(
    "specs", metavar="SPEC...", nargs=-1, required=True, shell_complete=options.complete_path
)
@options.set_option
@options.root_option
@options.format_option("text", "json", "sarif", "github")
@options.fail_on_option
@click.pass_context
def command(
    ctx: click.Context, /, specs: tuple[str, ...], style: str, fail_on: str, **given: Any
) -> None:
    """Report all errors, warnings and advice for each SPEC; write nothing.

    The files are emitted and verified in memory, so that the findings are those of parc compile.

    SPEC is a file, or - for standard input. One run reports the findings of all specs.
    """
    results = [_check_spec(spec, **given) for spec in specs]
    sinks = [sink for sink in results if sink is not None]
    command_steps.show_findings(sinks, cast(Format, style), sys.stdout)
    if len(sinks) < len(specs):  # an unreadable spec outweighs findings
        ctx.exit(UNREADABLE)
    if style == "text" and not any(sink.diagnostics for sink in sinks):
        checked = specs[0] if len(specs) == 1 else f"{len(specs)} specs"
        click.echo(f"OK: {checked}, no findings.")
    if command_steps.any_failed(sinks, cast(Severity, fail_on)):
        ctx.exit(command_steps.FOUND)


def _check_spec(spec: str, overrides: tuple[str, ...], root: Path | None) -> Sink | None:
    """Return the sink with the findings of one spec.

    Print an error and return None if the file cannot be read.
    """
    from parc.compiler.pipeline import check_spec
    from parc.compiler.spec.reading.source import UnreadableFileError, read_source

    sink = Sink()
    try:
        check_spec(read_source(spec, root=root), overrides, sink)
    except UnreadableFileError as error:
        click.echo(f"parc: {error}", err=True)
        return None
    return sink
