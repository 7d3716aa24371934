"""``parc lint``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from parc.compiler.cli import options, session
from parc.compiler.cli.exit_codes import UNREADABLE
from parc.compiler.diagnostics.render import Format
from parc.compiler.ir.finding import Severity

if TYPE_CHECKING:
    from parc.compiler.tools.lint.more import More, Skipped
    from parc.compiler.tools.lint.script_sink import ScriptSink

SHOWN = 8
"""Facts that are missing and named; the rest is counted."""


@click.command("lint")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--framework",
    type=click.Choice(["auto", "megatron", "deepspeed", "vllm", "none"]),
    default="auto",
    show_default=True,
    help="What the file starts; auto: seen from its content, none: the launch lines alone.",
)
@click.option(
    "--version", metavar="X.Y", default="", help="Version of the framework; absent: its default."
)
@click.option("--model", metavar="NAME", help="Catalog name or config.json of what it trains.")
@click.option("--cluster", metavar="NAME", help="Catalog name of the cluster, or of its nodes.")
@click.option("--gpus", metavar="N", type=click.IntRange(1, 10**6), help="GPUs of the job.")
@options.format_option("text", "json", "sarif", "github")
@options.fail_on_option
@click.pass_context
def command(ctx: click.Context, /, files: tuple[str, ...], **given: Any) -> None:
    """Judge launch scripts that somebody else wrote by the same rules.

    FILE is a shell or batch script that starts Megatron-LM or vLLM, or a config of DeepSpeed; -
    is standard input. Findings stand at the flags of the script, with the codes of parc check.
    A rule that needs what the script does not say is skipped, and that is said; --model,
    --cluster and --gpus say it. docs/lint.md has the details.
    """
    from parc.compiler.tools.lint.more import More

    style, fail_on = given.pop("style"), cast(Severity, given.pop("fail_on"))
    more = More(**given, folder=Path())
    linted = [found for name in files if (found := _linted(name, more)) is not None]
    sinks = [sink for sink, _ in linted]
    session.show_findings(sinks, cast(Format, style), sys.stdout)
    if style == "text":
        _conclude(linted)
    if len(linted) < len(files):
        ctx.exit(UNREADABLE)
    if session.any_failed(sinks, fail_on):
        ctx.exit(session.FOUND)


def _linted(name: str, more: More) -> tuple[ScriptSink, list[Skipped]] | None:
    """What is wrong with one file; None, and a line, where it cannot be read."""
    from parc.compiler.spec.reading.source import Unreadable, read_source
    from parc.compiler.tools.lint.lint_file import lint_text

    try:
        source = read_source(name)
    except Unreadable as error:
        click.echo(f"parc: {error}", err=True)
        return None
    return lint_text(source.text, source.name, more)


def _conclude(linted: Sequence[tuple[ScriptSink, list[Skipped]]]) -> None:
    """Files that are fine, and the rules that were not asked."""
    for sink, skipped in linted:
        name = sink.positions.file
        if not sink.diagnostics:
            click.echo(f"{name}: nothing found")
        by_need: dict[str, list[str]] = {}
        for one in skipped:
            by_need.setdefault(one.needs, []).append(one.code)
        for need, codes in sorted(by_need.items())[:SHOWN]:
            listed = ", ".join(f"PARC-{code}" for code in dict.fromkeys(codes))
            click.echo(f"{name}: not known: {need}; not asked: {listed}")
