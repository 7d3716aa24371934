"""Complete the model and cluster of a launch file to a full spec, using options of ``parc lint``.

Fields that neither the file nor an option sets get stand-ins, so that the spec resolves. These
fields are then hidden, so that no rule uses a stand-in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from parc.compiler.catalog.checkpoints import catalog_model_of
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Cluster, Problem, ServingLayout, ServingProblem
from parc.compiler.ir.serving import ServingSetup
from parc.compiler.ir.serving_plan import Service
from parc.compiler.pipeline import resolve_spec
from parc.compiler.resolve.resolve_checkpoint import weight_format
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.tools.lint.check_rules import LaunchFacts
from parc.compiler.tools.lint.launch_lines import JobSize, read_job_size
from parc.compiler.tools.lint.options import LintOptions
from parc.compiler.tools.lint.partial_ir import (
    build_partial_instance,
    mark_fields_unknown,
    with_field_values,
)
from parc.compiler.tools.lint.script import LintedScript
from parc.compiler.topology.node_groups import ranks_per_node

MODEL, NODE = "llama-3-8b", "dgx-h100"
"""Stand-ins for the model and the host type if neither the file nor an option names them."""
VARIANTS = re.compile(r"-(hf|instruct|chat|base|it|fp8|awq|gptq|v0\.[0-9])$")
"""Suffix of a checkpoint name that does not change the dimensions of the model."""


def check_lint_options(options: LintOptions, sink: Sink) -> bool:
    """Return True if the model and the cluster that ``options`` name are valid.

    Otherwise report the errors that a spec with these names has, such as an unknown model (K01).
    """
    if options.model is None and options.cluster is None:
        return True
    tree = {
        "parc": 1,
        "name": "lint",
        "model": options.model or MODEL,
        "cluster": cluster_section({}, options),
        "job": {"sequence_length": 1, "global_batch": 1},
    }
    trial = Sink()
    resolve_spec_tree(tree, options, trial)
    named = ("model", "cluster")
    found = [one for one in trial.diagnostics if one.path.partition(".")[0] in named]
    # Causes point into the spec that was built here, which the user does not see.
    for one in found:
        sink.report(one.code.removeprefix("PARC-"), replace(one.finding, causes=()))
    return not any(one.severity == "error" for one in found)


def resolve_spec_tree(
    tree: Mapping[str, Any], options: LintOptions, sink: Sink
) -> Problem | ServingProblem | None:
    """Return the problem that the spec ``tree`` describes; None after an error.

    ``tree`` must contain all required fields of a spec.
    """
    # JSON is valid YAML, so the usual reader of specs can parse the tree.
    # The user can name any file with --model; a script can name only files below the folder.
    root = Path("/") if options.model else None
    return resolve_spec(SpecSource("lint", json.dumps(tree), options.folder, root), (), sink)


def with_job_size(options: LintOptions, script: LintedScript) -> LintOptions:
    """Return ``options`` with the numbers of GPUs of ``script`` that the user does not give."""
    size = read_job_size(script)
    if options.gpus is not None or size.gpus_per_node is None:
        return options
    whole = Library(None).entry("nodes", NODE)["gpus_per_node"]
    per_node = size.gpus_per_node if size.gpus_per_node <= whole else None
    return replace(options, gpus=size.gpus, gpus_per_node=per_node)


def read_hosts(size: JobSize) -> dict[str, Any]:
    """Return section ``cluster`` of a spec with the numbers of hosts and GPUs in ``size``.

    Numbers that are unknown are left out.
    """
    cluster: dict[str, Any] = {}
    if size.nodes is not None:
        cluster["nodes"] = size.nodes
    if size.gpus_per_node is not None:
        cluster["node"] = {"gpus_per_node": size.gpus_per_node}
    return cluster


def cluster_section(written: Mapping[str, Any], options: LintOptions) -> Any:
    """Return section ``cluster`` of a complete spec.

    ``options`` determine the host type; ``written``, which contains the facts in the launch file,
    determines the number of hosts and the GPUs per host. ``--gpus N`` overrides these two numbers:
    each host uses as many of its GPUs as possible such that N is divisible by their number.
    """
    library = Library(None)
    base = options.cluster if options.cluster in library.names("clusters") else None
    kind = library.entry("clusters", base)["node"] if base else options.cluster or NODE
    known = kind in library.names("nodes")
    node_type = library.entry("nodes", kind if known else NODE)
    whole: int = node_type["gpus_per_node"]
    per_node: int = written.get("node", {}).get("gpus_per_node") or (options.gpus_per_node or whole)
    nodes: int | None = written.get("nodes")
    if options.gpus is not None:
        per_node = ranks_per_node(per_node, options.gpus)
        nodes = options.gpus // per_node
    if base and nodes is None and per_node == whole:
        return base
    # A job that uses fewer GPUs per host also has smaller NVLink domains; PCIe has none.
    domain = node_type["nvlink_domain"]
    domain = domain // whole * per_node if domain >= whole else min(domain, per_node)
    part = {"base": kind, "gpus_per_node": per_node, "nvlink_domain": domain}
    node = {} if base and per_node == whole else {"node": kind if per_node == whole else part}
    return {**({"base": base} if base else {}), **node, "nodes": nodes or 1}


def is_catalog_cluster(options: LintOptions) -> bool:
    """Return True if ``--cluster`` names a cluster of the catalog, whose number of hosts is known.

    The option might instead name a host type, with an unknown number of hosts.
    """
    return options.cluster in Library(None).names("clusters")


def catalog_name(checkpoint: str) -> str | None:
    """Return the catalog name of the model in a checkpoint name; None if the catalog lacks it.

    The name of ``meta-llama/Llama-3.1-70B-Instruct`` is ``llama-3.1-70b``.
    """
    listed = catalog_model_of(checkpoint)
    if listed is not None:
        return listed
    names = Library(None).names("models")
    name = checkpoint.rstrip("/").rpartition("/")[2].lower().removeprefix("meta-")
    while name not in names and VARIANTS.search(name):
        name = VARIANTS.sub("", name)
    return name if name in names else None


def checkpoint_format(checkpoint: str) -> str | None:
    """Return the format of the weights in a checkpoint; ``bf16`` for 16-bit, None if unknown."""
    return weight_format(checkpoint)


def known_cluster(cluster: Cluster, options: LintOptions, per_node: bool, counted: bool) -> Cluster:
    """Return ``cluster`` with the fields that the user did not supply marked as unknown.

    Args:
        cluster: cluster with a value in each field; some values are placeholders.
        options: if these include ``--cluster``, only the number of hosts can be unknown.
        per_node: True if the number of GPUs per host is known.
        counted: True if the number of hosts is known.
    """
    if options.cluster is None:
        hidden = ["nvlink_domain", "link_gb_per_s", "nics", "nic_gbps", "cpu_cores"]
        node = mark_fields_unknown(cluster.node, hidden if per_node else [*hidden, "gpus"])
        cluster = mark_fields_unknown(with_field_values(cluster, node=node), ["gpu", "fabric"])
    return cluster if counted else mark_fields_unknown(cluster, ["racks"])


ENOUGH_HOSTS = 64
"""Stand-in for an unknown number of hosts, which must be large enough for the layout to resolve."""


def known_pool(problem: ServingProblem) -> Service:
    """Return the service of ``problem`` in which only the pool is known."""
    setup = build_partial_instance(ServingSetup, pool=problem.service.setup.pool)
    return build_partial_instance(Service, setup=setup)


def service_facts(
    engine: str,
    checkpoint: str,
    degrees: Mapping[str, int],
    options: LintOptions,
    pool: str = "both",
) -> LaunchFacts[ServingProblem, ServingLayout] | None:
    """Return the problem and the layout of a serving launch; None if they are invalid.

    Number formats, limits and goals are marked as unknown, so rules about memory are skipped.

    Args:
        engine: name of the engine's backend.
        checkpoint: name of the served model in the command; empty if unknown.
        degrees: parallel sizes as fields of ``layout``, such as ``{"tp": 8}``; other sizes are 1.
        options: facts that the user supplies by options.
        pool: value of ``job.pool`` that the command sets.
    """
    name = options.model or catalog_name(checkpoint)
    counted = options.gpus is not None or is_catalog_cluster(options)
    problem = resolve_spec_tree(
        {
            "parc": 1,
            "name": "lint",
            "model": name or MODEL,
            "cluster": cluster_section({} if counted else {"nodes": ENOUGH_HOSTS}, options),
            "job": {
                "kind": "serve",
                "traffic": {"input_tokens": 1, "output_tokens": 1, "concurrency": 1},
                "checkpoint": "the-checkpoint",
                "precision": "bf16",
                "pool": pool,
            },
            # A launch file states no load, so the fewest GPUs that suffice cannot be determined.
            "goals": {"maximize": "throughput"},
            "layout": dict(degrees),
            "emit": [engine],
            "versions": {engine: options.version},
        },
        options,
        Sink(),  # its findings would be about the stand-ins
    )
    if not isinstance(problem, ServingProblem):
        return None
    known = mark_fields_unknown(problem, ["goals", *([] if name else ["model"])])
    known = with_field_values(known, service=known_pool(problem))
    cluster = known_cluster(problem.cluster, options, options.gpus_per_node is not None, counted)
    fields: dict[str, Any] = dict(degrees)
    layout = ServingLayout(**fields)
    return LaunchFacts(problem, layout, with_field_values(known, cluster=cluster), layout)
