"""Verify the output of a disaggregated service: the folder of each pool, and what joins them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir.finding import Diagnostic
from parc.compiler.ir.serving import POOLS
from parc.compiler.verify.read_emitted import TABLE, MalformedFileError, read_lock, read_table
from parc.compiler.verify.select_verifiers import engine_verifier, load_verifiers, locked_versions
from parc.compiler.verify.verify_checksums import LOCK, without_added_crlf
from parc.compiler.verify.verify_plan import ABSENT, verify_artifacts
from parc.compiler.verify.verify_settings import PLAN, read_plan

ROUTER = "router.sh"
SHARED = (
    *(
        f"problem.service.{name}"
        for name in (
            *("checkpoint", "quantize", "block_tokens"),
            *("setup.weights", "setup.kv", "setup.block"),
        )
    ),
    "limits.max_model_len",
)
"""Settings in plan.json that both pools must share, because an engine of one pool reads the KV
cache of an engine of the other."""


def verify_output(artifacts: Mapping[str, str], sink: Sink) -> None:
    """Report contradictions between emitted files, also those between the pools of a service.

    ``artifacts`` maps the path of each file, relative to the output folder, to its text.
    """
    artifacts = without_added_crlf(artifacts)
    if not any(path.partition("/")[0] in POOLS for path in artifacts):
        verify_artifacts(artifacts, sink)
        return
    pools = {pool: _files_below(artifacts, pool) for pool in POOLS}
    for pool, files in pools.items():
        own = Sink()
        verify_artifacts(files, own)
        # The paths in findings are relative to the folder of the pool.
        sink.extend(own, change=partial(_in_folder, pool))
    top = {path: text for path, text in artifacts.items() if "/" not in path}
    _report_missing(top, artifacts, sink)
    for check in (_verify_hosts_and_ranks, _verify_shared_settings, _verify_router):
        try:
            check(pools, top, sink)
        except MalformedFileError as error:
            # The folder of a pool has the same file, which is reported there.
            if error.file in top:
                message = f"{error.file} cannot be read: {error.message}"
                sink.report("A04", message, span=Span(error.file, error.line, 1))


def _files_below(artifacts: Mapping[str, str], folder: str) -> dict[str, str]:
    start = f"{folder}/"
    return {
        path.removeprefix(start): text for path, text in artifacts.items() if path.startswith(start)
    }


def _in_folder(folder: str, diagnostic: Diagnostic) -> Diagnostic:
    """Return ``diagnostic`` with positions below ``folder``."""
    span = diagnostic.span
    moved = None if span is None else replace(span, file=f"{folder}/{span.file}")
    finding = replace(diagnostic.finding, message=f"{folder} pool: {diagnostic.finding.message}")
    return replace(diagnostic, span=moved, finding=finding)


def _report_missing(top: Mapping[str, str], artifacts: Mapping[str, str], sink: Sink) -> None:
    """Report files that the lock of the service lists but that are missing (A03)."""
    if LOCK not in top:
        sink.report("A03", f"the folder of a service needs {LOCK}", span=Span(LOCK, 1, 1))
        return
    try:
        listed = read_lock(top[LOCK]).get("files") or {}
    except MalformedFileError as error:
        sink.report("A04", f"{LOCK} cannot be read: {error.message}", span=Span(LOCK, 1, 1))
        return
    for file in sorted(set(listed) - artifacts.keys()):
        sink.report("A03", f"{LOCK} lists {file}, which is {ABSENT}", span=Span(file, 1, 1))


def _verify_hosts_and_ranks(
    pools: Mapping[str, Mapping[str, str]], top: Mapping[str, str], sink: Sink
) -> None:
    """Report hosts of both pools (A05), and rows of the joint rank map that differ (A06)."""
    if any(TABLE not in files for files in pools.values()):
        return
    hosts = [set(read_table(files[TABLE])["host"]) for files in pools.values()]
    named = all(_read_plan(files)["problem"]["cluster"]["named"] for files in pools.values())
    if named and (common := sorted(hosts[0] & hosts[1])):
        message = f"{common[0]} has ranks of both pools; {len(common)} hosts are in both"
        sink.report("A05", message, span=Span(f"decode/{TABLE}", 1, 1))
    if TABLE not in top:
        return
    found = top[TABLE].splitlines()
    expected = [
        [pool, *row.split(",")]
        for pool, files in pools.items()
        for row in files[TABLE].splitlines()[1:]
    ]
    for line, row in enumerate(expected, start=2):
        # Only a trailing column can be empty, if the other pool alone has it.
        cells = found[line - 1].split(",") if line <= len(found) else []
        if cells[: len(row)] != row or any(cells[len(row) :]):
            message = f"{TABLE} differs from {row[0]}/{TABLE}: it needs the row {','.join(row)}"
            sink.report("A06", message, span=Span(TABLE, line, 1))
            return
    if len(found) != len(expected) + 1:
        message = f"{TABLE} has {len(found) - 1} rows, but the pools have {len(expected)} ranks"
        sink.report("A06", message, span=Span(TABLE, len(expected) + 2, 1))


def _read_plan(files: Mapping[str, str]) -> dict[str, Any]:
    if PLAN not in files:
        raise MalformedFileError(PLAN, 1, "the file is missing")
    return read_plan(files[PLAN])


def _verify_shared_settings(
    pools: Mapping[str, Mapping[str, str]], top: Mapping[str, str], sink: Sink
) -> None:
    """Report settings that differ between the pools although they must be equal (A14)."""
    del top
    plans = [_read_plan(files) for files in pools.values()]
    for path in SHARED:
        values = [_value_at(plan, path) for plan in plans]
        if values[0] != values[1]:
            finding = Finding(
                f"the pools have different values of {path}: {values[0]} and {values[1]}",
                label="an engine of the decode pool reads the KV cache of the prefill pool",
            )
            sink.report("A14", finding, span=Span(f"decode/{PLAN}", 1, 1))


def _value_at(tree: Mapping[str, Any], path: str) -> Any:
    found: Any = tree
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _verify_router(
    pools: Mapping[str, Mapping[str, str]], top: Mapping[str, str], sink: Sink
) -> None:
    """Report a router whose engines differ from those that the pools start (A18)."""
    if ROUTER not in top:
        return
    files = pools["prefill"]
    names = locked_versions(read_lock(files[LOCK]) if LOCK in files else None)
    engine = engine_verifier(load_verifiers(names, files), files, names)
    if engine is not None:
        engine.check_router(top[ROUTER], pools["prefill"], pools["decode"], sink)
