"""Verify emitted files: re-derive ranks and groups from them, and compare with the rank map.

The derivation is done by the verifiers of the backends, from the framework's own files and with its
arithmetic. They share no code with the emitters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from parc.backends.registry import declaration
from parc.backends.verifier import (
    DerivedGroups,
    EngineVerifier,
    FrameworkVerifier,
    JobShape,
    Verifier,
)
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.verify.read_emitted import (
    DOCUMENT,
    TABLE,
    Malformed,
    RankMap,
    read_document,
    read_lock,
    read_table,
)
from parc.compiler.verify.select_verifiers import (
    UNVERIFIED,
    engine_verifier,
    framework_verifier,
    load_verifiers,
    locked_versions,
    report_unverified,
)
from parc.compiler.verify.verify_decisions import PLAN, read_plan, verify_decisions
from parc.compiler.verify.verify_lock import LOCK, missing_files, promised_files, verify_lock
from parc.compiler.verify.verify_ranks import (
    Table,
    matching_rank_map,
    outline,
    rank_map,
    verify_coordinates,
    verify_document,
    verify_groups,
    verify_hosts,
)
from parc.compiler.verify.verify_serving import verify_engine_ranks, verify_serving_document

ABSENT = "missing, or not a regular file (a link, a folder)"
SERVING_COLUMN = "replica"
"""Column that only the rank maps of serving jobs have."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Folder:
    """Emitted files, what was read of them, and the verifiers that apply."""

    artifacts: Mapping[str, str]
    lock: dict[str, Any] | None
    document: dict[str, Any] | None
    verifiers: Mapping[str, Verifier]
    framework: FrameworkVerifier | None
    engine: EngineVerifier | None
    sink: Sink


def verify_artifacts(artifacts: Mapping[str, str], sink: Sink) -> None:
    """Report an A-code per contradiction; any text of a file ends in findings.

    Args:
        artifacts: path (``rankmap.csv``) -> text. Files that a plan did not emit are absent; a
            file that another one refers to must be there.
        sink: receives the findings, each at its file and line.
    """
    folder = _read_folder(artifacts, sink)
    framework, names = folder.framework, locked_versions(folder.lock)
    recognized = framework is not None or _starts_engine(folder)
    if not recognized and not {TABLE, LOCK} & artifacts.keys():
        sink.report("A03", f"there is neither {TABLE} nor a framework's file to verify")
    missing = dict(missing_files(artifacts, folder.verifiers.values()))
    if folder.lock is not None:
        serving = folder.engine is not None and framework is None
        promised = promised_files(folder.lock, folder.verifiers, serving)
        missing = {file: LOCK for file in promised if file not in artifacts} | missing
    if framework is not None:
        missing |= {file: framework.file for file in framework.needs if file not in artifacts}
    if _check_contents(folder):
        _verify_decisions(folder)
        if TABLE in artifacts:
            _guard(lambda: _verify_rank_map(folder), sink)
    report_unverified(artifacts, names, sink)
    for file, user in sorted(missing.items()):
        verb = "promises" if user == LOCK else "needs"
        sink.report("A03", f"{user} {verb} {file}, which is {ABSENT}", span=Span(file, 1, 1))


def _read_folder(artifacts: Mapping[str, str], sink: Sink) -> _Folder:
    """Read the lock and the document, A04 if they are damaged, and select the verifiers."""

    def read(file: str, reader: Callable[[str], dict[str, Any]]) -> dict[str, Any] | None:
        return _guard(lambda: reader(artifacts[file]), sink) if file in artifacts else None

    lock, document = read(LOCK, read_lock), read(DOCUMENT, read_document)
    names = (*locked_versions(lock), *((str(document.get("framework")),) if document else ()))
    verifiers = load_verifiers(names)
    framework = framework_verifier(verifiers, artifacts)
    engine = engine_verifier(verifiers, artifacts, names)
    return _Folder(artifacts, lock, document, verifiers, framework, engine, sink)


def _check_contents(folder: _Folder) -> bool:
    """Return False if the lock or the framework's files cannot be read.

    Nothing else is compared in that case: a folder that a copy has damaged, for example its line
    ends, would get a finding per file, and its cause is in the first one.
    """
    framework, artifacts, sink = folder.framework, folder.artifacts, folder.sink
    if folder.lock is None and LOCK in artifacts:
        return False
    if framework is None:
        return True
    failed = Sink(sink.positions)
    _guard(lambda: framework.check_contents(artifacts, sink), failed)
    sink.extend(failed)
    return not failed.diagnostics


