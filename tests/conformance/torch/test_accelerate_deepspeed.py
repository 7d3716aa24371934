"""Accelerate's DeepSpeed plugin accepts the emitted files, and DeepSpeed accepts the result."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from parc.backends.deepspeed.capabilities import VERSIONS
from parc.compiler.ir import Plan
from tests.compiled import examples, planned
from tests.conformance.deepspeed.specs import CPU_CANNOT, Spec, kind_of, valid_spec, variation
from tests.conformance.deepspeed.test_accepts import differences
from tests.conformance.deepspeed.test_rejects import reaction_to, runs_on_cpu
from tests.conformance.tool_checkers import accelerate_verdicts, deepspeed_verdicts
from tests.conformance.torch.cases import (
    accelerate_case,
    layout_as_pinned,
    plan_without_checks,
)

pytestmark = pytest.mark.conformance
PLUGGED = ("zero", "offload", "nvme", "plus")
"""Kinds of specs that Accelerate supports."""
VALID, VARIATIONS, REJECTIONS = 120, 320, 100
ENGINES, ENGINE_EVERY = 8, 15


def seeds(count: int, kinds: tuple[str, ...] = PLUGGED) -> list[int]:
    """Return the first seeds of these kinds."""
    every = (seed for seed in range(10 * count) if kind_of(seed) in kinds)
    return [seed for seed, _ in zip(every, range(count), strict=False)]


def with_accelerate(spec: Spec) -> Spec:
    """Return the spec for both tools; a model that is not a Llama gets a user program."""
    model = spec["model"]
    llama = model["norm"] == "rmsnorm" and model["position"]["kind"] == "rope"
    launch = spec.get("launch") or ({} if llama else {"program": "train.py"})
    emit = ["accelerate", "deepspeed", "rankmap", "torchrun"]
    return spec | {"emit": emit} | ({"launch": launch} if launch else {})


def launch_differences(plan: Plan, verdict: dict[str, Any], rank: int) -> list[str]:
    """Return all differences between Accelerate's verdict and the plan."""
    if not verdict["accepted"]:
        return [f"rejected at {verdict['stage']}: {verdict['error']}"]
    layout, each = plan.layout, plan.placement.ranks_per_node
    sizes: dict[str, Any] = {"num_processes": layout.world, "zero_stage": layout.zero_stage}
    sizes |= {"nproc_per_node": str(each), "use_parallelism_config": False}
    if layout.world > each:
        sizes |= {"nnodes": str(layout.world // each), "node_rank": rank // each}
        sizes |= {"rdzv_backend": "static", "rdzv_endpoint": "10.0.0.1:29500"}
    seen = verdict["resolved"]
    found = [f"{k}: {seen.get(k)!r}, PARC {v!r}" for k, v in sizes.items() if seen.get(k) != v]
    return found + [f"ignored: {key}" for key in verdict["keys_ignored"]]


def deepspeed_case(verdict: dict[str, Any], world: int) -> dict[str, Any]:
    """Return the config that Accelerate passes to ``deepspeed.initialize`` as a case for
    DeepSpeed.
    """
    return {"config": verdict["resolved"]["deepspeed_config"], "world": world}


def test_accelerate_and_deepspeed_accept_random_valid_specs_and_the_examples_as_planned() -> None:
    plans = {}
    for seed in seeds(VALID):
        plan, sink = planned(with_accelerate(valid_spec(seed)))
        assert plan is not None, (seed, [one.finding.message for one in sink.diagnostics])
        plans[f"legal {seed}"] = plan
    ours = examples("deepspeed").items()
    plans |= {name: plan for name, plan in ours if "accelerate" in plan.problem.emit}
    ranks = {name: Random(name).randrange(plan.layout.world) for name, plan in plans.items()}
    cases = [accelerate_case(name, plan, ranks[name]) for name, plan in plans.items()]
    first = dict(zip(plans, accelerate_verdicts(cases), strict=True))
    found = {
        name: launch_differences(plan, first[name], ranks[name]) for name, plan in plans.items()
    }
    assert {name: rows for name, rows in found.items() if rows} == {}
    cases = [deepspeed_case(first[name], plan.layout.world) for name, plan in plans.items()]
    built = [case for case in cases if runs_on_cpu(case["config"])][:ENGINES]
    assert len(built) == ENGINES
    for case in built:
        case["engine"] = True
    second = zip(plans, deepspeed_verdicts(cases), strict=True)
    found = {name: differences(plans[name], verdict) for name, verdict in second}
    assert {name: rows for name, rows in found.items() if rows} == {}


def test_specs_that_deepspeed_rejects_or_ignores_behind_accelerate_are_rejected_by_parc() -> None:
    cases, plans, rejected_by_parc = [], [], []
    for seed in seeds(VARIATIONS):
        spec = with_accelerate(variation(seed))
        made = layout_as_pinned(spec)
        if made is None:
            continue
        plan = plan_without_checks(*made)
        gpus = plan.problem.cluster.gpus
        case = accelerate_case(f"variation {seed}", plan, 0)
        # the GPUs of the cluster, whatever the product of the sizes is
        words = [w for w in case["args"] if not w.startswith(("--num_p", "--num_m"))]
        words += [f"--num_processes={gpus}", f"--num_machines={plan.problem.cluster.nodes}"]
        cases.append(case | {"args": words})
        plans.append(plan)
        rejected_by_parc.append(planned(spec)[0] is None)
    first = accelerate_verdicts(cases)
    assert all(verdict["accepted"] for verdict in first)  # the errors are in DeepSpeed's file
    second = []
    for place, (plan, verdict) in enumerate(zip(plans, first, strict=True)):
        case = deepspeed_case(verdict, plan.problem.cluster.gpus) | {"name": verdict["name"]}
        engine = place % ENGINE_EVERY == 0 and runs_on_cpu(case["config"])
        second.append(case | {"engine": engine, "groups": True})
    bad = [reaction_to(verdict) for verdict in deepspeed_verdicts(second)]
    stages = Counter(filter(None, bad))
    missed = [case["name"] for case, how, ours in zip(second, bad, rejected_by_parc, strict=True)
              if how and not ours]  # fmt: skip
    assert missed == [], stages
    assert stages.total() >= REJECTIONS, stages


def test_accelerate_rejects_keys_that_conflict_with_the_deepspeed_config_file() -> None:
    plan, _ = planned(with_accelerate(valid_spec(seeds(1)[0])))
    assert plan is not None
    case = accelerate_case("plain", plan, 0)
    conflict = "  gradient_accumulation_steps: 4\n"
    head = "deepspeed_config:\n"
    cases = [
        case,
        case | {"yaml_text": case["yaml_text"] + "mixed_precision: bf16\n"},
        case | {"yaml_text": case["yaml_text"].replace(head, head + conflict)},
    ]
    verdicts = accelerate_verdicts(cases)
    assert [one["accepted"] for one in verdicts] == [True, False, False]
    assert [one["stage"] for one in verdicts[1:]] == ["plugin", "plugin"]
    assert VERSIONS[-1] == "0.19.8"
    assert set(CPU_CANNOT) <= set(PLUGGED)
