"""torchtitan and PARC accept and reject the same specs, and derive the same plan."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from parc.backends.torchtitan.computed_settings import SCHEDULES
from parc.compiler.ir import Plan
from tests.backends.torch.boundaries import BOUNDARIES
from tests.backends.torch.specs import valid_spec
from tests.compiled import Spec, changed, examples, planned
from tests.conformance.tool_checkers import torchtitan_verdicts
from tests.conformance.torch.cases import (
    differing_groups,
    layout_as_pinned,
    plan_without_checks,
    titan_case,
    valid_plans,
)
from tests.hyperparameters import planned_rate

pytestmark = pytest.mark.conformance
VALID, INVALID = 120, 260


def differences(plan: Plan, verdict: dict[str, Any], rank: int) -> list[str]:
    """Return all differences between torchtitan's verdict and the plan."""
    if not verdict["accepted"]:
        return [f"rejected at {verdict['stage']}: {verdict['error']}"]
    layout, job, found = plan.layout, plan.problem.job, []
    shard = 1 if layout.zero_stage == 0 else layout.dp_shard
    sizes = {name: getattr(layout, name) for name in ("pp", "cp", "tp", "ep")}
    sizes |= {"dp_shard": shard, "dp_replicate": layout.dp // shard}
    if verdict["sizes"] != sizes:
        found.append(f"sizes {verdict['sizes']}, PARC {sizes}")
    count = layout.micro_batches(job.global_batch)
    batch = {
        "global_batch_size": job.global_batch,
        "gradient_accumulation_steps": 1 if layout.pp > 1 else count,
        "pipeline_microbatches": count if layout.pp > 1 else 1,
    }
    if verdict["batch"] != batch:
        found.append(f"batch {verdict['batch']}, PARC {batch}")
    found += optimizer_differences(plan, verdict["optimizer"])
    groups = {name: one for name, one in verdict["groups"].items() if exists(name, plan)}
    found += [f"group {name}" for name in differing_groups(plan, groups, rank)]
    if layout.pp > 1:
        found += stage_differences(plan, verdict)
    return found


def optimizer_differences(plan: Plan, optimizer: dict[str, Any]) -> list[str]:
    """Compare hyperparameters and learning rates; torchtitan counts a warm-up step by its end."""
    job = plan.problem.job
    rates = {int(step): rate for step, rate in optimizer.pop("rates").items()}
    wanted = {
        "name": "AdamW",
        "betas": [job.adam_beta1, job.adam_beta2],
        "adam_epsilon": job.adam_epsilon,
        "weight_decay": job.weight_decay,
        "max_norm": job.gradient_clipping or float("inf"),
        "seed": job.seed,
    }
    right = {step: planned_rate(job, step + (step < job.warmup_steps)) for step in rates}
    found = [] if optimizer == wanted else [f"optimizer {optimizer}, PARC {wanted}"]
    return found if rates == pytest.approx(right) else [*found, f"rates {rates}, PARC {right}"]


def exists(name: str, plan: Plan) -> bool:
    """Return False for torchtitan's sparse meshes if the model has no expert parallelism, because
    they are then placeholders.
    """
    return name not in ("ep", "efsdp") or plan.layout.ep > 1


def stage_differences(plan: Plan, verdict: dict[str, Any]) -> list[str]:
    """Compare the layers of every virtual stage in the order of the model, and the schedule."""
    chunks = sorted(
        (chunk for stage in plan.layout.split.chunks for chunk in stage),
        key=lambda chunk: chunk.first_layer,
    )
    want = [[f"layers.{k}" for k in range(c.first_layer, c.first_layer + c.layers)] for c in chunks]
    have = [[name for name in part if name.startswith("layers.")] for part in verdict["stages"]]
    found = [] if have == want else [f"stages {have}"]
    ends = (verdict["stages"][0][0], verdict["stages"][-1][-2:])
    if ends != ("tok_embeddings", ["norm", "lm_head"]):
        found.append(f"ends {ends}")
    schedule = verdict["config"]["parallelism"]["pipeline_parallel_schedule"]
    if schedule != SCHEDULES[plan.layout.schedule]:
        found.append(f"schedule {schedule}")
    return found


def plan_differences(plans: dict[str, Plan]) -> dict[str, list[str]]:
    """Return the differences by name, each on one random rank."""
    ranks = {name: Random(name).randrange(plan.layout.world) for name, plan in plans.items()}
    cases = [titan_case(name, plan, ranks[name]) for name, plan in plans.items()]
    verdicts = torchtitan_verdicts(cases)
    found = {
        name: differences(plan, verdict, ranks[name])
        for (name, plan), verdict in zip(plans.items(), verdicts, strict=True)
    }
    return {name: rows for name, rows in found.items() if rows}


def test_random_valid_specs_and_the_examples_are_accepted_as_planned() -> None:
    plans = valid_plans("torchtitan", VALID) | examples("torchtitan")
    assert len({plan.layout.schedule for plan in plans.values() if plan.layout.pp > 1}) == 6
    assert any(plan.layout.ep > 1 for plan in plans.values())
    assert plan_differences(plans) == {}


CHANGES = {
    "layout.tp": (3, 5, 6, 7, 16),
    "layout.cp": (3, 5, 6),
    "layout.pp": (2, 3, 4, 5, 6),
    "layout.dp": (3, 5, 7, 24, 48),
    "layout.dp_shard": (3, 5, 6),
    "layout.micro_batch": (3, 5, 7),
    "layout.ep": (3, 5, 16, 32),
    "layout.schedule": ("1f1b", "interleaved", "zb-v", "dualpipe-v"),
    "job.sequence_length": (1000, 1002, 1021, 1028, 131072),
    "job.global_batch": (17, 24, 36, 50, 100),
    "job.gradient_precision": ("bf16",),
    "model.kv_heads": (1, 2, 4),
    "model.tied_embeddings": (True,),
}
"""Values that a variation sets in a valid spec."""


def variation(seed: int) -> Spec:
    """Return a valid spec with one or two values changed, which makes most of them invalid."""
    dice = Random(f"variation {seed}")
    spec = valid_spec("torchtitan", seed)
    paths = [path for path in CHANGES if "base" not in spec["model"] or "model." not in path]
    chosen = dice.sample(paths, dice.choice((1, 2)))
    return changed(spec, {path: dice.choice(CHANGES[path]) for path in chosen})


def test_specs_that_torchtitan_rejects_are_rejected_by_parc() -> None:
    specs = {}
    for seed in range(INVALID):
        made = layout_as_pinned(variation(seed))
        if made is not None:
            specs[f"variation {seed}"] = (variation(seed), made)
    cases = [
        titan_case(name, plan_without_checks(*made), 0) | {"world": made[0].cluster.gpus}
        for name, (_, made) in specs.items()
    ]
    verdicts = torchtitan_verdicts(cases)
    rejected = [
        name for name, verdict in zip(specs, verdicts, strict=True) if not verdict["accepted"]
    ]
    assert len(rejected) >= 100
    # Otherwise a plan on fewer hosts, with another size, may take the place of a rejected one.
    every_host = {"goals": {"idle_hosts": "forbid"}}
    assert [name for name in rejected if planned(specs[name][0] | every_host)[0] is not None] == []


def test_torchtitan_handles_both_specs_of_each_boundary_as_listed() -> None:
    rows = [row for row in BOUNDARIES if row.framework == "torchtitan"]
    sides = {}
    for number, row in enumerate(rows):
        for side, spec in (("bad", row.bad), ("good", row.good)):
            made = layout_as_pinned(spec)
            if made is not None:
                sides[f"{number} {row.code} {side}"] = (made, row.taken * (side == "bad"))
    cases = []
    for name, (made, _) in sides.items():
        case = titan_case(name, plan_without_checks(*made), 0)
        cases.append(case | {"world": made[0].cluster.gpus})
    wrong = {}
    for (name, (_, wanted)), verdict in zip(sides.items(), torchtitan_verdicts(cases), strict=True):
        if (name.endswith("good") or wanted) and verdict["stage"] != wanted:
            wrong[name] = (verdict["stage"], verdict.get("error"))
    assert wrong == {}
