"""PARC rejects every spec that DeepSpeed rejects, or accepts and ignores in part."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.backends.deepspeed.boundaries import BOUNDARIES
from tests.compiled import planned, resolved
from tests.conformance.deepspeed.cases import case_of, layout_as_pinned
from tests.conformance.deepspeed.specs import variation
from tests.conformance.tool_checkers import deepspeed_verdicts

pytestmark = pytest.mark.conformance
VARIATIONS = 360
REJECTIONS = 100
ENGINE_EVERY = 8
"""The engine is built for every eighth spec, because it needs one or two seconds and a config needs
a tenth of one.
"""


def runs_on_cpu(config: dict[str, Any]) -> bool:
    """Return True if the engine can be built here: no fp16, no CUDA kernels, no NVMe library."""
    zero = config["zero_optimization"]
    quantized = any(key.startswith("zero_quantized") for key in zero)
    half = config.get("fp16", {}).get("enabled", False)
    return not (half or quantized or "aio" in config)


def reaction_to(verdict: dict[str, Any]) -> str:
    """Return the stage at which DeepSpeed rejects a case, ``silent`` if it ignores keys, or an
    empty string.
    """
    if not verdict["accepted"]:
        return str(verdict["stage"])
    return "silent" if verdict["keys_ignored"] or verdict["keys_without_effect"] else ""


def test_random_variations_that_deepspeed_rejects_or_ignores_are_rejected_by_parc() -> None:
    cases, rejected_by_parc = [], []
    for seed in range(VARIATIONS):
        problem, _ = resolved(variation(seed))
        layout = layout_as_pinned(problem) if problem is not None else None
        if problem is None or layout is None:
            continue
        case = case_of(f"variation {seed}", problem, layout, groups=True)
        engine = seed % ENGINE_EVERY == 0 and runs_on_cpu(case["config"])
        cases.append(case | {"engine": engine})
        plan, sink = planned(variation(seed))
        rejected_by_parc.append(plan is None and sink.failed())
    verdicts = deepspeed_verdicts(cases)
    bad = [reaction_to(verdict) for verdict in verdicts]
    stages = Counter(filter(None, bad))
    missed = {
        verdict["name"]: (how, verdict.get("error"))
        for verdict, how, ours in zip(verdicts, bad, rejected_by_parc, strict=True)
        if how and not ours
    }
    assert missed == {}, stages
    assert stages.total() >= REJECTIONS, stages
    assert len(stages) >= 3, stages


def test_hybrid_sharding_is_rejected_because_deepspeed_removed_mics() -> None:
    mics = {"stage": 3, "mics_shard_size": 8}
    spec = variation(0) | {"layout": {"zero_stage": 3, "dp_shard": 4, "micro_batch": 1}}
    plan, sink = planned(spec)
    assert plan is None
    assert "PARC-E08" in {found.code for found in sink.diagnostics}
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": mics}
    (verdict,) = deepspeed_verdicts([{"config": config, "world": 16}])
    assert not verdict["accepted"]
    assert "MiCS" in verdict["error"]


def test_deepspeed_handles_the_bad_spec_of_each_boundary_as_listed() -> None:
    cases, expected = [], []
    for k, boundary in enumerate(BOUNDARIES):
        for spec in (boundary.bad, boundary.good):
            problem, _ = resolved(spec)
            layout = layout_as_pinned(problem) if problem is not None else None
            if problem is None or layout is None or not boundary.taken:
                continue
            case = case_of(f"{k} {boundary.code}", problem, layout, groups=True)
            cases.append(case | {"engine": runs_on_cpu(case["config"])})
            expected.append(boundary.taken if spec is boundary.bad else "")
    verdicts = deepspeed_verdicts(cases)
    assert [reaction_to(verdict) for verdict in verdicts] == expected
