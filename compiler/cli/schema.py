"""``parc schema``."""

from __future__ import annotations

from importlib.resources import files

import click

NAMES = ("spec", "plan", "rankmap", "lock")


@click.command("schema")
@click.argument("name", metavar="[spec|plan|rankmap|lock]", type=click.Choice(NAMES), default="spec")
def command(name: str) -> None:
    """Print a JSON Schema: spec, plan, rankmap or lock.

    Editors complete and check a spec with the schema of the spec.
    """
    text = (files("parc.schemas") / f"{name}.schema.json").read_text("utf-8")
    click.echo(text, nl=False)
