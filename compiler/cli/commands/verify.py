"""``parc verify``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import click

from parc.compiler.cli import options, session
from parc.compiler.diagnostics.render import Format
from parc.compiler.diagnostics.sink import Sink
from parc.compiler.ir.finding import Severity


@click.command("verify")
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@options.format_option("text", "json", "sarif", "github")
@options.fail_on_option
@click.pass_context
def command(ctx: click.Context, directory: Path, style: str, fail_on: str) -> None:
    """Check an output directory again, and find what was edited.

    By a second route: reads the files as they are, builds the groups of the framework anew from
    the emitted arguments and compares them with the rank map, the hostfile and the launch
    scripts. A file that contradicts another one or is missing is an error; one that was changed
    after it was written, by its digest in DIR/parc.lock, is a warning. docs/verify.md says more.
    """
    from parc.compiler.ir.positions import Positions
    from parc.compiler.report.json.directory import read_directory, texts
    from parc.compiler.verify.verify_plan import verify_artifacts
    from parc.compiler.verify.verify_written import verify_written

    sink = Sink(Positions(file=directory.as_posix()))
    files = read_directory(directory)
    verify_artifacts(texts(files), sink)
    verify_written(files, sink)
    session.show_findings((sink,), cast(Format, style), sys.stdout)
    if style == "text" and not sink.diagnostics:
        click.echo(f"{directory.as_posix()}: {len(files)} files are as written, and agree")
    ctx.exit(session.FOUND if sink.failed(cast(Severity, fail_on)) else 0)
