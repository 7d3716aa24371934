"""What ``parc compile`` does between its options and its output: plan, emit, compare, write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parc.compiler.cli.clock import Clock
from parc.compiler.cli.locking import Lock, compare_decisions, compare_hosts
from parc.compiler.cli.on_disk import compare_files, report_edits
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan
from parc.compiler.pipeline import emit_plan, plan_any, resolve_spec
from parc.compiler.report.text.summary import summary_document, summary_text
from parc.compiler.spec.reading.source import read_source
from parc.compiler.writer import write_artifacts


@dataclass(frozen=True, slots=True)
class Request:
    """The options of the command."""

    spec: str
    output: Path | None
    overrides: tuple[str, ...]
    emit: str | None
    check: bool
    locked: bool
    timings: bool
    style: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it; ``plan`` is None where the spec has errors."""

    sink: Sink
    plan: AnyPlan | None = None
    directory: str = ""
    files: tuple[str, ...] = ()
    written: bool = False

    def to_json(self) -> dict[str, Any]:
        """The document of ``--format json``."""
        from parc.compiler.diagnostics.render.json_document import document

        result = document((self.sink,))
        if self.plan is not None:
            result["plan"] = summary_document(self.plan)
            result["directory"] = self.directory
            result["files"] = list(self.files)
            result["written"] = self.written
        return result

    def text(self) -> str:
        """The summary of a plan and where its files are; empty without a plan."""
        if self.plan is None:
            return ""
        verb = "wrote" if self.written else "checked"
        files = f"{self.directory}: {len(self.files)} files"
        return f"{summary_text(self.plan)}{verb:<9} {files}\n"


def compile_spec(request: Request, clock: Clock) -> Outcome:
    """Plan, emit, compare with the directory as asked, and write unless told not to."""
    sink = Sink()
    overrides = request.overrides
    if request.emit is not None:
        overrides += (f"emit=[{request.emit}]",)
    source = read_source(request.spec)
    clock("read_source")
    problem = resolve_spec(source, overrides, sink, clock)
    if problem is None or sink.failed():
        return Outcome(sink)
    directory = request.output or Path("build") / problem.name
    lock = Lock.read(directory)
    plan = plan_any(problem, sink, clock, lock.plan if request.locked else None)
    if plan is None or sink.failed():
        return Outcome(sink)
    artifacts = emit_plan(plan, sink, clock)
    if request.locked:
        compare_decisions(lock, plan, sink)
    else:
        compare_hosts(lock, plan, sink)
    if request.check:
        compare_files(artifacts, directory, sink)
    if sink.failed():
        return Outcome(sink)
    files = tuple(sorted(artifact.path for artifact in artifacts))
    outcome = Outcome(sink, plan, directory.as_posix(), files)
    if request.check:
        return outcome
    report_edits(artifacts, directory, sink)
    write_artifacts(artifacts, directory)
    clock("write_artifacts")
    return replace(outcome, written=True)
