"""Command ``parc catalog``."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from parc.compiler.cli import command_steps, options

KINDS = ("gpus", "generations", "nodes", "fabrics", "models", "clusters", "sites")


def _complete_name(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return options.complete_entry(context.params["kind"])(context, parameter, incomplete)


@click.command("catalog")
@click.argument(
    "kind", metavar="gpus|generations|nodes|fabrics|models|clusters|sites", type=click.Choice(KINDS)
)
@click.argument("name", metavar="[NAME]", required=False, shell_complete=_complete_name)
@options.format_option("text", "json")
def command(kind: str, name: str | None, style: str) -> None:
    """List the entries of the catalog, or show one entry with its sources."""
    from parc.compiler.catalog.library import Library
    from parc.compiler.report.text.catalog_text import (
        catalog_entry_text,
        catalog_list_text,
        unknown_name_message,
    )

    library = Library(None)
    if name is None:
        entries = {each: dict(library.entry(kind, each)) for each in library.names(kind)}
        if style == "json":
            command_steps.print_json({"format": 1, kind: entries})
        else:
            click.echo(catalog_list_text(kind, entries), nl=False)
        return
    try:
        entry = dict(library.entry(kind, name))
    except KeyError:
        raise click.UsageError(unknown_name_message(kind, name, library.names(kind))) from None
    if style == "json":
        command_steps.print_json({"format": 1, "name": name, "entry": entry})
    else:
        click.echo(catalog_entry_text(name, entry), nl=False)
