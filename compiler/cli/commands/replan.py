"""Command ``parc replan``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from parc.compiler.cli import command_steps, options


@click.command("replan")
@options.spec_argument
@click.option(
    "--drain",
    metavar="HOST",
    multiple=True,
    required=True,
    help="Host, or host list such as r01n[03-04], to drain. Can be repeated.",
)
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Output folder, which contains the parc.lock of the current plan and is replaced as a "
    "whole; the default is build/NAME.",
)
@options.set_option
@options.root_option
@click.option("--dry-run", is_flag=True, help="Show the moves; write nothing.")
@options.format_option("text", "json")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Move the ranks of drained hosts to spare or idle hosts; other ranks stay.

    The starting point is the plan in DIR/parc.lock if it fits SPEC. Otherwise SPEC is compiled as
    if no host were drained. Parallel sizes, stages and all other hosts stay the same. A free host
    below the same leaf switch is preferred, then the host for which the placement costs least.
    In a serving job, only engines on drained hosts move. A later parc compile --locked keeps the
    new hosts.
    """
    from parc.compiler.cli.replan_command import ReplanRequest, replan

    request = ReplanRequest(**given)
    outcome = replan(request)
    if request.style == "json":
        command_steps.print_json(outcome.to_json())
    else:
        command_steps.show_findings((outcome.sink,), "text", sys.stderr)
        click.echo(outcome.text(), nl=False)
    ctx.exit(command_steps.FOUND if outcome.sink.failed() else 0)
