"""``parc backends``."""

from __future__ import annotations

import click

from parc.compiler.cli import options, session


@click.command("backends")
@options.format_option("text", "json")
def command(style: str) -> None:
    """List the backends: versions, and what each framework can express."""
    from parc.compiler.report.text.backend_list import backend_records, backend_text
    from parc.compiler.report.text.strategy_matrix import matrix_text, said

    if style == "json":
        document = {"format": 1, "backends": backend_records(), "strategies": said()}
        session.print_json(document)
    else:
        click.echo(f"{backend_text()}\n{matrix_text()}", nl=False)
