"""``cluster.topology``, a file of another tool, to racks as if the spec had written them."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.ir import NodeType
from parc.compiler.spec.cluster_spec import ClusterSpec, LevelSpec, RackSpec
from parc.compiler.spec.reading.yaml_tree import split_lines
from parc.compiler.topology.hostlist import HostlistError, expand

if TYPE_CHECKING:
    from parc.compiler.topology.readers.fragment import Fragment

AT = "cluster.topology"


@dataclass(frozen=True, slots=True)
class Told:
    """The cluster with racks, and what the file says about its hosts besides."""

    spec: ClusterSpec
    gpus_per_node: int | None = None
    span: Span | None = None
    """Where the file says so."""


def resolve_topology(spec: ClusterSpec, library: Library, sink: Sink) -> Told | None:
    """``spec`` with the racks, tiers and unavailable hosts of its topology file, which goes.

    None after H04 (another form of hosts too), K07 (no such file), I05 (unknown format) and what
    the reader reports at the lines of the file. Positions of racks are those lines from here on.
    """
    if spec.topology is None:
        return None if _format_alone(spec, sink) else Told(spec)
    other = next((name for name in ("nodes", "racks") if getattr(spec, name) is not None), None)
    if other is not None:
        finding = Finding(
            f"the cluster has both {other} and topology",
            "exactly one of nodes, racks and topology",
            causes=(Cause(AT, "the topology"),),
        )
        sink.report("H04", finding, at=f"cluster.{other}", key=True)
        return None
    fragment = _read(spec, spec.topology, library, sink)
    if fragment is None:
        return None
    from parc.compiler.topology.readers.racks import cluster_of

    cluster, spans = cluster_of(fragment, sink)
    if sink.failed():
        return None
    sink.positions = replace(sink.positions, values={**sink.positions.values, **spans})
    node = cluster.get("node")
    gpus = node.get("gpus_per_node") if isinstance(node, dict) else None
    return Told(_with_racks(spec, cluster), gpus, spans.get("cluster.node.gpus_per_node"))


def check_told(told: Told, node: NodeType, sink: Sink) -> None:
    """H07 where the file counts other GPUs in a host than the node type has."""
    if told.gpus_per_node in (None, node.gpus):
        return
    finding = Finding(
        f"the topology has hosts of {told.gpus_per_node} GPUs, {node.name} has {node.gpus}",
        label=f"{told.gpus_per_node} != {node.gpus}",
        help="name the node type that the hosts are, or state gpus_per_node",
        causes=(Cause("cluster.node", f"{node.gpus} GPUs a host"),),
    )
    sink.report("H07", finding, at=AT, span=told.span)


def _format_alone(spec: ClusterSpec, sink: Sink) -> bool:
    if spec.topology_format is None:
        return False
    finding = Finding("topology_format goes with topology", "there is no topology")
    sink.report("H04", finding, at="cluster.topology_format", key=True)
    return True


def _read(spec: ClusterSpec, path: str, library: Library, sink: Sink) -> Fragment | None:
    from parc.compiler.topology.readers.registry import FORMATS, sniff  # most specs have no file

    try:
        text = library.text(path)
    except OSError as error:
        reason = error.strerror or str(error)
        sink.report("K07", Finding(f"{path} cannot be read: {reason}", "named here"), at=AT)
        return None
    lines = {**sink.positions.lines, path: split_lines(text)}
    sink.positions = replace(sink.positions, lines=lines)
    kind = spec.topology_format or sniff(text)
    if kind is None:
        finding = Finding(
            f"nothing shows what wrote {path}",
            "no sign of a known format",
            help=f"known: {', '.join(FORMATS)}",
            fix="cluster.topology_format: slurm-topology",
        )
        sink.report("I05", finding, at=AT)
        return None
    fragment = FORMATS[kind].reader(text, path, sink)
    if fragment is not None and not fragment.hosts:
        finding = Finding(f"{path} names no host", f"it is {kind}: {FORMATS[kind].description}")
        sink.report("I02", finding, at=AT)
        return None
    return fragment


def _with_racks(spec: ClusterSpec, cluster: dict[str, Any]) -> ClusterSpec:
    """The spec's own words win over the file's: levels, node type."""
    rows = cluster.get("levels", ())
    levels = tuple(LevelSpec.model_validate_json(json.dumps(row)) for row in rows)
    racks = tuple(RackSpec.model_validate_json(json.dumps(row)) for row in cluster["racks"])
    named = cluster.get("node")
    update = {
        "topology": None,
        "topology_format": None,
        "racks": racks,
        "levels": spec.levels or levels or None,
        "node": spec.node or (named if isinstance(named, str) else None),
        "unavailable": _unavailable(spec, cluster.get("unavailable", "")),
    }
    return spec.model_copy(update=update)


def _unavailable(spec: ClusterSpec, told: str) -> str | tuple[str, ...]:
    """Hosts of the spec, and those of the file that the spec does not set apart itself."""
    apart: set[str] = set()
    written = spec.unavailable
    for lists in (written, spec.spare):
        for text in [lists] if isinstance(lists, str) else lists:
            with suppress(HostlistError):  # reported where the spec's lists are read
                apart.update(expand(text))
    more = tuple(name for name in expand(told) if name not in apart) if told else ()
    if not more:
        return written
    return ((written,) if isinstance(written, str) else written) + more
