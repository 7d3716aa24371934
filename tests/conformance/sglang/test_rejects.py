"""PARC rejects specs that SGLang rejects, or accepts with a failure or wrong result later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.backends.sglang.computed_settings import ALL2ALL
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.cluster_spec import ClusterSpec
from tests.conformance.sglang.cases import sglang_gpu
from tests.conformance.sglang.invalid_specs import InvalidSpec, invalid_services
from tests.conformance.tool_checkers import sglang_verdicts
from tests.conformance.vllm.cases import config_of
from tests.search.serving_specs import planned

pytestmark = pytest.mark.conformance
LIMITS = {
    "max_model_len": "--context-length",
    "max_num_seqs": "--max-running-requests",
    "max_num_batched_tokens": "--chunked-prefill-size",
    "block_tokens": "--page-size",
}


def case_as_pinned(invalid: InvalidSpec) -> dict[str, Any]:
    """Return the command that a user would write for the settings of the spec."""
    layout, job = invalid.tree["layout"], invalid.tree["job"]
    dp = layout.get("dp", 1)
    tp = layout["tp"] * dp * layout.get("pcp", 1)
    words = ["--model-path", "model", "--tp-size", str(tp), "--pp-size", str(layout.get("pp", 1))]
    words += ["--attn-dp-size", str(dp)] if dp > 1 else []
    words += [w for key, flag in LIMITS.items() if key in job for w in (flag, str(job[key]))]
    ep = layout.get("ep", "off")
    words += [] if ep in ("off", 1) else ["--ep-size", str(tp if ep == "on" else ep)]
    exchange = ALL2ALL.get(layout.get("all2all", ""), ("", None))[0]
    words += ["--moe-a2a-backend", exchange] if exchange else []
    if "redundant_experts" in layout:
        copies = str(layout["redundant_experts"])
        words += ["--enable-eplb", f"--ep-num-redundant-experts={copies}"]
    spec = ClusterSpec.model_validate_json(json.dumps(invalid.tree["cluster"]))
    cluster = resolve_cluster(spec, Library(), Sink())
    model = resolve_model(invalid.tree["model"], Library(), Sink())
    assert cluster is not None
    assert model is not None
    if cluster.nodes > 1 and layout["replicas"] == 1:
        words += ["--nnodes", str(cluster.nodes), "--node-rank", "0", "--dist-init-addr", "a:1"]
    stages = layout.get("stage_layers")
    return {
        "name": invalid.name,
        "argv": [*words, *invalid.words],
        "env": {"SGLANG_PP_LAYER_PARTITION": ",".join(map(str, stages))} if stages else {},
        "gpu": sglang_gpu(cluster.gpu),
        "gpus_per_node": cluster.node.gpus,
        "config": config_of(model, "fp8" if job.get("precision") == "fp8" else "bf16"),
    }


@pytest.mark.parametrize("invalid", invalid_services(), ids=lambda invalid: invalid.name)
def test_parc_rejects_the_spec(invalid: InvalidSpec) -> None:
    plan, sink = planned(invalid.tree)
    assert plan is None or sink.failed()
    assert not any(one.code.startswith("PARC-K") for one in sink.diagnostics)


def test_sglang_handles_the_commands_of_invalid_specs_as_listed() -> None:
    checked = [invalid for invalid in invalid_services() if invalid.outcome != "later"]
    verdicts = sglang_verdicts([case_as_pinned(invalid) for invalid in checked])
    wrong = {
        invalid.name: verdict.get("error", "accepted")[-300:]
        for invalid, verdict in zip(checked, verdicts, strict=True)
        if verdict["accepted"] != (invalid.outcome == "silent")
    }
    assert wrong == {}
    assert len(invalid_services()) >= 100
