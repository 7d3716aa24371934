"""Accelerate's DeepSpeed plugin takes what PARC emits, and so does DeepSpeed behind it."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from parc.backends.deepspeed.supported import DEFAULT
from parc.compiler.ir import Plan
from tests.compiled import examples, planned
from tests.conformance.deepspeed_specs import CPU_CANNOT, Spec, kind_of, valid_spec, variation
from tests.conformance.test_deepspeed_accepts import differences
from tests.conformance.test_deepspeed_refuses import runs_on_cpu, taken
from tests.conformance.tool_judging import accelerate_verdicts, deepspeed_verdicts
from tests.conformance.torch_cases import (
    accelerate_case,
    layout_as_pinned,
    unjudged_plan,
)

pytestmark = pytest.mark.conformance
PLUGGED = ("zero", "offload", "nvme", "plus")
"""Kinds of specs that Accelerate has a way for."""
LEGAL, VARIATIONS, REFUSALS = 120, 320, 100
ENGINES, ENGINE_EVERY = 8, 15


def seeds(count: int, kinds: tuple[str, ...] = PLUGGED) -> list[int]:
    """The first seeds of these kinds."""
    every = (seed for seed in range(10 * count) if kind_of(seed) in kinds)
    return [seed for seed, _ in zip(every, range(count), strict=False)]


def behind_accelerate(spec: Spec) -> Spec:
    """The spec for both; a model that is no Llama gets a program of the user's."""
    model = spec["model"]
    llama = model["norm"] == "rmsnorm" and model["position"]["kind"] == "rope"
    launch = spec.get("launch") or ({} if llama else {"program": "train.py"})
    emit = ["accelerate", "deepspeed", "rankmap", "torchrun"]
    return spec | {"emit": emit} | ({"launch": launch} if launch else {})


def told(plan: Plan, verdict: dict[str, Any], rank: int) -> list[str]:
    """Everything in which Accelerate and the plan do not agree."""
    if not verdict["accepted"]:
        return [f"refused at {verdict['stage']}: {verdict['error']}"]
    layout, each = plan.layout, plan.placement.ranks_per_node
    sizes: dict[str, Any] = {"num_processes": layout.world, "zero_stage": layout.zero_stage}
    sizes |= {"nproc_per_node": str(each), "use_parallelism_config": False}
    if layout.world > each:
        sizes |= {"nnodes": str(layout.world // each), "node_rank": rank // each}
        sizes |= {"rdzv_backend": "static", "rdzv_endpoint": "10.0.0.1:29500"}
    seen = verdict["resolved"]
    found = [f"{k}: {seen.get(k)!r}, PARC {v!r}" for k, v in sizes.items() if seen.get(k) != v]
    return found + [f"ignored: {key}" for key in verdict["keys_ignored"]]


def handed_on(verdict: dict[str, Any], world: int) -> dict[str, Any]:
    """What Accelerate gives to ``deepspeed.initialize``, as a case of DeepSpeed's judge."""
    return {"config": verdict["resolved"]["deepspeed_config"], "world": world}


def test_random_valid_specs_and_the_examples_are_accepted_by_both_and_mean_the_same() -> None:
    plans = {}
    for seed in seeds(LEGAL):
        plan, sink = planned(behind_accelerate(valid_spec(seed)))
        assert plan is not None, (seed, [one.finding.message for one in sink.diagnostics])
        plans[f"legal {seed}"] = plan
    ours = examples("deepspeed").items()
    plans |= {name: plan for name, plan in ours if "accelerate" in plan.problem.emit}
    ranks = {name: Random(name).randrange(plan.layout.world) for name, plan in plans.items()}
    cases = [accelerate_case(name, plan, ranks[name]) for name, plan in plans.items()]
    first = dict(zip(plans, accelerate_verdicts(cases), strict=True))
    found = {name: told(plan, first[name], ranks[name]) for name, plan in plans.items()}
    assert {name: rows for name, rows in found.items() if rows} == {}
    cases = [handed_on(first[name], plan.layout.world) for name, plan in plans.items()]
    built = [case for case in cases if runs_on_cpu(case["config"])][:ENGINES]
    assert len(built) == ENGINES
    for case in built:
        case["engine"] = True
    second = zip(plans, deepspeed_verdicts(cases), strict=True)
    found = {name: differences(plans[name], verdict) for name, verdict in second}
    assert {name: rows for name, rows in found.items() if rows} == {}


def test_what_both_refuse_or_ignore_parc_refuses() -> None:
    cases, plans, refused_by_parc = [], [], []
    for seed in seeds(VARIATIONS):
        spec = behind_accelerate(variation(seed))
        made = layout_as_pinned(spec)
        if made is None:
            continue
        plan = unjudged_plan(*made)
        gpus = plan.problem.cluster.gpus
        case = accelerate_case(f"variation {seed}", plan, 0)
        # the GPUs that there are, whatever the degrees come to
        words = [w for w in case["args"] if not w.startswith(("--num_p", "--num_m"))]
        words += [f"--num_processes={gpus}", f"--num_machines={plan.problem.cluster.nodes}"]
        cases.append(case | {"args": words})
        plans.append(plan)
        refused_by_parc.append(planned(spec)[0] is None)
    first = accelerate_verdicts(cases)
    assert all(verdict["accepted"] for verdict in first)  # what is wrong is in DeepSpeed's file
    second = []
    for place, (plan, verdict) in enumerate(zip(plans, first, strict=True)):
        case = handed_on(verdict, plan.problem.cluster.gpus) | {"name": verdict["name"]}
        engine = place % ENGINE_EVERY == 0 and runs_on_cpu(case["config"])
        second.append(case | {"engine": engine, "groups": True})
    bad = [taken(verdict) for verdict in deepspeed_verdicts(second)]
    stages = Counter(filter(None, bad))
    missed = [case["name"] for case, how, ours in zip(second, bad, refused_by_parc, strict=True)
              if how and not ours]  # fmt: skip
    assert missed == [], stages
    assert stages.total() >= REFUSALS, stages


def test_keys_that_conflict_with_a_file_of_deepspeed_are_refused_by_accelerate() -> None:
    plan, _ = planned(behind_accelerate(valid_spec(seeds(1)[0])))
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
    assert DEFAULT == "0.19.8"
    assert set(CPU_CANNOT) <= set(PLUGGED)
