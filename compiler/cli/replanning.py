"""What ``parc replan`` does between its options and its output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parc.compiler.cli.locking import Lock
from parc.compiler.cli.on_disk import report_edits
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.pipeline import emit_plan
from parc.compiler.replan_pipeline import AnyReplanned, ReplanRequest, replan_spec
from parc.compiler.report.json.plan_json import LOCK_PATH
from parc.compiler.report.text.replan_text import replan_document, replan_text
from parc.compiler.spec.reading.source import read_source
from parc.compiler.writer import write_artifacts


@dataclass(frozen=True, slots=True)
class Request:
    """The options of the command."""

    spec: str
    drain: tuple[str, ...]
    output: Path | None
    overrides: tuple[str, ...]
    dry_run: bool
    style: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it; ``found`` is None where there was an error."""

    sink: Sink
    found: AnyReplanned | None = None
    origin: str = ""
    directory: str = ""
    files: int = 0

    def to_json(self) -> dict[str, Any]:
        """The document of ``--format json``."""
        from parc.compiler.diagnostics.render.json_document import document

        result = document((self.sink,))
        if self.found is not None:
            result["replan"] = replan_document(self.found, self.origin)
            result["directory"] = self.directory
            result["written"] = self.files > 0
        return result

    def text(self) -> str:
        """The moves, and where the files are; empty after an error."""
        if self.found is None:
            return ""
        lines = replan_text(self.found, self.origin)
        return lines + (f"wrote     {self.directory}: {self.files} files\n" if self.files else "")


def replan(request: Request) -> Outcome:
    """Replan; emit, verify and write unless told not to."""
    sink = Sink()
    source = read_source(request.spec)
    hosts = ReplanRequest(request.drain, lambda name: _text(_directory(request, name) / LOCK_PATH))
    found = replan_spec(source, request.overrides, hosts, sink)
    if found is None:
        return Outcome(sink)
    replanned, previous = found
    directory = _directory(request, replanned.plan.problem.name)
    lock = (directory / LOCK_PATH).as_posix()
    origin = lock if previous.locked else "a compile of the spec"
    if not previous.locked and Path(lock).exists():
        _report_passed_over(Lock.read(directory), sink)
    if request.dry_run:
        return Outcome(sink, replanned, origin, directory.as_posix())
    artifacts = emit_plan(replanned.plan, sink)
    if sink.failed():
        return Outcome(sink)
    report_edits(artifacts, directory, sink)
    write_artifacts(artifacts, directory)
    return Outcome(sink, replanned, origin, directory.as_posix(), len(artifacts))


def _report_passed_over(lock: Lock, sink: Sink) -> None:
    """O04: the hosts that run may be others than those that the moves are counted from."""
    finding = Finding(
        f"{lock.path} {lock.why or 'is of another layout, or of other hosts'}: it is passed over",
        label="moves are counted from a compile of the spec, not from the plan that may run",
        help="to keep the hosts of that plan, restore its parc.lock and replan again",
    )
    sink.report("O04", finding)


def _directory(request: Request, name: str) -> Path:
    """Where the plan of the run ``name`` is, and goes: as for ``parc compile``."""
    return request.output or Path("build") / name


def _text(lock: Path) -> str | None:
    """The text of the lock file; None where there is none."""
    return lock.read_bytes().decode("utf-8", "replace") if lock.is_file() else None