def _verify_decisions(folder: _Folder) -> None:
    """Report A14 for settings that differ from ``plan.json``; nothing if it was not emitted."""
    artifacts, sink = folder.artifacts, folder.sink
    plan = _guard(lambda: read_plan(artifacts[PLAN]), sink) if PLAN in artifacts else None
    if plan is None:
        return

    def check(one: Verifier) -> None:
        _guard(lambda: verify_decisions(plan, one.decisions(artifacts), sink), sink)

    # The combination of a front and its framework replaces the framework's own verifier.
    replaced = folder.framework is not None and folder.framework not in folder.verifiers.values()
    for name, one in folder.verifiers.items():
        if not (replaced and declaration(name).is_framework):
            check(one)
    if replaced and folder.framework is not None:
        check(folder.framework)


def _starts_engine(folder: _Folder) -> bool:
    return folder.engine is not None and folder.engine.file in folder.artifacts


def _guard(run: Callable[[], T], sink: Sink) -> T | None:
    """Return the result of ``run``; None and A04 if it cannot read a file."""
    try:
        return run()
    except Malformed as error:
        span = Span(error.file, error.line, 1)
        sink.report("A04", f"{error.file} cannot be read: {error.message}", span=span)
        return None


def _verify_rank_map(folder: _Folder) -> None:
    """Verify the table, then all files that must agree with it; Malformed for the table."""
    found = outline(folder.artifacts[TABLE])
    if found is None or SERVING_COLUMN in found.columns:
        table = read_table(folder.artifacts[TABLE])
        if SERVING_COLUMN in table:
            _verify_serving(folder, table)
            return
    sink, tree = folder.sink, folder.document
    derived, found = _verify_ranks(folder, found)
    _verify_launch(folder, found.hosts, found.ranks_per_node)
    if folder.lock is not None:
        verify_lock(folder.lock, found.hosts, derived, sink)
    if tree is not None:
        verify_document(tree, found, sink)
        if derived is not None:
            verify_groups(tree, derived, sink)


def _verify_ranks(folder: _Folder, found: RankMap | None) -> tuple[DerivedGroups | None, RankMap]:
    """Return the groups that the framework builds, and the rank map that was compared with them.

    The whole text of the table is compared first; cells are compared only if it differs.
    """
    sink = folder.sink
    devices = [one.visible_devices(folder.artifacts) for one in folder.verifiers.values()]
    visible = next((one for one in devices if one is not None), None)
    if found is not None:
        trial = Sink(sink.positions)
        derived = _derive(folder, found.world, trial)
        text = folder.artifacts[TABLE]
        if derived is not None and (whole := matching_rank_map(text, found, derived, visible)):
            sink.extend(trial)
            return derived, whole
    table = read_table(folder.artifacts[TABLE])
    hosts = verify_hosts(table, sink, visible)
    derived = _derive(folder, len(table["rank"]), sink)
    if derived is not None:
        verify_coordinates(table, derived, sink)
    return derived, rank_map(table, hosts)


def _derive(folder: _Folder, world: int, sink: Sink) -> DerivedGroups | None:
    """Return the groups of the framework on ``world`` ranks; None if unknown."""
    framework = folder.framework
    if framework is None:
        return None
    return _guard(lambda: framework.derive_groups(folder.artifacts, world, sink), sink)


def _verify_serving(folder: _Folder, table: Table) -> None:
    """Verify a serving job: hosts, launch files, the document, and the engine's ranks."""
    sink, engine = folder.sink, folder.engine
    hosts = verify_hosts(table, sink)
    _verify_launch(folder, hosts, len(table["rank"]) // len(hosts))
    if folder.lock is not None:
        verify_lock(folder.lock, hosts, None, sink)
    if engine is None:
        message = f"the ranks of {TABLE} were not verified: their engine is unknown"
        sink.report(UNVERIFIED, message, span=Span(TABLE, 1, 1))
        return
    if folder.document is not None:
        verify_serving_document(folder.document, table, engine, sink)
    if engine.file in folder.artifacts:
        derived = _guard(lambda: engine.derive_ranks(folder.artifacts, sink), sink)
        if derived is not None:
            verify_engine_ranks(derived, table, engine, sink)


def _verify_launch(folder: _Folder, hosts: list[str], ranks_per_node: int) -> None:
    """Let each verifier compare its launch files with the hosts and rank counts."""
    launcher = folder.framework.launcher if folder.framework is not None else ()
    job = JobShape(hosts, ranks_per_node, folder.document, launcher)

    def check(one: Verifier) -> None:
        _guard(lambda: one.check_launch(folder.artifacts, job, folder.sink), folder.sink)

    for one in folder.verifiers.values():
        check(one)
