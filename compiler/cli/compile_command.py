"""Implementation of ``parc compile``: plan, emit files, compare with the directory, write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from parc.compiler.cli.output_checks import (
    LockContent,
    compare_files,
    compare_hosts,
    compare_locked_decisions,
    report_edits,
)
from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir import AnyPlan
from parc.compiler.ir.frozen import frozen
from parc.compiler.pipeline import (
    emit_plan,
    plan_resolved,
    resolve_for_plan,
    try_fixes_of_plan,
)
from parc.compiler.plugin_errors import has_plugin
from parc.compiler.report.text.start_text import describe_missing_start, start_lines
from parc.compiler.report.text.summary import summary_document, summary_text
from parc.compiler.spec.reading.source import read_source
from parc.compiler.writer import write_artifacts


@frozen
class CompileRequest:
    """Options of ``parc compile``."""

    spec: str
    output: Path | None
    overrides: tuple[str, ...]
    root: Path | None
    emit: str | None
    check: bool
    locked: bool
    timings: bool
    style: str


@frozen
class CompileOutcome:
    """Result of ``parc compile``. The field ``plan`` is None if an error was reported."""

    sink: Sink
    plan: AnyPlan | None = None
    directory: str = ""
    files: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    """Commands that start the job, in words; empty if no file is known to start it."""
    written: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the document that ``parc compile --format json`` prints."""
        from parc.compiler.diagnostics.render.json_document import diagnostics_document

        result = diagnostics_document((self.sink,))
        if self.plan is not None:
            result["plan"] = summary_document(self.plan)
            result["directory"] = self.directory
            result["files"] = list(self.files)
            result["start"] = list(self.starts) or None
            result["written"] = self.written
        return result

    def text(self) -> str:
        """Return the summary of the plan and the output folder; empty without a plan."""
        if self.plan is None:
            return ""
        count = format_count(len(self.files), "file")
        done = f"wrote     {count} to" if self.written else f"check     OK: {count}, up to date in"
        starts = "\n          ".join(self.starts) or describe_missing_start(self.plan)
        start = f"start     {starts}\n" if self.written else ""
        return f"{summary_text(self.plan)}{done} {self.directory}\n{start}"


def compile_spec(request: CompileRequest, clock: PhaseTimer) -> CompileOutcome:
    """Run ``parc compile``: plan the spec, emit its files, and write them.

    The plan is also compared with ``parc.lock``. With ``--check``, the files are not written but
    compared with those in the output folder.
    """
    sink = Sink()
    overrides = request.overrides
    # --emit is an override of the spec, so that errors point to the option.
    if request.emit is not None:
        overrides += (f"emit=[{request.emit}]",)
    source = read_source(request.spec, root=request.root)
    clock("read_source")
    found = resolve_for_plan(source, overrides, sink, clock)
    if found is None or sink.failed():
        return CompileOutcome(sink)
    directory = request.output or Path("build") / found.problem.name
    lock = LockContent.from_directory(directory)
    plan = plan_resolved(found, sink, clock, lock.plan if request.locked else None)
    if plan is None or sink.failed():
        try_fixes_of_plan(source, overrides, found.problem, sink)
        return CompileOutcome(sink)
    # With --check, files that equal those on disk were verified when they were written.
    artifacts = emit_plan(plan, sink, clock, verify=not request.check or has_plugin(plan))
    if request.locked:
        compare_locked_decisions(lock, plan, sink)
    else:
        compare_hosts(lock, plan, sink)
    if request.check:
        compare_files(artifacts, directory, sink)
    if sink.failed():
        return CompileOutcome(sink)
    files = tuple(sorted(artifact.path for artifact in artifacts))
    starts = start_lines(plan, artifacts, directory.as_posix())
    outcome = CompileOutcome(sink, plan, directory.as_posix(), files, starts)
    if request.check:
        return outcome
    report_edits(artifacts, directory, sink)  # before the write, which removes the edits
    write_artifacts(artifacts, directory)
    clock("write_artifacts")
    return replace(outcome, written=True)


class PhaseTimer:
    """Stopwatch for the phases of a compile. A call with the name of a phase ends this phase."""

    def __init__(self) -> None:
        """Start measuring the first phase."""
        self.parts: list[tuple[str, float]] = []
        self._last = perf_counter()

    def __call__(self, name: str) -> None:
        """End the phase ``name``, and record the time since the previous phase ended."""
        now = perf_counter()
        self.parts.append((name, now - self._last))
        self._last = now

    def table(self) -> str:
        """Return a table with the milliseconds of each phase and their sum."""
        rows = [*self.parts, ("total", sum(spent for _, spent in self.parts))]
        return "\n".join(f"{name:<16} {spent * 1e3:9.1f} ms" for name, spent in rows)
