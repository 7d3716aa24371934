"""``parc verify``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import click

from parc.compiler.cli import options, session
from parc.compiler.diagnostics.render import Format
from parc.compiler.diagnostics.sink import Sink


@click.command("verify")
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@options.format_option("text", "json", "sarif", "github")
@click.pass_context
def command(ctx: click.Context, directory: Path, style: str) -> None:
    """Check an output directory again, by a second route.

    Reads the files as they are, builds the groups of the framework anew from the emitted
    arguments and compares them with the rank map, the hostfile and the launch scripts.
    """
    from parc.compiler.diagnostics.positions import Positions
    from parc.compiler.passes.verify_plan import verify_artifacts
    from parc.compiler.report.directory import read_directory

    sink = Sink(Positions(file=directory.as_posix()))
    files = read_directory(directory)
    verify_artifacts(files, sink)
    session.show((sink,), cast(Format, style), sys.stdout)
    if style == "text" and not sink.diagnostics:
        click.echo(f"{directory.as_posix()}: {len(files)} files agree")
    ctx.exit(session.FOUND if sink.failed() else 0)
