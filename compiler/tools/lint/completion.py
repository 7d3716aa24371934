"""Model and cluster of a launch file, completed by the options of ``parc lint``.

The facts of a launch of an engine are, for its linter, a problem of which only some fields are
known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Cluster, Problem, ServingLayout, ServingProblem
from parc.compiler.pipeline import resolve_spec
from parc.compiler.spec.reading.source import Source
from parc.compiler.tools.lint.check_rules import LaunchFacts
from parc.compiler.tools.lint.launch import JobSize
from parc.compiler.tools.lint.options import LintOptions
from parc.compiler.tools.lint.partial_ir import hide, with_values
from parc.compiler.topology.node_groups import ranks_per_node

MODEL, NODE = "llama-3-8b", "dgx-h100"
"""Stand-ins if neither the file nor an option names a model or a host type. They complete the spec
so that it resolves; rules are tested on known fields only."""
VARIANTS = re.compile(r"-(hf|instruct|chat|base|it|fp8|awq|gptq|v0\.[0-9])$")
"""Suffixes of checkpoint names that do not change the shapes of the model."""


def check_options(options: LintOptions, sink: Sink) -> bool:
    """Return True if the model and the cluster of ``options`` exist; else report K01, K07, ..."""
    if options.model is None and options.cluster is None:
        return True
    tree = {
        "parc": 1,
        "name": "lint",
        "model": options.model or MODEL,
        "cluster": cluster_tree({}, options),
        "job": {"sequence_length": 1, "global_batch": 1},
    }
    trial = Sink()
    resolve_tree(tree, options, trial)
    named = ("model", "cluster")
    found = [one for one in trial.diagnostics if one.path.partition(".")[0] in named]
    for one in found:
        sink.report(one.code.removeprefix("PARC-"), replace(one.finding, causes=()))
    return not found


def resolve_tree(
    tree: Mapping[str, Any], options: LintOptions, sink: Sink
) -> Problem | ServingProblem | None:
    """Resolve ``tree``, a complete spec, to a problem; return None after an error."""
    return resolve_spec(Source("lint", json.dumps(tree), options.folder), (), sink)


def read_hosts(size: JobSize) -> dict[str, Any]:
    """Return ``cluster`` with the numbers of hosts and GPUs that the launch lines contain."""
    cluster: dict[str, Any] = {}
    if size.nodes is not None:
        cluster["nodes"] = size.nodes
    if size.gpus_per_node is not None:
        cluster["node"] = {"gpus_per_node": size.gpus_per_node}
    return cluster


def cluster_tree(written: Mapping[str, Any], options: LintOptions) -> Any:
    """Return ``cluster`` of a complete spec: the ``written`` hosts, of the type in ``options``.

    ``--gpus`` replaces the written numbers; of each host as many GPUs are used as divide it.
    """
    library = Library(None)
    base = options.cluster if options.cluster in library.names("clusters") else None
    kind = library.entry("clusters", base)["node"] if base else options.cluster or NODE
    known = kind in library.names("nodes")
    whole: int = library.entry("nodes", kind if known else NODE)["gpus_per_node"]
    per_node: int = written.get("node", {}).get("gpus_per_node", whole)
    nodes: int | None = written.get("nodes")
    if options.gpus is not None:
        per_node = ranks_per_node(per_node, options.gpus)
        nodes = options.gpus // per_node
    if base and nodes is None and per_node == whole:
        return base
    part = {"base": kind, "gpus_per_node": per_node, "nvlink_domain": per_node}
    node = {} if base and per_node == whole else {"node": kind if per_node == whole else part}
    return {**({"base": base} if base else {}), **node, "nodes": nodes or 1}


def is_catalog_cluster(options: LintOptions) -> bool:
    """Return True if ``--cluster`` names a whole cluster, whose number of hosts is known."""
    return options.cluster in Library(None).names("clusters")


def catalog_name(checkpoint: str) -> str | None:
    """Return the catalog name of the model of ``checkpoint``; None if the catalog lacks it.

    ``meta-llama/Llama-3.1-70B-Instruct`` -> ``llama-3.1-70b``.
    """
    names = Library(None).names("models")
    name = checkpoint.rstrip("/").rpartition("/")[2].lower().removeprefix("meta-")
    while name not in names and VARIANTS.search(name):
        name = VARIANTS.sub("", name)
    return name if name in names else None


def known_cluster(cluster: Cluster, options: LintOptions, per_node: bool, counted: bool) -> Cluster:
    """Return ``cluster`` with the fields hidden that are stand-ins.

    Args:
        cluster: the complete cluster.
        options: with ``--cluster``, everything is known except the number of hosts.
        per_node: the number of GPUs per host is known.
        counted: the number of hosts is known.
    """
    if options.cluster is None:
        hidden = ["nvlink_domain", "link_gb_per_s", "nics", "nic_gbps", "cpu_cores"]
        node = hide(cluster.node, hidden if per_node else [*hidden, "gpus"])
        cluster = hide(with_values(cluster, node=node), ["gpu", "fabric"])
    return cluster if counted else hide(cluster, ["racks"])


ENOUGH_HOSTS = 64
"""Stand-in for an unknown number of hosts, which must be large enough for the layout to resolve."""


def service_facts(
    engine: str, checkpoint: str, degrees: Mapping[str, int], options: LintOptions
) -> LaunchFacts[ServingProblem, ServingLayout] | None:
    """Return the facts of a launch; None if they do not resolve to a problem.

    Formats, limits and goals are unknown, so that rules on memory are skipped.

    Args:
        engine: name of the backend.
        checkpoint: model that is served, as the command names it; empty: unknown.
        degrees: fields of ``layout`` in the spec, all others are 1: ``{"tp": 8}``.
        options: additional facts of the user.
    """
    name = options.model or catalog_name(checkpoint)
    counted = options.gpus is not None or is_catalog_cluster(options)
    problem = resolve_tree(
        {
            "parc": 1,
            "name": "lint",
            "model": name or MODEL,
            "cluster": cluster_tree({} if counted else {"nodes": ENOUGH_HOSTS}, options),
            "job": {
                "kind": "serve",
                "traffic": {"input_tokens": 1, "output_tokens": 1, "concurrency": 1},
                "checkpoint": "the-checkpoint",
            },
            "layout": dict(degrees),
            "emit": [engine],
            "versions": {engine: options.version},
        },
        options,
        Sink(),  # its findings would be about the stand-ins
    )
    if not isinstance(problem, ServingProblem):
        return None
    known = hide(problem, ["service", "goals", *([] if name else ["model"])])
    cluster = known_cluster(problem.cluster, options, False, counted)
    fields: dict[str, Any] = dict(degrees)
    layout = ServingLayout(**fields)
    return LaunchFacts(problem, layout, with_values(known, cluster=cluster), layout)
