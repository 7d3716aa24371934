"""Command ``parc estimate``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from parc.compiler.cli import command_steps, options


@click.command("estimate")
@options.spec_argument
@options.set_option
@options.root_option
@options.format_option("text", "json")
def command(spec: str, overrides: tuple[str, ...], style: str, root: Path | None) -> None:
    """Show memory, step time and traffic of SPEC, term by term.

    The estimate is for the layout that parc compile chooses. parc explain TERM shows the formula of
    a term.
    """
    from parc.compiler.report.text.estimate_tables import estimate_document, estimate_text

    plan, sink = command_steps.plan_or_exit(spec, overrides, style=style, root=root)
    if style == "json":
        command_steps.print_json(estimate_document(plan))
    else:
        command_steps.show_findings((sink,), "text", sys.stderr)
        click.echo(estimate_text(plan), nl=False)
