"""Verify emitted files: re-derive ranks and groups from them, and compare with the rank map.

The verifiers of the backends derive the groups from the framework's own files, with the
framework's arithmetic. They share no code with the emitters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

from parc.backends.plugin_error import PluginError
from parc.backends.registry import backend_declaration
from parc.backends.verifier import (
    DerivedGroups,
    EngineVerifier,
    FrameworkVerifier,
    JobShape,
    Verifier,
)
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.read_emitted import (
    DOCUMENT,
    TABLE,
    MalformedFileError,
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
    report_unverified_targets,
)
from parc.compiler.verify.unread_settings import report_unread_settings
from parc.compiler.verify.verify_checksums import LOCK, expected_files, missing_files, verify_lock
from parc.compiler.verify.verify_ranks import (
    Table,
    build_rank_map,
    matching_rank_map,
    read_outline,
    verify_coordinates,
    verify_document,
    verify_groups,
    verify_hosts,
)
from parc.compiler.verify.verify_serving import verify_engine_ranks, verify_serving_document
from parc.compiler.verify.verify_settings import PLAN, read_plan, verify_settings

ABSENT = "missing, or not a regular file (a link, a folder)"
SERVING_COLUMN = "replica"
"""Column that only the rank maps of serving jobs have."""
T = TypeVar("T")
DAMAGED = (TypeError, KeyError, AttributeError, ValueError, IndexError, ArithmeticError)
"""Exceptions of code that reads an edited file; ``PluginError`` has one of them as its cause if the
code is that of a plugin."""


@frozen
class _EmittedFolder:
    """Content of an output folder: its files, parsed lock and rank map document, and verifiers."""

    artifacts: Mapping[str, str]
    lock: dict[str, Any] | None
    document: dict[str, Any] | None
    verifiers: Mapping[str, Verifier]
    framework: FrameworkVerifier | None
    engine: EngineVerifier | None
    sink: Sink


def verify_artifacts(artifacts: Mapping[str, str], sink: Sink) -> None:
    """Report contradictions between emitted files, each with an A code such as PARC-A05.

    A damaged file causes a diagnostic and never an exception.

    Args:
        artifacts: path, such as ``rankmap.csv``, -> text of the file. A file that another file
            refers to must be present; other files may be absent.
        sink: receives the findings, each at its file and line.
    """
    folder = _read_folder(artifacts, sink)
    framework, names = folder.framework, locked_versions(folder.lock)
    recognized = framework is not None or _has_engine_file(folder)
    if not recognized and not {TABLE, LOCK} & artifacts.keys():
        sink.report("A03", f"the folder has neither {TABLE} nor a framework's file to verify")
    missing = dict(missing_files(artifacts, folder.verifiers.values()))
    if folder.lock is not None:
        # The engine is unknown if its plugin has no verifier or is not installed.
        serves = folder.engine is not None or _is_of_service(folder.lock)
        serving = serves and framework is None
        promised = expected_files(folder.lock, folder.verifiers, serving)
        # Merged last, a script that needs the file is named as the user in place of the lock.
        missing = {file: LOCK for file in promised if file not in artifacts} | missing
    if framework is not None:
        missing |= {file: framework.file for file in framework.needs if file not in artifacts}
    if _check_contents(folder):
        _check_launcher_contents(folder)
        _verify_settings(folder)
        if TABLE in artifacts:
            _report_malformed(lambda: _verify_rank_map(folder), sink, folder)
    report_unverified_targets(artifacts, names, sink)
    for file, user in sorted(missing.items()):
        verb = "lists" if user == LOCK else "needs"
        sink.report("A03", f"{user} {verb} {file}, which is {ABSENT}", span=Span(file, 1, 1))


def _read_folder(artifacts: Mapping[str, str], sink: Sink) -> _EmittedFolder:
    """Return the folder with its parsed ``parc.lock`` and ``rankmap.json``, and its verifiers.

    Files that are embedded in other files, for example in a ConfigMap, are added. A damaged file is
    reported (A04), and its parsed content is None.
    """

    def read_if_present(
        file: str, reader: Callable[[str], dict[str, Any]]
    ) -> dict[str, Any] | None:
        return (
            _report_malformed(lambda: reader(artifacts[file]), sink) if file in artifacts else None
        )

    lock, document = read_if_present(LOCK, read_lock), read_if_present(DOCUMENT, read_document)
    names = (*locked_versions(lock), *((str(document.get("framework")),) if document else ()))
    verifiers = load_verifiers(names if lock else (), artifacts)

    def embedded_files(verifier: Verifier) -> Mapping[str, str]:
        return _report_malformed(lambda: verifier.embedded_files(artifacts), sink) or {}

    embedded = {
        path: text for one in verifiers.values() for path, text in embedded_files(one).items()
    }
    # A file of the folder wins over a copy in another file.
    artifacts = {**embedded, **artifacts}
    framework = framework_verifier(verifiers, artifacts)
    engine = engine_verifier(verifiers, artifacts, names)
    return _EmittedFolder(artifacts, lock, document, verifiers, framework, engine, sink)


def _check_contents(folder: _EmittedFolder) -> bool:
    """Return True if the lock and the files of the framework can be read.

    If the result is False, the caller compares no other files. A copy may have damaged all files,
    for example their line ends, and each comparison would report the same cause again.
    """
    framework, artifacts, sink = folder.framework, folder.artifacts, folder.sink
    if folder.lock is None and LOCK in artifacts:
        return False
    if framework is None:
        return True
    # A separate sink shows whether a file was unreadable; other findings do not stop the checks.
    failed = Sink(sink.positions)
    _report_malformed(lambda: framework.check_file_contents(artifacts, sink), failed, folder)
    sink.extend(failed)
    return not failed.diagnostics


def _check_launcher_contents(folder: _EmittedFolder) -> None:
    """Report contradictions within the files of each backend that is not a framework."""
    artifacts, sink = folder.artifacts, folder.sink

    def report_contents(verifier: Verifier) -> None:
        _report_malformed(lambda: verifier.check_file_contents(artifacts, sink), sink, folder)

    for name, one in folder.verifiers.items():
        if not backend_declaration(name).is_framework:
            report_contents(one)


def _verify_settings(folder: _EmittedFolder) -> None:
    """Report settings in emitted files that differ from ``plan.json`` (A14).

    Nothing is compared if ``plan.json`` was not emitted.
    """
    artifacts, sink = folder.artifacts, folder.sink
    plan = (
        _report_malformed(lambda: read_plan(artifacts[PLAN]), sink) if PLAN in artifacts else None
    )
    if plan is None:
        return

    def report_settings(verifier: Verifier) -> None:
        _report_malformed(
            lambda: verify_settings(plan, verifier.derive_settings(artifacts), sink, artifacts),
            sink,
            folder,
        )

    # The combination of a wrapper and its framework replaces the framework's own verifier.
    replaced = folder.framework is not None and folder.framework not in folder.verifiers.values()
    for name, one in folder.verifiers.items():
        if not (replaced and backend_declaration(name).is_framework):
            report_settings(one)
            _report_malformed(
                partial(report_unread_settings, name, one, plan, artifacts, sink), sink, folder
            )
    if replaced and folder.framework is not None:
        report_settings(folder.framework)


def _is_of_service(lock: Mapping[str, Any]) -> bool:
    """Return True if ``lock`` contains the layout of a serving job."""
    layout = lock["decisions"].get("layout")
    return isinstance(layout, Mapping) and "replicas" in layout


def _has_engine_file(folder: _EmittedFolder) -> bool:
    return folder.engine is not None and folder.engine.file in folder.artifacts


def _report_malformed(
    run: Callable[[], T], sink: Sink, folder: _EmittedFolder | None = None
) -> T | None:
    """Return the result of ``run``; None after reporting that a file cannot be read (A04).

    Verifiers expect the types of values that PARC writes, so an edited file can cause an exception
    in ``run``. The exception is reported at the first file of ``folder`` that was edited.
    """
    try:
        return run()
    except MalformedFileError as error:
        file, line, message = error.file, error.line, error.message
    except (*DAMAGED, PluginError) as error:
        if isinstance(error, PluginError) and not isinstance(error.__cause__, DAMAGED):
            raise
        edited = next(_edited_files(folder), None) if folder is not None else None
        if edited is None:
            raise
        file, line, message = edited, 1, "a value is missing or has another type"
    sink.report("A04", f"{file} cannot be read: {message}", span=Span(file, line, 1))
    return None


def _edited_files(folder: _EmittedFolder) -> Iterator[str]:
    """Yield the files whose digest differs from the digest in the lock, ``plan.json`` first."""
    digests = folder.lock.get("files", {}) if folder.lock is not None else {}
    for file in sorted(folder.artifacts, key=lambda one: (one != PLAN, one)):
        text = folder.artifacts[file].encode("utf-8", "surrogatepass")
        known = digests.get(file) if digests else ""
        if known is not None and known != sha256(text).hexdigest():
            yield file


def _verify_rank_map(folder: _EmittedFolder) -> None:
    """Verify ``rankmap.csv`` and all files that must agree with it.

    Raises:
        MalformedFileError: ``rankmap.csv`` cannot be read.
    """
    found = read_outline(folder.artifacts[TABLE])
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


def _verify_ranks(
    folder: _EmittedFolder, rank_map: RankMap | None
) -> tuple[DerivedGroups | None, RankMap]:
    """Compare ``rankmap.csv`` with the framework's groups. Return (groups, rank map).

    The groups are None if the framework is unknown. The text of the whole table is compared first,
    which is ten times faster than comparing cells. Cells are compared only if the texts differ.
    """
    sink = folder.sink
    devices = [one.visible_devices(folder.artifacts) for one in folder.verifiers.values()]
    visible = next((one for one in devices if one is not None), None)
    if rank_map is not None:
        # Findings count only if the texts match; otherwise they would be reported twice.
        trial = Sink(sink.positions)
        derived = _derive_groups(folder, rank_map.world, trial)
        text = folder.artifacts[TABLE]
        if derived is not None and (whole := matching_rank_map(text, rank_map, derived, visible)):
            sink.extend(trial)
            return derived, whole
    table = read_table(folder.artifacts[TABLE])
    hosts = verify_hosts(table, sink, visible)
    derived = _derive_groups(folder, len(table["rank"]), sink)
    if derived is not None:
        verify_coordinates(table, derived, sink)
    return derived, build_rank_map(table, hosts)


def _derive_groups(folder: _EmittedFolder, world: int, sink: Sink) -> DerivedGroups | None:
    """Return the groups that the framework builds on ``world`` ranks; None if they are unknown."""
    framework = folder.framework
    if framework is None:
        return None
    return _report_malformed(
        lambda: framework.derive_groups(folder.artifacts, world, sink), sink, folder
    )


def _verify_serving(folder: _EmittedFolder, table: Table) -> None:
    """Compare the hosts, launch files, lock and engine ranks of a serving job with ``table``.

    ``table`` contains the columns of ``rankmap.csv``.
    """
    sink, engine = folder.sink, folder.engine
    hosts = verify_hosts(table, sink)
    _verify_launch(folder, hosts, len(table["rank"]) // len(hosts))
    if folder.lock is not None:
        verify_lock(folder.lock, hosts, None, sink)
    if engine is None:
        message = f"the ranks of {TABLE} were not verified: the engine that starts them is unknown"
        sink.report(UNVERIFIED, message, span=Span(TABLE, 1, 1))
        return
    if folder.document is not None:
        verify_serving_document(folder.document, table, engine, sink)
    if engine.file in folder.artifacts:
        derived = _report_malformed(
            lambda: engine.derive_ranks(folder.artifacts, sink), sink, folder
        )
        if derived is not None:
            verify_engine_ranks(derived, table, engine, sink)


def _verify_launch(folder: _EmittedFolder, hosts: list[str], ranks_per_node: int) -> None:
    """Compare all launch files with the hosts and rank counts of the rank map."""
    launcher = folder.framework.launcher if folder.framework is not None else ()
    job = JobShape(hosts, ranks_per_node, folder.document, launcher)

    def report_unreadable(verifier: Verifier) -> None:
        _report_malformed(
            lambda: verifier.check_launch(folder.artifacts, job, folder.sink), folder.sink, folder
        )

    for one in folder.verifiers.values():
        report_unreadable(one)
