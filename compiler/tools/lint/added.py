"""What the user of a script adds to it: the model and the cluster, as parts of a spec."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Cluster, Problem, ServingProblem
from parc.compiler.pipeline import resolve_spec
from parc.compiler.spec.reading.source import Source
from parc.compiler.tools.lint.launch import Shape
from parc.compiler.tools.lint.options import LintOptions
from parc.compiler.tools.lint.partial_ir import hide, with_values
from parc.compiler.topology.node_groups import ranks_per_node

MODEL, NODE = "llama-3-8b", "dgx-h100"
"""Stand-ins for wording where nobody names a model or a host; no rule is asked about them."""


VARIANTS = re.compile(r"-(hf|instruct|chat|base|it|fp8|awq|gptq|v0\.[0-9])$")
"""Ends of the names of checkpoints whose shapes are those of the model before them."""


def is_known(more: LintOptions, sink: Sink) -> bool:
    """Whether the model and the cluster that ``more`` names are there; reports K01 and the like."""
    if more.model is None and more.cluster is None:
        return True
    tree = {
        "parc": 1,
        "name": "lint",
        "model": more.model or MODEL,
        "cluster": cluster_tree({}, more),
        "job": {"sequence_length": 1, "global_batch": 1},
    }
    trial = Sink()
    resolve_tree(tree, more, trial)
    named = ("model", "cluster")
    found = [one for one in trial.diagnostics if one.path.partition(".")[0] in named]
    for one in found:
        sink.report(one.code.removeprefix("PARC-"), replace(one.finding, causes=()))
    return not found


def resolve_tree(
    tree: Mapping[str, Any], more: LintOptions, sink: Sink
) -> Problem | ServingProblem | None:
    """Resolve ``tree``, a whole spec, to a problem; None after an error."""
    return resolve_spec(Source("lint", json.dumps(tree), more.folder), (), sink)


def written_hosts(shape: Shape) -> dict[str, Any]:
    """Hosts and GPUs of ``cluster``, where the launch lines say them."""
    cluster: dict[str, Any] = {}
    if shape.nodes is not None:
        cluster["nodes"] = shape.nodes
    if shape.gpus_per_node is not None:
        cluster["node"] = {"gpus_per_node": shape.gpus_per_node}
    return cluster


def cluster_tree(written: Mapping[str, Any], more: LintOptions) -> Any:
    """``cluster`` of a whole spec: the hosts that are ``written``, of the kind that ``more`` says.

    ``--gpus`` goes before what is written; the largest part of a host that divides it is used.
    """
    library = Library(None)
    base = more.cluster if more.cluster in library.names("clusters") else None
    kind = library.entry("clusters", base)["node"] if base else more.cluster or NODE
    known = kind in library.names("nodes")
    whole: int = library.entry("nodes", kind if known else NODE)["gpus_per_node"]
    per_node: int = written.get("node", {}).get("gpus_per_node", whole)
    nodes: int | None = written.get("nodes")
    if more.gpus is not None:
        per_node = ranks_per_node(per_node, more.gpus)
        nodes = more.gpus // per_node
    if base and nodes is None and per_node == whole:
        return base
    part = {"base": kind, "gpus_per_node": per_node, "nvlink_domain": per_node}
    node = {} if base and per_node == whole else {"node": kind if per_node == whole else part}
    return {**({"base": base} if base else {}), **node, "nodes": nodes or 1}


def is_catalog_cluster(more: LintOptions) -> bool:
    """Return True if ``--cluster`` names a whole cluster, whose number of hosts is known."""
    return more.cluster in Library(None).names("clusters")


def catalog_name(checkpoint: str) -> str | None:
    """``meta-llama/Llama-3.1-70B-Instruct`` -> ``llama-3.1-70b``; None where it is not there."""
    names = Library(None).names("models")
    name = checkpoint.rstrip("/").rpartition("/")[2].lower().removeprefix("meta-")
    while name not in names and VARIANTS.search(name):
        name = VARIANTS.sub("", name)
    return name if name in names else None


def known_cluster(cluster: Cluster, more: LintOptions, per_node: bool, counted: bool) -> Cluster:
    """``cluster`` without what nobody said.

    Args:
        cluster: the whole one.
        more: what the user adds; its cluster says everything but the number of hosts.
        per_node: the GPUs of a host are known.
        counted: the hosts are.
    """
    if more.cluster is None:
        hidden = ["nvlink_domain", "link_gb_per_s", "nics", "nic_gbps", "cpu_cores"]
        node = hide(cluster.node, hidden if per_node else [*hidden, "gpus"])
        cluster = hide(with_values(cluster, node=node), ["gpu", "fabric"])
    return cluster if counted else hide(cluster, ["racks"])
