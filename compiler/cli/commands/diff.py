"""Command ``parc diff``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from parc.compiler.cli import command_steps, options
from parc.compiler.diagnostics import Sink
from parc.compiler.ir.finding import Diagnostic
from parc.compiler.report.diff.read_side import NotAnOutputDirectory

CHANGED = 3


@click.command("diff")
@click.argument("old", metavar="OLD", shell_complete=options.complete_path)
@click.argument("new", metavar="NEW", shell_complete=options.complete_path)
@options.root_option
@options.format_option("text", "markdown", "json")
@click.option("--exit-code", is_flag=True, help="Exit with 3 if the diff lists any change.")
@click.pass_context
def command(ctx: click.Context, /, old: str, new: str, exit_code: bool, **given: Any) -> None:
    """Compare two specs or two output folders.

    The diff shows changes of all spec fields, parallel sizes, memory, step time and flags. It lists
    the ranks that move, the process groups with other members, and the groups that did not span
    racks before. It also shows whether checkpoints of OLD load with NEW, and which lines of files
    were edited by hand. A spec is compiled in memory; the files of a folder are read as they
    are. If OLD is a launch script or a configuration file of a framework, the diff shows the
    arguments, variables, directives and commands that differ.
    """
    from parc.compiler.report.diff.diff_pools import diff_plans

    launch = _read_launch(old)
    if launch is not None:
        _diff_launch(ctx, (old, launch), new, exit_code, **given)
        return

    try:
        (first, findings), (second, others) = (
            _read_or_compile_files(name, **given) for name in (old, new)
        )
        command_steps.show_findings((findings, _without(findings, others)), "text", sys.stderr)
        found = diff_plans((old, first), (new, second))
    except NotAnOutputDirectory as error:
        raise click.UsageError(str(error)) from None
    style = given["style"]
    if style == "json":
        command_steps.print_json(found.to_json())
    else:
        click.echo(found.markdown() if style == "markdown" else found.text(), nl=False)
    ctx.exit(CHANGED if exit_code and found.has_changes else 0)


def _read_launch(name: str) -> str | None:
    """Return the text of a launch file; None for a folder, a spec or standard input."""
    if name == "-" or Path(name).is_dir():
        return None
    from parc.compiler.spec.reading.source import read_source
    from parc.compiler.tools.launch_diff import is_launch

    text = read_source(name).text
    return text if is_launch(text) else None


def _diff_launch(
    ctx: click.Context, launch: tuple[str, str], new: str, exit_code: bool, **given: Any
) -> None:
    """Print the differences between a launch file and ``new``, a spec or an output folder.

    ``launch`` is (name, text) of the launch file. If ``exit_code`` is True and there are
    differences, the exit code is CHANGED.
    """
    from parc.compiler.report.diff import text as diff_text
    from parc.compiler.tools.launch_diff import diff_launch

    style = given["style"]
    files, findings = _read_or_compile_files(new, **given)
    command_steps.show_findings((findings,), "text", sys.stderr)
    found = diff_launch(*launch, new, files)
    names = (found.old, found.new)
    if style == "json":
        command_steps.print_json(found.to_json())
    else:
        show = diff_text.render_markdown if style == "markdown" else diff_text.render_plain_text
        click.echo(show(names, found.headline(), found.sections()), nl=False)
    ctx.exit(CHANGED if exit_code and found.has_changes else 0)


def _without(shown: Sink, sink: Sink) -> Sink:
    """Return the findings of ``sink`` that ``shown`` does not have, at any line of the spec."""
    known = {_content(one) for one in shown.diagnostics}
    rest = Sink()
    rest.extend(sink, lambda one: None if _content(one) in known else one)
    return rest


def _content(found: Diagnostic) -> tuple[str, str, str, str]:
    return found.code, found.path, found.finding.message, found.finding.label


def _read_or_compile_files(name: str, style: str, root: Path | None) -> tuple[dict[str, str], Sink]:
    """Return (path -> text of each output file, warnings about the spec).

    ``name`` is an output folder, or a spec that is compiled in memory.
    """
    if Path(name).is_dir():
        from parc.compiler.report.json.output_directory import read_output_texts

        return read_output_texts(Path(name)), Sink()
    from parc.compiler.pipeline import emit_plan

    plan, sink = command_steps.plan_or_exit(name, (), style=style, root=root)
    return {artifact.path: artifact.text for artifact in emit_plan(plan, sink)}, sink
