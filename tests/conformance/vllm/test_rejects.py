"""PARC rejects specs that vLLM rejects, or accepts with a failure or wrong result later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.cluster_spec import ClusterSpec
from tests.conformance.tool_checkers import vllm_gpu, vllm_verdicts
from tests.conformance.vllm.cases import config_of
from tests.conformance.vllm.invalid_specs import InvalidSpec, invalid_services
from tests.search.serving_specs import planned

pytestmark = pytest.mark.conformance
FLAGS = {
    "tp": "--tensor-parallel-size",
    "pp": "--pipeline-parallel-size",
    "dp": "--data-parallel-size",
    "pcp": "--prefill-context-parallel-size",
    "dcp": "--decode-context-parallel-size",
    "all2all": "--all2all-backend",
}
LIMITS = {
    "max_model_len": "--max-model-len",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
}


def case_as_pinned(invalid: InvalidSpec) -> dict[str, Any]:
    """Return the command that a user would write for the settings of the spec."""
    tree = invalid.tree
    layout, job = tree.get("layout", {}), tree["job"]
    words = ["model"]
    words += [w for key, flag in FLAGS.items() if key in layout for w in (flag, str(layout[key]))]
    words += [w for key, flag in LIMITS.items() if key in job for w in (flag, str(job[key]))]
    if layout.get("ep", "off") not in ("off", 1):
        words.append("--enable-expert-parallel")
    if "redundant_experts" in layout:
        settings = json.dumps({"num_redundant_experts": layout["redundant_experts"]})
        words += ["--enable-eplb", "--eplb-config", settings]
    spec = ClusterSpec.model_validate_json(json.dumps(tree["cluster"]))
    cluster = resolve_cluster(spec, Library(), Sink())
    model = resolve_model(tree["model"], Library(), Sink())
    assert cluster is not None
    assert model is not None
    if cluster.nodes > 1 and layout.get("dp", 1) == 1 and "replicas" not in _replicas(layout):
        words += ["--nnodes", str(cluster.nodes), "--node-rank", "0", "--master-addr", "a"]
    words += tree.get("launch", {}).get("args", [])
    stages = layout.get("stage_layers")
    blocks = "fp8" if job.get("precision") == "fp8" else "bf16"
    return {
        "name": invalid.name,
        "argv": words,
        "env": {"VLLM_PP_LAYER_PARTITION": ",".join(map(str, stages))} if stages else {},
        "gpu": vllm_gpu(cluster.gpu),
        "gpus_per_node": cluster.node.gpus,
        "config": config_of(model, blocks),
    }


def _replicas(layout: dict[str, Any]) -> dict[str, Any]:
    """Return the replicas if there are several: engines are separate processes, so a command spans
    all hosts only if there is one engine.
    """
    return {"replicas": layout["replicas"]} if layout.get("replicas", 1) > 1 else {}


@pytest.mark.parametrize("invalid", invalid_services(), ids=lambda invalid: invalid.name)
def test_parc_rejects_the_spec(invalid: InvalidSpec) -> None:
    plan, sink = planned(invalid.tree)
    assert plan is None
    assert sink.failed()


def test_vllm_handles_the_commands_of_invalid_specs_as_listed() -> None:
    checked = [invalid for invalid in invalid_services() if invalid.outcome != "later"]
    verdicts = vllm_verdicts([case_as_pinned(invalid) for invalid in checked])
    wrong = {
        invalid.name: verdict.get("error", "accepted")[:200]
        for invalid, verdict in zip(checked, verdicts, strict=True)
        if verdict["accepted"] != (invalid.outcome == "silent")
    }
    assert wrong == {}
    assert len(invalid_services()) >= 100
