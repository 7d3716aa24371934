"""Resolve ``cluster.topology``, a topology file that another tool wrote, to racks."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parc.compiler.catalog.library import Library, read_user_file, register_user_file_lines
from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.ir import NodeType
from parc.compiler.ir.frozen import frozen
from parc.compiler.spec.cluster_spec import ClusterSpec, LevelSpec, RackSpec
from parc.compiler.topology.hostlist import HostlistError, expand_host_list

if TYPE_CHECKING:
    from parc.compiler.topology.readers.reader_state import Fragment

TOPOLOGY_PATH = "cluster.topology"


@frozen
class TopologyFacts:
    """Cluster spec with the racks of a topology file, and the GPUs per host of that file."""

    spec: ClusterSpec
    gpus_per_node: int | None = None
    span: Span | None = None
    """Position of ``gpus_per_node`` in the topology file."""


def resolve_topology(spec: ClusterSpec, library: Library, sink: Sink) -> TopologyFacts | None:
    """Return ``spec`` with the racks, tiers and unavailable hosts of its topology file.

    None after an error: the spec also lists hosts (H04), or the file cannot be read (K07), has an
    unknown format (I05), or is invalid. Later findings about a rack point to the line of the rack
    in the file.
    """
    if spec.topology is None:
        return None if _report_format_without_file(spec, sink) else TopologyFacts(spec)
    other = next((name for name in ("nodes", "racks") if getattr(spec, name) is not None), None)
    if other is not None:
        finding = Finding(
            f"the cluster sets both {other} and topology",
            "a cluster must set exactly one of nodes, racks and topology",
            causes=(Cause(TOPOLOGY_PATH, "the topology is set here"),),
        )
        sink.report("H04", finding, at=f"cluster.{other}", key=True)
        return None
    fragment = _read_topology_file(spec, spec.topology, library, sink)
    if fragment is None:
        return None
    from parc.compiler.topology.readers.cluster_section import cluster_section

    cluster, spans = cluster_section(fragment, sink)
    if sink.failed():
        return None
    # Racks of the file get positions in the file, as if the spec listed them there.
    sink.positions = replace(sink.positions, values={**sink.positions.values, **spans})
    node = cluster.get("node")
    gpus = node.get("gpus_per_node") if isinstance(node, dict) else None
    return TopologyFacts(
        _with_racks_of_file(spec, cluster), gpus, spans.get("cluster.node.gpus_per_node")
    )


def check_gpus_per_host(facts: TopologyFacts, node: NodeType, sink: Sink) -> None:
    """Report a topology file whose number of GPUs per host differs from the node type (H07)."""
    if facts.gpus_per_node in (None, node.gpus):
        return
    finding = Finding(
        f"the topology file has {facts.gpus_per_node} GPUs per host, but node type {node.name} has "
        f"{node.gpus}",
        label=f"{facts.gpus_per_node} != {node.gpus} GPUs per host",
        help="set cluster.node to the node type of these hosts, or change its gpus_per_node",
        causes=(Cause("cluster.node", f"{node.name} has {node.gpus} GPUs per host"),),
    )
    sink.report("H07", finding, at=TOPOLOGY_PATH, span=facts.span)


def _report_format_without_file(spec: ClusterSpec, sink: Sink) -> bool:
    """Report if topology_format is set without topology (H04); return True if it is."""
    if spec.topology_format is None:
        return False
    finding = Finding(
        "topology_format is set without topology", "topology_format has no effect without topology"
    )
    sink.report("H04", finding, at="cluster.topology_format", key=True)
    return True


def _read_topology_file(
    spec: ClusterSpec, path: str, library: Library, sink: Sink
) -> Fragment | None:
    """Return the content of the topology file ``path``; None after a diagnostic."""
    from parc.compiler.topology.readers.registry import FORMATS, detect_format

    text = read_user_file(path, library, sink, TOPOLOGY_PATH)
    if text is None:
        return None
    detected = detect_format(text)
    if detected is not None:
        register_user_file_lines(path, text, sink)
    format_name = spec.topology_format or detected
    if format_name is None:
        finding = Finding(
            f"the format of {path} is not recognized",
            "the content matches no supported format",
            help=f"supported formats: {', '.join(FORMATS)}",
            fix="cluster.topology_format: slurm-topology",
        )
        sink.report("I05", finding, at=TOPOLOGY_PATH)
        return None
    fragment = FORMATS[format_name].reader(text, path, sink)
    if fragment is not None and not fragment.hosts:
        finding = Finding(
            f"{path} contains no hosts",
            f"the file was read as format {format_name}: {FORMATS[format_name].description}",
        )
        sink.report("I02", finding, at=TOPOLOGY_PATH)
        return None
    return fragment


def _with_racks_of_file(spec: ClusterSpec, cluster: dict[str, Any]) -> ClusterSpec:
    """Return ``spec`` with the racks of the topology file.

    The levels and the node type of ``spec``, if set, override those of the file.
    """
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
        "unavailable": _merge_unavailable(spec, cluster.get("unavailable", "")),
    }
    return spec.model_copy(update=update)


def _merge_unavailable(spec: ClusterSpec, listed: str) -> str | tuple[str, ...]:
    """Return the host lists of all unavailable hosts.

    These are the unavailable hosts of the spec, and those hosts in ``listed``, the unavailable
    hosts of the topology file, that the spec lists neither as spare nor as unavailable.
    """
    mentioned: set[str] = set()
    written = spec.unavailable
    for lists in (written, spec.spare):
        for text in [lists] if isinstance(lists, str) else lists:
            with suppress(HostlistError):  # reported when the lists are resolved
                mentioned.update(expand_host_list(text))
    # A host that the spec keeps as spare stays spare, although the scheduler drained it.
    more = (
        tuple(name for name in expand_host_list(listed) if name not in mentioned) if listed else ()
    )
    if not more:
        return written
    return ((written,) if isinstance(written, str) else written) + more
