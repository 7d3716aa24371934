"""Command ``parc schema``."""

from __future__ import annotations

import click

NAMES = ("spec", "site", "plan", "rankmap", "lock")


@click.command("schema")
@click.argument(
    "name", metavar="[spec|site|plan|rankmap|lock]", type=click.Choice(NAMES), default="spec"
)
def command(name: str) -> None:
    """Print a JSON Schema: spec, site, plan, rankmap or lock.

    An editor that has the schema of the spec or of a site file can complete and check such a file.
    """
    from parc.compiler.report.json.output_schemas import schema_text

    click.echo(schema_text(name), nl=False)
