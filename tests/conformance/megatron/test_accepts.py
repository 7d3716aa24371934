"""Megatron-Core accepts the arguments that PARC emits, and derives the same plan from them."""

from __future__ import annotations

from typing import Any

import pytest

from parc.backends.megatron.capabilities import DEFAULT_VERSION
from parc.compiler.ir import Plan
from tests.compiled import examples, planned
from tests.conformance.megatron.cases import case_of, megatron_verdicts, planned_groups
from tests.conformance.megatron.specs import valid_spec
from tests.hyperparameters import planned_rate

pytestmark = pytest.mark.conformance
SPECS = 320


def differences(plan: Plan, verdict: dict[str, Any]) -> list[str]:
    """Return all differences between Megatron's verdict and the plan."""
    layout, found = plan.layout, []
    if not verdict["accepted"]:
        return [f"rejected at {verdict['stage']}: {verdict['error']}"]
    for name, value in verdict["sizes"].items():
        if getattr(layout, name) != value:
            found.append(f"{name}: Megatron {value}, PARC {getattr(layout, name)}")
    count = layout.micro_batches(plan.problem.job.global_batch)
    if verdict["micro_batches"] != count:
        found.append(f"micro-batches: Megatron {verdict['micro_batches']}, PARC {count}")
    layers = [[[chunk.first_layer, chunk.layers] for chunk in row] for row in layout.split.chunks]
    if verdict["layers"] != layers:
        found.append(f"layers: Megatron {verdict['layers']}, PARC {layers}")
    found += optimizer_differences(plan, verdict["optimizer"])
    for rank, groups in verdict["groups"].items():
        if groups != planned_groups(plan, int(rank)):
            found.append(f"groups of rank {rank} differ")
    return found


def optimizer_differences(plan: Plan, optimizer: dict[str, Any]) -> list[str]:
    """Compare hyperparameters and learning rates. Rates are not compared if the warm-up fraction
    gives no whole number of steps, because Megatron does not round it.
    """
    job = plan.problem.job
    rates = optimizer.pop("rates")
    found = [
        f"{name}: Megatron {value}, PARC {getattr(job, name)}"
        for name, value in optimizer.items()
        if getattr(job, name) != value
    ]
    if job.warmup_fraction is not None and job.warmup_steps != (
        job.warmup_fraction * job.lr_decay_steps
    ):
        return found
    wanted = {step: planned_rate(job, int(step)) for step in rates}
    return found if rates == pytest.approx(wanted) else [*found, f"rates {rates}, PARC {wanted}"]


def plan_differences(
    plans: dict[str, Plan], version: str = DEFAULT_VERSION
) -> dict[str, list[str]]:
    """Return the differences by name, for plans that have any."""
    cases = [case_of(name, p.problem, p.layout, p.layout.world) for name, p in plans.items()]
    verdicts = megatron_verdicts(cases, version)
    found = {name: differences(plan, verdicts[name]) for name, plan in plans.items()}
    return {name: rows for name, rows in found.items() if rows}


def test_random_valid_specs_are_accepted_with_the_same_sizes_layers_and_groups() -> None:
    plans = {}
    for seed in range(SPECS):
        plan, sink = planned(valid_spec(seed))
        if plan is not None:
            plans[f"valid {seed}"] = plan
        else:
            assert sink.failed()
    assert len(plans) >= 300
    assert plan_differences(plans) == {}


def test_every_example_is_accepted_with_the_same_sizes_layers_and_groups() -> None:
    plans = examples("megatron")
    assert len(plans) >= 8
    assert plan_differences(plans) == {}
