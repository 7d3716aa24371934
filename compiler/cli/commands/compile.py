"""Command ``parc compile``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from parc.compiler.cli import command_steps, options


@click.command("compile")
@options.spec_argument
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Output directory, which is replaced as a whole; the default is build/NAME.",
)
@options.set_option
@options.root_option
@click.option(
    "--emit",
    metavar="NAME,...",
    help="Backends to write files for; this replaces the list `emit` in the spec.",
)
@click.option("--check", is_flag=True, help="Write nothing; fail if files on disk are out of date.")
@click.option(
    "--locked",
    is_flag=True,
    help="Keep the hosts in DIR/parc.lock; fail if any other decision differs from that file.",
)
@click.option("--timings", is_flag=True, help="Print the duration of each phase to standard error.")
@options.format_option("text", "json")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Compile SPEC into launch files and a rank map.

    SPEC is a file, or - for standard input. The output directory is replaced as a whole or not at
    all, and only if PARC wrote it. The output depends only on SPEC; with --locked, it also depends
    on DIR/parc.lock, because the ranks stay on the hosts that this file lists.
    """
    from parc.compiler.cli.compile_command import CompileRequest, PhaseTimer, compile_spec

    request = CompileRequest(**given)
    clock = PhaseTimer()
    outcome = compile_spec(request, clock)
    if request.timings:
        click.echo(clock.table(), err=True)
    if request.style == "json":
        command_steps.print_json(outcome.to_json())
    else:
        command_steps.show_findings((outcome.sink,), "text", sys.stderr)
        click.echo(outcome.text(), nl=False)
    ctx.exit(command_steps.FOUND if outcome.sink.failed() else 0)
