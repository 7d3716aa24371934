"""Compare the rank map of a serving job with its script, by vLLM's own arithmetic.

Which ranks a process holds follows from its flags (engine/arg_utils.py, create_engine_config;
v1/executor/multiproc_executor.py), which place a rank has follows from its number
(distributed/parallel_state.py, initialize_model_parallel). No code is shared with the placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.read_emitted import Malformed, read_document
from parc.compiler.verify.read_serve import SCRIPT, Script, Started, read_serve
from parc.compiler.verify.verify_launch import verify_launch
from parc.compiler.verify.verify_lock import verify_lock
from parc.compiler.verify.verify_ranks import SHOWN, Table, reach, verify_hosts

TABLE, DOCUMENT = "rankmap.csv", "rankmap.json"
AXES = ("replica", "dp", "pp", "cp", "tp")
Row = tuple[int, int, int, int, int]
"""Coordinates along AXES."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Degrees of one engine, as every process of it is told."""

    tp: int
    pp: int
    pcp: int
    dp: int

    @property
    def rank_gpus(self) -> int:
        """Ranks of one data-parallel rank."""
        return self.tp * self.pp * self.pcp


def verify_serving(
    artifacts: Mapping[str, str], table: Table, lock: dict[str, Any] | None, sink: Sink
) -> None:
    """A01 to A07 on a serving job; files that were not emitted are absent."""
    hosts = verify_hosts(table, sink)
    verify_launch(artifacts, hosts, len(table["rank"]) // len(hosts), sink)
    if lock is not None:
        verify_lock(lock, hosts, None, sink)
    if DOCUMENT in artifacts:
        _verify_document(read_document(artifacts[DOCUMENT]), table, sink)
    if SCRIPT in artifacts:
        script = read_serve(artifacts[SCRIPT])
        _verify_names(script, hosts, sink)
        _verify_ranks(script, table, sink)


def _verify_names(script: Script, hosts: list[str], sink: Sink) -> None:
    if script.nodes != len(hosts):
        message = f"nodes is {script.nodes} in {SCRIPT}, the rank map has {len(hosts)} hosts"
        sink.report("A07", message, span=Span(SCRIPT, 1, 1))
    if script.hosts and list(script.hosts) != hosts:
        pairs = enumerate(zip(script.hosts, hosts, strict=False))
        wrong = next((n for n, (mine, theirs) in pairs if mine != theirs), min(len(hosts), 1))
        message = f"the hosts of {SCRIPT} are not those of the rank map, from node rank {wrong} on"
        sink.report("A02", message, span=Span(SCRIPT, 1, 1))


def _verify_ranks(script: Script, table: Table, sink: Sink) -> None:
    """A05 where ranks and processes do not match, A01 where a rank has another place."""
    found: dict[tuple[int, int], tuple[int, Row]] = {}
    sizes = _sizes(script)
    engines: dict[tuple[int, int], int] = {}
    held: dict[int, list[int]] = {}
    alone = 0
    for one in script.started:
        key = (one.head, -1) if one.head is not None else (one.node, alone)
        alone += one.head is None
        replica = engines.setdefault(key, len(engines))
        ranks = _ranks(one, sizes)
        held.setdefault(replica, []).extend(ranks)
        if len(ranks) != len(one.devices):
            message = f"host {one.node} starts {len(ranks)} ranks on {len(one.devices)} GPUs"
            sink.report("A07", message, span=Span(SCRIPT, 1, 1))
        for device, rank in zip(one.devices, ranks, strict=False):
            found[one.node, device] = (
                replica * sizes.rank_gpus * sizes.dp + rank,
                (replica, *_place(rank, sizes)),
            )
    whole = list(range(sizes.rank_gpus * sizes.dp))
    for replica, every in held.items():
        if sorted(every) != whole:
            message = (
                f"engine {replica} of {SCRIPT} has {len(every)} ranks, not each of 0 to {whole[-1]}"
            )
            sink.report("A07", message, span=Span(SCRIPT, 1, 1))
    _compare(found, table, sink)


def _sizes(script: Script) -> Sizes:
    if not script.started:
        raise Malformed(SCRIPT, 1, "it starts nothing")
    told = {
        tuple(
            one.number(f"{name}-size", 1)
            for name in (
                "tensor-parallel",
                "pipeline-parallel",
                "prefill-context-parallel",
                "data-parallel",
            )
        )
        for one in script.started
    }
    if len(told) > 1:
        raise Malformed(SCRIPT, 1, "hosts are told different degrees")
    return Sizes(*told.pop())


def _ranks(one: Started, sizes: Sizes) -> range:
    """Ranks of the engine that the process holds."""
    each, flags = sizes.rank_gpus, one.flags
    nodes = one.number("nnodes", 1)
    if nodes > 1:
        local = each * sizes.dp // nodes
        return range(one.number("node-rank", 0) * local, (one.number("node-rank", 0) + 1) * local)
    if "data-parallel-rank" in flags:
        first, local = one.number("data-parallel-rank", 0), 1
    else:
        first = one.number("data-parallel-start-rank", 0)
        local = one.number("data-parallel-size-local", sizes.dp)
    return range(first * each, (first + local) * each)


def _place(rank: int, sizes: Sizes) -> tuple[int, int, int, int]:
    """Coordinates dp, pp, pcp, tp: the grid DP x PP x PCP x TP in C order."""
    rank, tp = divmod(rank, sizes.tp)
    rank, pcp = divmod(rank, sizes.pcp)
    dp, pp = divmod(rank, sizes.pp)
    return dp, pp, pcp, tp


def _compare(found: dict[tuple[int, int], tuple[int, Row]], table: Table, sink: Sink) -> None:
    wrong: dict[str, list[str]] = {"A05": [], "A01": []}
    for line, (node, device) in enumerate(zip(table["node_rank"], table["gpu"], strict=True)):
        here = found.pop((_number(node), _number(device)), None)
        if here is None or str(here[0]) != table["rank"][line]:
            held = "no rank" if here is None else f"rank {here[0]}"
            wrong["A05"].append(f"node {node} GPU {device} runs {held}, not {table['rank'][line]}")
        elif tuple(table[axis][line] for axis in AXES) != tuple(map(str, here[1])):
            wrong["A01"].append(f"rank {here[0]} is {dict(zip(AXES, here[1], strict=True))}")
    if found:
        wrong["A05"].append(f"{len(found)} ranks of {SCRIPT} are not in the map")
    for code, texts in wrong.items():
        if texts:
            message = f"{len(texts)} ranks of {TABLE} are not what {SCRIPT} starts"
            finding = Finding(message, "; ".join(texts[:SHOWN]))
            sink.report(code, finding, span=Span(TABLE, 2, 1))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 9 else -1


def _verify_document(tree: dict[str, Any], table: Table, sink: Sink) -> None:
    """A06 where rankmap.json says something else than the table, or groups other ranks."""
    columns = [name for name in table if name in (*AXES, "ep")]
    for column in columns:
        values = tree["ranks"].get(column)
        if not isinstance(values, list) or [str(value) for value in values] != table[column]:
            _differs(f"ranks.{column} differs from the column {column} of {TABLE}", sink)
    for column in columns:
        shared = ("replica", "pp") if column == "ep" else [a for a in AXES if a != column]
        expected = _grouped(table, shared)
        if _stated(tree["groups"].get(column), expected) != expected:
            first = ", ".join(map(str, min(expected)[:SHOWN]))
            _differs(f"groups.{column} is not what vLLM builds (first group: {first} ...)", sink)
    if "ep" in table:
        _verify_expert_places(table, sink)


def _grouped(table: Table, shared: Iterable[str]) -> set[tuple[int, ...]]:
    """Ranks that share the coordinates ``shared``."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank, key in enumerate(zip(*(table[axis] for axis in shared), strict=True)):
        groups.setdefault(key, []).append(rank)
    return {tuple(group) for group in groups.values()}


def _verify_expert_places(table: Table, sink: Sink) -> None:
    """A01 where the column ep is not the place among the ranks of the stage."""
    wrong = [
        f"rank {rank} must be {place}"
        for group in _grouped(table, ("replica", "pp"))
        for place, rank in enumerate(group)
        if table["ep"][rank] != str(place)
    ]
    if wrong:
        message = f"{len(wrong)} ranks have a wrong ep"
        sink.report("A01", Finding(message, "; ".join(wrong[:SHOWN])), span=Span(TABLE, 2, 1))


def _stated(entry: Any, expected: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Groups that an entry of rankmap.json stands for; empty where it is damaged."""
    if not isinstance(entry, dict):
        return set()
    members = reach(entry.get("within"), len(min(expected)))
    bases = reach(entry.get("across"), len(expected))
    return {tuple(base + member for member in members or ()) for base in bases or ()}


def _differs(message: str, sink: Sink) -> None:
    sink.report("A06", message, span=Span(DOCUMENT, 1, 1))
