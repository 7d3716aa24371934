"""``parc backends``."""

from __future__ import annotations

import click

from parc.compiler.cli import options, session


@click.command("backends")
@options.format_option("text", "json")
def command(style: str) -> None:
    """List the backends: versions, rank orders, files."""
    from parc.compiler.report.backend_list import backend_records, backend_text

    if style == "json":
        session.print_json({"format": 1, "backends": backend_records()})
    else:
        click.echo(backend_text(), nl=False)
