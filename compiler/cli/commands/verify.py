"""Command ``parc verify``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import click

from parc.compiler.cli import command_steps, options
from parc.compiler.diagnostics.render import Format
from parc.compiler.diagnostics.sink import Sink
from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir.finding import Severity


@click.command("verify")
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@options.format_option("text", "json", "sarif", "github")
@options.fail_on_option
@click.pass_context
def command(ctx: click.Context, directory: Path, style: str, fail_on: str) -> None:
    """Verify an output folder again, and list edited or missing files.

    An independent verifier derives the framework's process groups from the emitted arguments and
    compares them with the rank map, the hostfile and the launch scripts. A missing file or a
    contradiction between files is an error. A file whose checksum differs from the one in
    DIR/parc.lock is a warning. The command also exits with 1 if files of a plugin cannot be
    verified because the plugin has no verifier (A13). docs/verify.md has the details.
    """
    from parc.compiler.ir.finding import SpecPositions
    from parc.compiler.report.json.output_directory import (
        decode_files,
        read_directory,
        unrecognized_names,
    )
    from parc.compiler.verify.select_verifiers import UNVERIFIED
    from parc.compiler.verify.verify_checksums import report_other_names, verify_checksums
    from parc.compiler.verify.verify_pools import verify_output

    sink = Sink(SpecPositions(file=directory.as_posix()))
    files = read_directory(directory)
    texts = decode_files(files)
    verify_output(texts, sink)
    verify_checksums(files, sink)
    report_other_names(unrecognized_names(directory, files), sink)
    # The lines of the files with findings, which the text shows.
    shown = {one.span.file for one in sink.diagnostics if one.span} & texts.keys()
    lines = {name: tuple(texts[name].splitlines()) for name in shown}
    sink.positions = replace(sink.positions, lines=lines)
    command_steps.show_findings((sink,), cast(Format, style), sys.stdout)
    if style == "text" and not sink.diagnostics:
        click.echo(f"OK: {format_count(len(files), 'file')}, consistent and unmodified.")
    unverified = any(one.code == f"PARC-{UNVERIFIED}" for one in sink.diagnostics)
    ctx.exit(command_steps.FOUND if unverified or sink.failed(cast(Severity, fail_on)) else 0)
