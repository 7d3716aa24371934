"""DeepSpeed accepts the emitted files, reads every key of them, and derives the same plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parc.backends.deepspeed.derived_config import uses_autotp
from parc.compiler.ir import Layout, Plan
from tests.compiled import examples, planned
from tests.conformance.deepspeed.cases import Case, case_of
from tests.conformance.deepspeed.specs import CPU_CANNOT, KINDS, kind_of, valid_spec
from tests.conformance.tool_checkers import deepspeed_verdicts
from tests.hyperparameters import planned_rate

pytestmark = pytest.mark.conformance
SPECS = 270
ENGINES = 54
RANKS = (0, 5)


def valid_plans() -> dict[int, Plan]:
    plans = {}
    for seed in range(SPECS):
        plan, sink = planned(valid_spec(seed))
        assert plan is not None, (seed, [one.finding.message for one in sink.diagnostics])
        plans[seed] = plan
    return plans


def differences(plan: Plan, verdict: dict[str, Any]) -> list[str]:
    """Return all differences between DeepSpeed's verdict and the plan."""
    if not verdict["accepted"]:
        return [f"rejected at {verdict['stage']}: {verdict['error']}"]
    found = [f"{key} is never read" for key in verdict["keys_ignored"]]
    found += [f"{key} has no effect" for key in verdict["keys_without_effect"]]
    for name, value in expected(plan).items():
        if verdict["resolved"][name] != value:
            found.append(f"{name}: DeepSpeed {verdict['resolved'][name]}, PARC {value}")
    found += rate_differences(plan, verdict["rates"])
    return found + engine_differences(plan, verdict.get("engine"))


def expected(plan: Plan) -> dict[str, Any]:
    layout, job = plan.layout, plan.problem.job
    sizes: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": layout.micro_batch,
        "gradient_accumulation_steps": layout.micro_batches(job.global_batch),
        "zero_stage": layout.zero_stage,
        "offload_optimizer": layout.offload.optimizer,
        "offload_param": layout.offload.parameters,
        "zero_hpz_partition_size": layout.zero_plus.hpz,
        "zero_quantized_weights": layout.zero_plus.quantized_weights,
        "zero_quantized_gradients": layout.zero_plus.quantized_gradients,
        "bf16": job.precision == "bf16",
        "fp16": job.precision == "fp16",
        "gradient_clipping": job.gradient_clipping,
        "optimizer": {
            "type": "adamw",
            "lr": job.learning_rate,
            "betas": [job.adam_beta1, job.adam_beta2],
            "eps": job.adam_epsilon,
            "weight_decay": job.weight_decay,
        },
    }
    if not uses_autotp(plan.problem, layout):  # with AutoTP DeepSpeed counts all ranks
        sizes |= {"train_batch_size": job.global_batch, "batch_world": layout.dp}
    return sizes


def rate_differences(plan: Plan, rates: dict[str, float]) -> list[str]:
    """Compare learning rates during warm-up (at least two steps) and at the end (at least three
    steps), as emitted.
    """
    job = plan.problem.job
    emitted_job = replace(
        job, warmup_steps=max(job.warmup_steps, 2), lr_decay_steps=max(job.lr_decay_steps, 3)
    )
    wanted = {step: planned_rate(emitted_job, int(step)) for step in rates}
    return [] if rates == pytest.approx(wanted) else [f"rates {rates}, PARC {wanted}"]


def engine_differences(plan: Plan, engine: dict[str, Any] | None) -> list[str]:
    if engine is None:
        return []
    layout, job = plan.layout, plan.problem.job
    wanted = {
        "class": "PipelineEngine" if layout.pp > 1 else "DeepSpeedEngine",
        "dp": layout.dp,
        "sp": layout.cp,
        "real_batch_size": job.global_batch,
        "zero_stage": layout.zero_stage,
    }
    return [
        f"engine's {name}: {engine[name]}, PARC {value}"
        for name, value in wanted.items()
        if engine[name] != value
    ]


def plan_differences(plans: dict[Any, Plan], cases: list[Case]) -> dict[str, list[str]]:
    verdicts = zip(plans, deepspeed_verdicts(cases), strict=True)
    found = {str(name): differences(plans[name], verdict) for name, verdict in verdicts}
    return {name: rows for name, rows in found.items() if rows}


def test_random_valid_specs_are_accepted_and_every_key_is_read() -> None:
    plans = valid_plans()
    cases = [case_of(str(seed), plan.problem, plan.layout) for seed, plan in plans.items()]
    assert plan_differences(plans, cases) == {}


