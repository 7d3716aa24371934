"""Command ``parc backends``."""

from __future__ import annotations

import sys

import click

from parc.compiler.cli import command_steps, options
from parc.compiler.diagnostics.sink import Sink


@click.command("backends")
@options.format_option("text", "json")
@click.pass_context
def command(ctx: click.Context, style: str) -> None:
    """List the backends, their versions, and the strategies that each supports.

    The list includes backends of installed plugins. A plugin that cannot be used is reported as an
    error.
    """
    from parc.backends.plugin_error import INSTALLED
    from parc.compiler.report.text.backend_tables import (
        backend_records,
        backend_text,
        strategies_by_target,
        strategy_matrix_text,
    )

    sink = Sink(INSTALLED)
    if style == "json":
        records = backend_records(sink)
        document = {"format": 1, "backends": records, "strategies": strategies_by_target(True)}
        command_steps.print_json(document)
    else:
        click.echo(f"{backend_text(sink)}\n{strategy_matrix_text()}", nl=False)
    command_steps.show_findings((sink,), "text", sys.stderr)
    ctx.exit(command_steps.FOUND if sink.failed() else 0)
