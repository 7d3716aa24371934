"""Command ``parc lint``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from parc.backends.registry import all_declarations
from parc.compiler.cli import command_steps, options
from parc.compiler.cli.exit_codes import UNREADABLE
from parc.compiler.diagnostics.render import Format
from parc.compiler.ir.finding import Severity

if TYPE_CHECKING:
    from parc.compiler.tools.lint.options import LintOptions, SkippedRule
    from parc.compiler.tools.lint.script import ScriptSink


LINTED = tuple(one.name for one in all_declarations() if one.linter)
HELP = f"""\
Apply the rules of PARC to launch scripts that PARC did not write.

FILE is a shell or batch script, or a config file, of one of these programs: {", ".join(LINTED)}; a
dash stands for standard input. Findings point to the flags of the script and have the codes of parc
check. A rule is skipped, and listed as skipped, if the script lacks a fact that the rule needs; the
options --model, --cluster and --gpus supply such facts. A script of which nothing can be checked is
an error unless --allow-unknown is given. docs/lint.md has the details.
"""


@click.command("lint", help=HELP)
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, shell_complete=options.complete_path
)
@click.option(
    "--framework",
    type=click.Choice(["auto", *LINTED, "none"]),
    default="auto",
    show_default=True,
    help="Framework that the file starts; auto: detect it; none: check only the launch lines.",
)
@click.option(
    "--version",
    metavar="X.Y",
    default="",
    help="Version of the framework; by default the version that PARC emits files for.",
)
@click.option("--model", metavar="NAME", help="Catalog name or config.json of the model.")
@click.option("--cluster", metavar="NAME", help="Catalog name of the cluster or of its node type.")
@click.option(
    "--gpus", metavar="N", type=click.IntRange(1, 10**6), help="Number of GPUs that the job uses."
)
@click.option(
    "--allow-unknown",
    is_flag=True,
    help="Accept files of which PARC can check nothing, or only the launch lines.",
)
@options.format_option("text", "json", "sarif", "github")
@options.fail_on_option
@click.pass_context
def command(ctx: click.Context, /, files: tuple[str, ...], **given: Any) -> None:
    """Lint the files; print the findings, and what was skipped; exit with the code of these."""
    from parc.compiler.tools.lint.options import LintOptions

    style, fail_on = given.pop("style"), cast(Severity, given.pop("fail_on"))
    lint_options = LintOptions(**given, folder=Path())
    linted = [found for name in files if (found := _lint_file(name, lint_options)) is not None]
    sinks = [sink for sink, _ in linted]
    if style == "json":
        command_steps.print_json(_json_document(linted))
    else:
        command_steps.show_findings(sinks, cast(Format, style), sys.stdout)
    if style == "text":
        _print_conclusion(linted)
    if len(linted) < len(files):  # an unreadable file outweighs findings
        ctx.exit(UNREADABLE)
    if command_steps.any_failed(sinks, fail_on):
        ctx.exit(command_steps.FOUND)


def _lint_file(name: str, lint_options: LintOptions) -> tuple[ScriptSink, list[SkippedRule]] | None:
    """Return (sink with the findings, skipped rules) of one file.

    Print an error and return None if the file cannot be read.
    """
    from parc.compiler.spec.reading.source import UnreadableFileError, read_source
    from parc.compiler.tools.lint.lint_file import lint_text

    try:
        source = read_source(name)
    except UnreadableFileError as error:
        click.echo(f"parc: {error}", err=True)
        return None
    return lint_text(source.text, source.name, lint_options)


def _json_document(linted: Sequence[tuple[ScriptSink, list[SkippedRule]]]) -> dict[str, Any]:
    """Return the findings as JSON types. Per file, list the evaluated and the skipped checks."""
    from parc.compiler.diagnostics.render.json_document import diagnostics_document

    files = [
        {
            "file": sink.positions.file,
            "checked": sorted(f"PARC-{code}" for code in sink.checked),
            "skipped": [
                {"code": f"PARC-{one.code}" if one.code else "", "reason": one.reason}
                for one in skipped
            ],
        }
        for sink, skipped in linted
    ]
    return {**diagnostics_document([sink for sink, _ in linted]), "files": files}


def _print_conclusion(linted: Sequence[tuple[ScriptSink, list[SkippedRule]]]) -> None:
    """Print for each file whether it has no findings, and the skipped rules, grouped by reason."""
    for sink, skipped in linted:
        name = sink.positions.file
        if not sink.diagnostics:
            click.echo(f"{name}: OK, no problems found")
        by_reason: dict[str, list[str]] = {}
        for one in skipped:
            by_reason.setdefault(one.reason, []).append(one.code)
        if sink.checked or skipped:
            count = len({one.code for one in skipped})
            click.echo(f"{name}: {len(sink.checked)} checks evaluated, {count} skipped")
        for reason, codes in sorted(by_reason.items()):
            named = (f"PARC-{code}" if code else "all rules" for code in dict.fromkeys(codes))
            click.echo(f"{name}: Skipped {', '.join(named)}: {reason}")
