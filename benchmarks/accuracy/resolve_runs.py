"""Models and clusters of runs, each resolved once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.accuracy.runs import PUBLISHED, Run, read_models
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Cluster, Model
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.cluster_spec import ClusterSpec, NodeSpec
from parc.compiler.spec.model_spec import ModelSpec


class Resolver:
    """Cache of models and clusters that the compiler's passes resolve."""

    def __init__(self) -> None:
        """Read the catalog and the published models that it lacks."""
        self._library = Library(None)
        self._published = read_models(PUBLISHED / "models.jsonl")
        self._models: dict[object, Model | None] = {}
        self._clusters: dict[object, Cluster | None] = {}

    def model(self, run: Run) -> Model | None:
        """Return the model, or None if its name is unknown."""
        key = (run.model, run.layers, run.mtp, repr(run.spec))
        if key not in self._models:
            self._models[key] = resolve_model(self._spec(run), self._library, Sink())
        return self._models[key]

    def _spec(self, run: Run) -> ModelSpec:
        spec = run.spec or self._published.get(run.model) or ModelSpec(base=run.model)
        update: dict[str, object] = {"mtp_layers": run.mtp} if run.mtp else {}
        if run.layers:
            update["layers"] = run.layers
        return spec.model_copy(update=update)

    def cluster(self, run: Run) -> Cluster | None:
        """Return a cluster with enough hosts for the run.

        If the run uses only a part of one host, the host is reduced to that part.
        """
        key = (run.node, run.gpus, run.gpus_per_node, run.network_gbps, run.nics)
        if key not in self._clusters:
            self._clusters[key] = self._cluster(run)
        return self._clusters[key]

    def _cluster(self, run: Run) -> Cluster | None:
        if run.node not in self._library.names("nodes"):
            return None
        entry = self._library.entry("nodes", run.node)
        whole = int(entry["gpus_per_node"])
        per_node = min(run.gpus_per_node or whole, whole)
        spec = run.node if per_node == whole else _smaller_node(run.node, entry, per_node)
        hosts = -(-run.gpus // per_node)
        cluster = resolve_cluster(ClusterSpec(node=spec, nodes=hosts), self._library, Sink())
        if cluster is None:
            return None
        node = cluster.node
        # a stated rate applies to the whole host
        if run.network_gbps and node.nics:
            nics = run.nics or node.nics
            node = replace(node, nics=nics, nic_gbps=run.network_gbps / nics)
        if run.gpus < per_node:
            node = replace(node, gpus=run.gpus, nvlink_domain=min(node.nvlink_domain, run.gpus))
        return replace(cluster, node=node)


def _smaller_node(node: str, entry: dict[str, Any], gpus: int) -> NodeSpec:
    """Return a variant of ``node`` with fewer GPUs and proportionally fewer NICs."""
    return NodeSpec(
        base=node,
        gpus_per_node=gpus,
        nvlink_domain=min(int(entry["nvlink_domain"]), gpus),
        nics=-(-int(entry["nics"]) * gpus // int(entry["gpus_per_node"])),
    )