def test_every_example_is_accepted_and_every_key_is_read() -> None:
    plans = examples("deepspeed")
    assert len(plans) >= 3
    cases = [case_of(name, plan.problem, plan.layout) for name, plan in plans.items()]
    assert plan_differences(plans, cases) == {}


def test_the_real_engine_accepts_specs_of_every_kind_that_a_cpu_can_run() -> None:
    plans = {}
    for seed in range(ENGINES):
        plan, _ = planned(valid_spec(seed))
        assert plan is not None
        cut_by_code = (
            plan.layout.tp > 1 and kind_of(seed) == "experts"
        )  # it needs the user's mpu object
        bf16 = plan.problem.job.precision == "bf16"
        if kind_of(seed) not in CPU_CANNOT and bf16 and not cut_by_code:
            plans[seed] = plan
    assert {kind_of(seed) for seed in plans} == set(KINDS) - set(CPU_CANNOT)
    cases = [
        case_of(str(seed), plan.problem, plan.layout, engine=True) for seed, plan in plans.items()
    ]
    assert plan_differences(plans, cases) == {}


def planned_groups(plan: Plan, rank: int) -> dict[str, list[int]]:
    """Return the groups of one rank by PARC's meshes, under the names of the checking program."""
    layout, dense, expert = plan.layout, plan.placement.dense, plan.placement.expert
    of = {"pipe": (dense, ["pp"]), "data": (dense, ["dp"]), "model": (dense, ["tp"])}
    if layout.ep > 1:
        of |= {"ep": (expert, ["ep"]), "edp": (expert, ["dp"])}
    if uses_autotp(plan.problem, layout):
        of = {"autotp": (dense, ["tp"]), "autotp-data": (dense, ["dp"])}
    if layout.cp > 1:
        of = {"sp": (dense, ["cp"]), "sp-data": (dense, ["dp"])}
    found = {
        name: next(group for group in mesh.groups_along(*axes) if rank in group)
        for name, (mesh, axes) in of.items()
    }
    if layout.zero_plus.hpz > 1:
        first = rank // layout.zero_plus.hpz * layout.zero_plus.hpz
        found["hpz"] = list(range(first, first + layout.zero_plus.hpz))
    return found


def test_deepspeed_builds_the_groups_of_the_plan() -> None:
    plans, cases = [], []
    for seed in range(0, SPECS, 2):
        plan, _ = planned(valid_spec(seed))
        assert plan is not None
        for rank in RANKS:
            plans.append((plan, rank))
            more = {"groups": True, "rank": rank}
            cases.append(case_of(f"{seed} {rank}", plan.problem, plan.layout, **more))
    for (plan, rank), verdict in zip(plans, deepspeed_verdicts(cases), strict=True):
        assert verdict["accepted"], verdict
        own = planned_groups(plan, rank)
        groups = {name: sorted(verdict["groups"][name]) for name in own}
        assert groups == own, (verdict["name"], kind_of(int(verdict["name"].split()[0])))


@pytest.mark.parametrize(
    ("pp", "dp", "tp", "ep"), [(16, 512, 8, 1), (8, 1024, 8, 64), (1, 65536, 1, 256), (4, 96, 2, 6)]
)
def test_deepspeed_builds_the_groups_of_large_layouts(pp: int, dp: int, tp: int, ep: int) -> None:
    from tests.placement.placement_plans import layout

    of: Layout = layout(pp=pp, dp=dp, tp=tp, ep=ep, etp=tp)
    world, config = of.world, {"train_batch_size": dp}
    ranks = (0, 1, world // 3, world - 1)
    case = {"config": config, "world": world, "pp": pp, "mp": tp, "ep": ep, "groups": True}
    verdicts = deepspeed_verdicts([case | {"rank": rank} for rank in ranks])
    from parc.backends.deepspeed.meshes import deepspeed_meshes

    dense, expert = deepspeed_meshes(of)
    for rank, verdict in zip(ranks, verdicts, strict=True):
        groups = {"pipe": (dense, "pp"), "data": (dense, "dp"), "model": (dense, "tp")}
        if ep > 1:
            groups |= {"ep": (expert, "ep"), "edp": (expert, "dp")}
        for name, (mesh, axis) in groups.items():
            own = next(group for group in mesh.groups_along(axis) if rank in group)
            assert sorted(verdict["groups"][name]) == own, (name, rank)
