"""Command ``parc check``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from parc.compiler.cli import command_steps, options
from parc.compiler.cli.exit_codes import UNREADABLE
from parc.compiler.diagnostics.render import Format
from parc.compiler.diagnostics.sink import Sink
from parc.compiler.ir.finding import Severity

if TYPE_CHECKING:
    from parc.compiler.spec.reading.source import SpecSource
    from parc.compiler.tools.fix_spec import FixedSpec

_Checked = tuple[Sink, bool] | str

WATCH_SECONDS = 0.5
"""Seconds after which ``--watch`` reads the modification times of the files again."""
_NAMED_FILES = ("*.yaml", "*.yml", "*.json", "*.conf")
"""Names of the files in the folder of a spec that ``--watch`` observes: a spec can name them."""


@click.command("check")
@click.argument(
    "specs", metavar="SPEC...", nargs=-1, required=True, shell_complete=options.complete_path
)
@options.set_option
@options.root_option
@options.format_option("text", "json", "sarif", "github")
@options.fail_on_option
@click.option("--fix", is_flag=True, help="Write the fixes of errors and warnings into SPEC.")
@click.option("--diff", is_flag=True, help="Print what --fix would change; write nothing.")
@click.option("--watch", is_flag=True, help="Check again after each change, until interrupted.")
@click.pass_context
def command(
    ctx: click.Context, /, specs: tuple[str, ...], fix: bool, diff: bool, watch: bool, **given: Any
) -> None:
    """Report all errors, warnings and advice for each SPEC; --fix corrects them.

    Without --fix, nothing is written. The findings about SPEC are those of parc compile, which also
    verifies the files that it writes.

    SPEC is a file, or - for standard input. One run reports the findings of all specs; it checks
    many files on all cores.

    With --fix, each fix is applied and kept only if its finding disappears and no new one appears,
    until no fix is left. Comments and all other lines of SPEC stay. --diff exits with 1 if --fix
    would change a file.
    """
    if (fix or diff or watch) and "-" in specs:
        raise click.UsageError("--fix, --diff and --watch need files, not standard input")
    if (fix or diff) and given["overrides"]:
        raise click.UsageError("--set is not part of SPEC, so it cannot be combined with --fix")
    given["fix"] = "diff" if diff else "write" if fix else ""
    if watch:
        _watch(specs, lambda: _check_all(specs, **given))
    else:
        ctx.exit(_check_all(specs, **given))


def _check_all(specs: Sequence[str], style: str, fail_on: str, fix: str, **given: Any) -> int:
    """Check all specs, print the findings, and return the exit code."""
    check = partial(_check_spec, fix=fix, style=style, **given)
    results = []
    for result in map(check, specs) if fix else command_steps.map_specs(check, specs):
        if isinstance(result, str):
            click.echo(f"parc: {result}", err=True)
        else:
            results.append(result)
    sinks = [sink for sink, _ in results]
    # Standard output contains only the diff, so that `patch` can read it.
    stream = sys.stderr if fix == "diff" else sys.stdout
    command_steps.show_findings(sinks, cast(Format, style), stream)
    if len(sinks) < len(specs):  # an unreadable spec outweighs findings
        return UNREADABLE
    if style == "text" and not any(sink.diagnostics for sink in sinks):
        checked = specs[0] if len(specs) == 1 else f"{len(specs)} specs"
        click.echo(f"OK: {checked}, no findings.", file=stream)
    would_change = any(changed for _, changed in results)
    failed = command_steps.any_failed(sinks, cast(Severity, fail_on)) or would_change
    return command_steps.FOUND if failed else 0


def _check_spec(
    spec: str, fix: str, style: str, overrides: tuple[str, ...], root: Path | None
) -> _Checked:
    """Return (sink with the findings of one spec, True if a diff was printed).

    Return an error message if the file cannot be read. If ``fix`` is ``write`` or ``diff``, the
    findings are those that remain after the fixes.
    """
    from parc.compiler.pipeline import check_spec
    from parc.compiler.spec.reading.source import UnreadableFileError, read_source

    def findings(source: SpecSource) -> Sink:
        sink = Sink()
        check_spec(source, overrides, sink)
        return sink

    try:
        source = read_source(spec, root=root)
    except UnreadableFileError as error:
        return str(error)
    if not fix:
        return findings(source), False
    from parc.compiler.tools.fix_spec import fix_spec

    found = fix_spec(source, findings)
    if fix == "diff":
        click.echo(_unified_diff(spec, source.text, found.text), nl=False)
        return found.remaining, found.text != source.text
    _write_fixes(source, found, to_stderr=style != "text")
    return found.remaining, False


def _unified_diff(name: str, old: str, new: str) -> str:
    from difflib import unified_diff

    lines = unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), name, f"{name} (fixed)"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _write_fixes(source: SpecSource, fixed: FixedSpec, *, to_stderr: bool) -> None:
    """Replace the file of ``source`` by the fixed text, and print what was fixed."""
    from parc.compiler.spec.reading.source import read_source
    from parc.compiler.writer import WriteRefused, write_file

    if fixed.text == source.text:
        return
    # An editor may have saved the file while the fixes were tried.
    if read_source(source.name).text != source.text:
        raise WriteRefused(f"{source.name} was changed by another program; nothing is written")
    write_file(Path(source.name), fixed.text, "", by="parc check --fix")
    for one in fixed.fixed:
        line = f":{one.span.line}" if one.span is not None else ""
        click.echo(f"fixed {source.name}{line} [{one.code}]: {one.finding.fix}", err=to_stderr)


def _watch(
    specs: Sequence[str],
    check: Callable[[], object],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Call ``check`` now and after each change of a watched file, until the user interrupts.

    The watched files are the specs, and the files in their folders that a spec can name.
    """
    previous: dict[Path, tuple[int, int]] | None = None
    try:
        while True:
            current = _file_states(specs)
            if current != previous:
                check()
                # The state before the check is kept, so that a change during the check is seen. A
                # file that the check itself wrote (--fix) causes one more check.
                previous = current
            sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return


def _file_states(specs: Sequence[str]) -> dict[Path, tuple[int, int]]:
    """Return (watched file -> modification time and size). Missing files are left out."""
    paths = {Path(spec) for spec in specs}
    for folder in {path.parent for path in paths}:
        paths.update(found for pattern in _NAMED_FILES for found in folder.glob(pattern))
    states = {}
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            continue
        states[path] = (found.st_mtime_ns, found.st_size)
    return states
