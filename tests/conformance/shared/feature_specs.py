"""Specs of services with optional features, for the real parsers of both engines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from parc.compiler.ir import ServingPlan
from tests.compiled import messages_of
from tests.conformance.vllm.cases import config_of
from tests.search.serving_specs import plan_of, planned, spec

OWN = {"checkpoint": "/models/own", "precision": "bf16"}
ADAPTERS = {"lora": {"adapters": {"sql": "/models/sql", "chat": "/models/a, b"}, "rank": 32}}
MTP = {"speculative": {"method": "mtp", "tokens": 1}}
COPIES = {"kv_offload": {"size": "100GB", "prefix_hit": "30%"}}
POOLS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "dense": ("llama-3.1-8b", {"tp": 2}, {}),
    "engines": ("llama-3.1-8b", {"tp": 4, "replicas": 2}, {"kv_precision": "fp8"}),
    "adapters": ("llama-3.1-8b", {"tp": 2}, ADAPTERS),
    "latent": ("deepseek-v3", {"tp": 1, "dp": 8, "ep": "on"}, {"precision": "fp8"}),
    "experts": ("qwen3-235b-a22b", {"tp": 4, "dp": 2, "ep": "on"}, {"precision": "fp8"}),
    "drafts": ("deepseek-v3", {"tp": 8}, {"precision": "fp8", **MTP}),
    "ngram": ("llama-3.1-8b", {"tp": 2}, {"speculative": {"method": "ngram", "tokens": 4}}),
}
"""Name -> (model, layout, more of ``job``) of services whose pools are planned."""
DRAFT = {"method": "draft-model", "model": "llama-3.2-1b", "tokens": 3}


def feature_plans(engine: str, folder: Path) -> dict[str, Any]:
    """Return name -> plan of each feature; ``folder`` gets the configs of drafts."""
    small = plan_of(spec("llama-3.2-1b", "dgx-h100")).problem.model
    draft = folder / "draft"
    draft.mkdir()
    (draft / "config.json").write_text(json.dumps(config_of(small)))
    head = folder / "head"
    head.mkdir()
    (head / "config.json").write_text(json.dumps(config_of(small) | {"num_hidden_layers": 1}))
    eagle = {"method": "eagle", "tokens": 2, "checkpoint": str(head)}
    jobs: dict[str, tuple[str, dict[str, Any]]] = {
        "ngram": ("llama-3.1-8b", {"speculative": {"method": "ngram", "tokens": 4}}),
        "eagle": ("llama-3.1-8b", {"speculative": eagle}),
        "draft": ("llama-3.1-8b", {"speculative": {**DRAFT, "checkpoint": str(draft)}}),
        "mtp": ("deepseek-v3", {**MTP, "precision": "fp8"}),
        "lora": ("llama-3.1-8b", ADAPTERS),
        "copies": ("llama-3.1-8b", COPIES),
        "uncached": ("llama-3.1-8b", {"prefix_caching": False}),
        "together": ("llama-3.1-8b", {**ADAPTERS, **COPIES, "speculative": eagle}),
    }
    plans = {}
    for name, (model, job) in jobs.items():
        layout = {"tp": 8, "pp": 1, "dp": 1, "replicas": 1}
        layout |= {"ep": "on"} if name == "mtp" else {"tp": 2}
        tree = spec(model, "hgx-h200", job={**OWN, **job}, layout=layout) | {"emit": [engine]}
        plan, sink = planned(tree)
        assert plan is not None, (name, messages_of(sink))
        plans[name] = plan
    return plans


def pool_plans(
    engine: str, names: Iterable[str] = tuple(POOLS)
) -> dict[tuple[str, str], ServingPlan]:
    """Return (name, pool) -> plan of the services ``names`` of ``POOLS``."""
    plans = {}
    for name in names:
        model, sizes, job = POOLS[name]
        for pool in ("prefill", "decode"):
            layout = {"pp": 1, "dp": 1, "replicas": 1} | sizes
            tree = spec(model, "hgx-h200", job={**OWN, **job, "pool": pool}, layout=layout)
            plan, sink = planned(tree | {"emit": [engine]})
            assert plan is not None, (name, pool, messages_of(sink))
            plans[name, pool] = plan
    return plans
