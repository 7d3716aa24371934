"""Judge emitted files by a second route, which shares no code with what made them.

What a framework's own files say is read, its groups are derived from them with its own
arithmetic, and every rank, group, host and number is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parc.compiler.diagnostics import Sink, Span
from parc.compiler.verify.derived_groups import RankMap, SecondRoute, Told
from parc.compiler.verify.read_emitted import (
    TABLE,
    Malformed,
    read_document,
    read_expected,
    read_lock,
    read_table,
)
from parc.compiler.verify.verify_deepspeed import DEEPSPEED, PLUGIN
from parc.compiler.verify.verify_launch import missing_files, verify_launch, visible_devices
from parc.compiler.verify.verify_lock import LOCK, promised_files, verify_lock
from parc.compiler.verify.verify_megatron import MEGATRON
from parc.compiler.verify.verify_preflight import EXPECTED, verify_preflight
from parc.compiler.verify.verify_ranks import (
    rank_map,
    verify_coordinates,
    verify_document,
    verify_groups,
    verify_hosts,
)
from parc.compiler.verify.verify_serving import verify_serving
from parc.compiler.verify.verify_table import agreed, outline
from parc.compiler.verify.verify_torch import ACCELERATE, FSDP, TORCHTITAN

DOCUMENT = "rankmap.json"
SCRIPT = "vllm/serve.sh"
ABSENT = "missing, or is no plain file (a link, a folder)"
ROUTES: tuple[SecondRoute, ...] = (MEGATRON, DEEPSPEED, FSDP, TORCHTITAN, ACCELERATE)
"""One a framework; a plan has the files of at most one, or those of ``PLUGIN``."""


def verify_artifacts(artifacts: Mapping[str, str], sink: Sink) -> None:
    """Report A-codes on every contradiction; any text whatever is an argument.

    Args:
        artifacts: path (``rankmap.csv``) -> text. Files that a plan did not emit are absent; a
            file that another one relies on must be there.
        sink: where findings go, each at its file and line.
    """
    route = next((one for one in ROUTES if one.file in artifacts), None)
    if route is DEEPSPEED and PLUGIN.file in artifacts:
        route = PLUGIN
    if route is None and not {TABLE, SCRIPT, LOCK} & artifacts.keys():
        sink.report("A03", f"there is neither {TABLE} nor {MEGATRON.file} to verify")
    missing = dict(missing_files(artifacts))
    try:
        lock = read_lock(artifacts[LOCK]) if LOCK in artifacts else None
        promised = promised_files(lock) if lock is not None else []
        missing = {file: LOCK for file in promised if file not in artifacts} | missing
        if route is not None:
            missing |= {file: route.file for file in route.needs if file not in artifacts}
            route.contents(artifacts, sink)
        if TABLE in artifacts:
            _verify_rank_map(artifacts, route, lock, sink)
    except Malformed as error:
        span = Span(error.file, error.line, 1)
        sink.report("A04", f"{error.file} cannot be read: {error.message}", span=span)
    for file, user in sorted(missing.items()):
        verb = "promises" if user == LOCK else "needs"
        sink.report("A03", f"{user} {verb} {file}, which is {ABSENT}", span=Span(file, 1, 1))


def _verify_rank_map(
    artifacts: Mapping[str, str],
    route: SecondRoute | None,
    lock: dict[str, Any] | None,
    sink: Sink,
) -> None:
    """The table first, then all that must agree with it."""
    found = outline(artifacts[TABLE])
    if found is None or "replica" in found.columns:
        table = read_table(artifacts[TABLE])
        if "replica" in table:
            verify_serving(artifacts, table, lock, sink)
            return
    told, found = _ranks(artifacts, found, route, sink)
    verify_launch(artifacts, found.hosts, found.ranks_per_node, sink)
    if lock is not None:
        verify_lock(lock, found.hosts, told, sink)
    if DOCUMENT in artifacts:
        tree = read_document(artifacts[DOCUMENT])
        verify_document(tree, found, sink)
        if EXPECTED in artifacts:
            verify_preflight(read_expected(artifacts[EXPECTED]), tree, found.hosts, sink)
        if told is not None:
            verify_groups(tree, told, sink)


def _ranks(
    artifacts: Mapping[str, str], found: RankMap | None, route: SecondRoute | None, sink: Sink
) -> tuple[Told | None, RankMap]:
    """What the framework's files say, and the rank map: seen at once, else cell by cell."""
    devices = visible_devices(artifacts)
    if found is not None and route is not None:
        trial = Sink(sink.positions)
        told = route.told(artifacts, found.world, trial)
        whole = agreed(artifacts[TABLE], found, told, devices) if told is not None else None
        if whole is not None:
            sink.extend(trial)
            return told, whole
    table = read_table(artifacts[TABLE])
    hosts = verify_hosts(table, sink, devices)
    told = route.told(artifacts, len(table["rank"]), sink) if route is not None else None
    if told is not None:
        verify_coordinates(table, told, sink)
    return told, rank_map(table, hosts)
