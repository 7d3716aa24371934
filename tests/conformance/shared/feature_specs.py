"""Specs of services with optional features, for the real parsers of both engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.compiled import messages_of
from tests.conformance.vllm.cases import config_of
from tests.search.serving_specs import plan_of, planned, spec

OWN = {"checkpoint": "/models/own", "precision": "bf16"}
ADAPTERS = {"lora": {"adapters": {"sql": "/models/sql", "chat": "/models/a, b"}, "rank": 32}}
COPIES = {"kv_offload": {"size": "100GB", "prefix_hit": "30%"}}
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
        "mtp": ("deepseek-v3", {"speculative": {"method": "mtp", "tokens": 1}, "precision": "fp8"}),
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
