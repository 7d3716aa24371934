"""Models and clusters that the tests of serving share."""

from __future__ import annotations

from functools import cache
from typing import Any

from parc.backends.registry import engine
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Cluster, Model
from parc.compiler.ir.serving import ServingSetup
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.cluster_spec import ClusterSpec

VLLM = engine("vllm").constants()
"""Constants of the engine that most tests of serving costs use."""


def vllm_setup(**fields: Any) -> ServingSetup:
    """Number formats and limits under vLLM."""
    return ServingSetup(VLLM, **fields)


@cache
def model(name: str) -> Model:
    """A model of the catalog."""
    found = resolve_model(name, Library(), Sink())
    assert found is not None
    return found


@cache
def cluster(node: str, nodes: int = 1) -> Cluster:
    """Hosts of a node type of the catalog."""
    spec = ClusterSpec.model_validate({"node": node, "nodes": nodes})
    found = resolve_cluster(spec, Library(), Sink())
    assert found is not None
    return found
