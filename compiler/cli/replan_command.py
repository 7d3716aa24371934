"""Implementation of ``parc replan``: move ranks to other hosts, emit files, write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parc.compiler.cli.output_checks import LockContent, report_edits
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir.frozen import frozen
from parc.compiler.pipeline import emit_plan
from parc.compiler.replan_pipeline import AnyReplanned, HostReplacement, replan_spec
from parc.compiler.report.json.plan_json import LOCK_PATH
from parc.compiler.report.text.replan_text import replan_document, replan_text
from parc.compiler.spec.reading.source import read_source
from parc.compiler.writer import write_artifacts


@frozen
class ReplanRequest:
    """Options of ``parc replan``."""

    spec: str
    drain: tuple[str, ...]
    output: Path | None
    overrides: tuple[str, ...]
    root: Path | None
    dry_run: bool
    style: str


@frozen
class ReplanOutcome:
    """Result of ``parc replan``. The field ``found`` is None after an error."""

    sink: Sink
    found: AnyReplanned | None = None
    origin: str = ""
    directory: str = ""
    files: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the document that ``parc replan --format json`` prints."""
        from parc.compiler.diagnostics.render.json_document import diagnostics_document

        result = diagnostics_document((self.sink,))
        if self.found is not None:
            result["replan"] = replan_document(self.found, self.origin)
            result["directory"] = self.directory
            result["written"] = self.files > 0
        return result

    def text(self) -> str:
        """Return the list of moves and the output folder as text; empty after an error."""
        if self.found is None:
            return ""
        lines = replan_text(self.found, self.origin)
        return lines + (
            f"wrote     {format_count(self.files, 'file')} to {self.directory}\n"
            if self.files
            else ""
        )


def replan(request: ReplanRequest) -> ReplanOutcome:
    """Run ``parc replan``: move the ranks of drained hosts, and emit, verify and write the files.

    With ``--dry-run``, only the moves are computed.
    """
    sink = Sink()
    source = read_source(request.spec, root=request.root)
    # The default directory depends on the name in the spec, which replan_spec reads.
    hosts = HostReplacement(
        request.drain, lambda name: _read_lock(_output_directory(request, name) / LOCK_PATH)
    )
    found = replan_spec(source, request.overrides, hosts, sink)
    if found is None:
        return ReplanOutcome(sink)
    replanned, previous = found
    directory = _output_directory(request, replanned.plan.problem.name)
    lock = (directory / LOCK_PATH).as_posix()
    origin = lock if previous.locked else "a compile of the spec"
    if not previous.locked and Path(lock).exists():
        _report_unused_lock(LockContent.from_directory(directory), sink)
    if request.dry_run:
        return ReplanOutcome(sink, replanned, origin, directory.as_posix())
    artifacts = emit_plan(replanned.plan, sink)
    if sink.failed():
        return ReplanOutcome(sink)
    report_edits(artifacts, directory, sink)
    write_artifacts(artifacts, directory)
    return ReplanOutcome(sink, replanned, origin, directory.as_posix(), len(artifacts))


def _report_unused_lock(lock: LockContent, sink: Sink) -> None:
    """Report that ``parc.lock`` is ignored (O04).

    The new plan may then use other hosts than the running job.
    """
    finding = Finding(
        f"{lock.path} is ignored, because it {lock.why or 'has a layout or hosts that do not fit'}",
        label="the replan starts from a new compile of the spec, whose hosts may differ from those "
        "of the running job",
        help="to keep the hosts of the running plan, restore its parc.lock and replan again",
    )
    sink.report("O04", finding)


def _output_directory(request: ReplanRequest, name: str) -> Path:
    """Return the output folder, which contains the current plan and receives the new plan."""
    return request.output or Path("build") / name


def _read_lock(lock: Path) -> str | None:
    """Return the text of the lock file; None if the file does not exist."""
    return lock.read_bytes().decode("utf-8", "replace") if lock.is_file() else None
