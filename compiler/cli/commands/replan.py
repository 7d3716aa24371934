"""``parc replan``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from parc.compiler.cli import options, session


@click.command("replan")
@options.spec_argument
@click.option(
    "--drain",
    metavar="HOST",
    multiple=True,
    required=True,
    help="A host, or a host list such as r01n[03-04], to take out. May be given many times.",
)
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The output directory, build/NAME if absent: its parc.lock is the plan so far, and it is "
    "replaced.",
)
@options.set_option
@click.option("--dry-run", is_flag=True, help="Show what would move; write nothing.")
@options.format_option("text", "json")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Give the ranks of drained hosts to spare or idle ones; all others stay.

    The plan is that of DIR/parc.lock, where there is one for SPEC; else SPEC is compiled as if
    nothing were drained. Degrees, stages and every other host stay as they are. A free host of
    the same leaf is taken first; else the one whose place costs least. Of a service, the engines
    of drained hosts get others. A later parc compile --locked keeps what this decides.
    """
    from parc.compiler.cli.replanning import ReplanRequest, replan

    request = ReplanRequest(**given)
    outcome = replan(request)
    if request.style == "json":
        session.print_json(outcome.to_json())
    else:
        session.show_findings((outcome.sink,), "text", sys.stderr)
        click.echo(outcome.text(), nl=False)
    ctx.exit(session.FOUND if outcome.sink.failed() else 0)
