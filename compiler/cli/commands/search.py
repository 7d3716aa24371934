"""Command ``parc search``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from parc.compiler.cli import command_steps, options


@click.command("search")
@options.spec_argument
@options.set_option
@options.root_option
@click.option(
    "--top",
    metavar="N",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Number of candidates to list: at most 20 layouts for training, 40 for a service.",
)
@options.format_option("table", "json", "csv")
def command(spec: str, overrides: tuple[str, ...], top: int, style: str, root: Path | None) -> None:
    """Rank the layouts that fit SPEC and compare them with the chosen one.

    The first row is the layout that parc compile chooses. A second table shows how many layouts
    each rule rejected.
    """
    from parc.compiler.ir import ServingPlan
    from parc.compiler.report.text import search_table
    from parc.compiler.report.text.candidate_columns import candidate_count

    plan, sink = command_steps.plan_or_exit(spec, overrides, style=style, root=root)
    for one in plan.pools if isinstance(plan, ServingPlan) else (plan,):
        if style != "table" and len(one.search.ranked) < top:
            click.echo(candidate_count(one), err=True)
    if style == "json":
        command_steps.print_json(search_table.search_document(plan, top))
        return
    command_steps.show_findings((sink,), "text", sys.stderr)
    text = search_table.search_csv if style == "csv" else search_table.search_text
    click.echo(text(plan, top), nl=False)
