"""Command ``parc schema``."""

from __future__ import annotations

import click

NAMES = ("spec", "plan", "rankmap", "lock")


@click.command("schema")
@click.argument(
    "name", metavar="[spec|plan|rankmap|lock]", type=click.Choice(NAMES), default="spec"
)
def command(name: str) -> None:
    """Print a JSON Schema: spec, plan, rankmap or lock.

    An editor that has the schema of the spec can complete and check a spec.
    """
    from parc.compiler.report.json.output_schemas import schema_text

    click.echo(schema_text(name), nl=False)
