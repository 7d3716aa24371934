"""Command ``parc compile``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from parc.compiler.cli import command_steps, options
from parc.compiler.cli.exit_codes import UNREADABLE
from parc.compiler.diagnostics.sink import Sink


@click.command("compile")
@click.argument(
    "specs", metavar="SPEC...", nargs=-1, required=True, shell_complete=options.complete_path
)
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Output folder, which is replaced as a whole; the default is build/NAME.",
)
@options.set_option
@options.root_option
@click.option(
    "--emit",
    metavar="NAME,...",
    help="Targets to write files for; this replaces the list `emit` in the spec.",
)
@click.option("--check", is_flag=True, help="Write nothing; fail if files on disk are out of date.")
@click.option(
    "--locked",
    is_flag=True,
    help="Keep the hosts in DIR/parc.lock; fail if any other decision differs from that file.",
)
@click.option("--timings", is_flag=True, help="Print the duration of each phase to standard error.")
@options.format_option("text", "json")
@click.pass_context
def command(ctx: click.Context, /, specs: tuple[str, ...], **given: Any) -> None:
    """Compile SPEC into launch files and a rank map.

    SPEC is a file, or - for standard input. The output folder is replaced as a whole or not at
    all, and only if PARC wrote it. The output depends only on SPEC; with --locked, it also depends
    on DIR/parc.lock, because the ranks stay on the hosts that this file lists.

    With --check, several SPECs are accepted: each is compared with its own build/NAME, and many are
    compared on all cores.
    """
    if len(specs) == 1:
        ctx.exit(_compile_one(specs[0], **given))
    if not given["check"] or given["output"] is not None or given["timings"]:
        raise click.UsageError(
            f"{len(specs)} specs are accepted only with --check, and without --output and --timings"
        )
    ctx.exit(_check_all(specs, **given))


def _compile_one(spec: str, **given: Any) -> int:
    """Compile one spec, print the result, and return the exit code."""
    from parc.compiler.cli.compile_command import CompileRequest, PhaseTimer, compile_spec

    request = CompileRequest(spec, **given)
    clock = PhaseTimer()
    outcome = compile_spec(request, clock)
    if request.timings:
        click.echo(clock.table(), err=True)
    if request.style == "json":
        command_steps.print_json(outcome.to_json())
    else:
        command_steps.show_findings((outcome.sink,), "text", sys.stderr)
        click.echo(outcome.text(), nl=False)
    return command_steps.FOUND if outcome.sink.failed() else 0


def _check_all(specs: Sequence[str], **given: Any) -> int:
    """Compare the files of each spec with its folder, print the results, return the exit code.

    The JSON document has one entry per spec, in the form that one spec has.
    """
    documents: list[dict[str, Any]] = []
    sinks: list[Sink] = []
    for spec, result in zip(
        specs, command_steps.map_specs(partial(_check_spec, **given), specs), strict=True
    ):
        if isinstance(result, str):
            click.echo(f"parc: {result}", err=True)
            continue
        sinks.append(result[0])
        documents.append({"spec": spec, **result[1]})
    if given["style"] == "json":
        command_steps.print_json({"specs": documents})
    else:
        command_steps.show_findings(sinks, "text", sys.stderr)
        current = sum(not sink.failed() for sink in sinks)
        click.echo(f"check     {current} of {len(specs)} specs are OK and up to date")
    if len(sinks) < len(specs):  # an unreadable spec outweighs findings
        return UNREADABLE
    return command_steps.FOUND if command_steps.any_failed(sinks, "error") else 0


def _check_spec(spec: str, **given: Any) -> tuple[Sink, dict[str, Any]] | str:
    """Return (findings, JSON document) of one spec; an error message if it cannot be read."""
    from parc.compiler.cli.compile_command import CompileRequest, PhaseTimer, compile_spec
    from parc.compiler.spec.reading.source import UnreadableFileError

    try:
        outcome = compile_spec(CompileRequest(spec, **given), PhaseTimer())
    except UnreadableFileError as error:
        return str(error)
    # A plan can be large, so that a worker process does not return it.
    return outcome.sink, outcome.to_json()
