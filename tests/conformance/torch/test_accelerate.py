"""Accelerate accepts the files that PARC emits, reads every key, and derives the same plan."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from parc.compiler.ir import Plan
from tests.backends.torch.specs import valid_spec
from tests.compiled import Spec, changed, examples, planned
from tests.conformance.tool_checkers import accelerate_verdicts
from tests.conformance.torch.cases import (
    accelerate_case,
    differing_groups,
    layout_as_pinned,
    plan_without_checks,
    valid_plans,
)

pytestmark = pytest.mark.conformance
VALID, INVALID = 120, 320


def differences(plan: Plan, verdict: dict[str, Any], rank: int) -> list[str]:
    """Return all differences between Accelerate's verdict and the plan."""
    if not verdict["accepted"]:
        return [f"rejected at {verdict['stage']}: {verdict['error']}"]
    layout, each, found = plan.layout, plan.placement.ranks_per_node, []
    sizes: dict[str, Any] = {"num_processes": layout.world, "mixed_precision": "bf16"}
    sizes |= {"nproc_per_node": str(each)}
    if layout.world > each:
        sizes |= {"nnodes": str(layout.world // each), "node_rank": rank // each}
        sizes |= {"rdzv_backend": "static"}
    if layout.zero_stage:
        sizes |= {name: getattr(layout, name) for name in ("dp_replicate", "dp_shard", "cp", "tp")}
        sizes |= {"fsdp_version": 2, "reshard_after_forward": layout.zero_stage == 3}
        sizes["activation_checkpointing"] = layout.recompute.granularity == "full"
    for name, value in sizes.items():
        if verdict["resolved"].get(name) != value:
            found.append(f"{name}: {verdict['resolved'].get(name)!r}, PARC {value!r}")
    found += [f"ignored: {key}" for key in verdict["keys_ignored"]]
    groups = verdict.get("groups", {})
    return found + [f"group {name}" for name in differing_groups(plan, groups, rank)]


def test_random_valid_specs_and_the_examples_are_accepted_as_planned() -> None:
    plans = valid_plans("accelerate", VALID) | examples("accelerate")
    ranks = {name: Random(name).randrange(plan.layout.world) for name, plan in plans.items()}
    cases = [accelerate_case(name, plan, ranks[name]) for name, plan in plans.items()]
    verdicts = accelerate_verdicts(cases)
    found = {
        name: differences(plan, verdict, ranks[name])
        for (name, plan), verdict in zip(plans.items(), verdicts, strict=True)
    }
    assert {name: rows for name, rows in found.items() if rows} == {}


CHANGES = {
    "layout.tp": (3, 5, 6, 7),
    "layout.cp": (3, 5, 6),
    "layout.dp": (3, 5, 6, 12, 24),
    "layout.dp_shard": (1, 3, 5, 6),
    "layout.zero_stage": (0,),
}


def variation(seed: int) -> Spec:
    """Return a valid spec with one or two values changed, which makes most of them invalid."""
    dice = Random(f"variation {seed}")
    spec = valid_spec("accelerate", seed)
    spec["launch"] = {"program": "train.py"}
    chosen = dice.sample(list(CHANGES), dice.choice((1, 2)))
    return changed(spec, {path: dice.choice(CHANGES[path]) for path in chosen})


def test_specs_that_accelerate_rejects_or_ignores_are_rejected_by_parc() -> None:
    specs = {}
    for seed in range(INVALID):
        made = layout_as_pinned(variation(seed))
        if made is not None:
            specs[f"variation {seed}"] = (variation(seed), made)
    cases = []
    for name, (_, (problem, layout)) in specs.items():
        case = accelerate_case(name, plan_without_checks(problem, layout), 0)
        # the GPUs of the cluster, whatever the product of the sizes is
        gpus = problem.cluster.gpus
        words = [w for w in case["args"] if not w.startswith(("--num_p", "--num_m"))]
        words += [f"--num_processes={gpus}", f"--num_machines={problem.cluster.nodes}"]
        cases.append(case | {"args": words})
    verdicts = accelerate_verdicts(cases)
    bad = [
        name
        for name, verdict in zip(specs, verdicts, strict=True)
        if not verdict["accepted"] or verdict["keys_ignored"]
    ]
    assert len(bad) >= 100
    assert [name for name in bad if planned(specs[name][0])[0] is not None] == []
