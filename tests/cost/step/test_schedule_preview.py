from __future__ import annotations

from functools import cache

import pytest

from parc.backends.registry import framework
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step import schedule_preview
from parc.compiler.cost.step.schedule_preview import SchedulePreview, preview_schedule
from parc.compiler.cost.step.step_time import stage_boundary_seconds, straggler_factor
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Plan
from parc.compiler.pipeline import plan_spec
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.spec.reading.source import SpecSource

LAYOUTS = {
    "1f1b": "{tp: 4, pp: 8, vpp: 1, micro_batch: 1}",
    "interleaved": "{tp: 4, pp: 4, vpp: 5, micro_batch: 1}",
}
SPEC = """\
parc: 1
name: steps
model: llama-3-70b
cluster: {{node: dgx-h100, nodes: 16}}
job: {{sequence_length: 4096, global_batch: 256}}
layout: {}
"""


@cache
def planned(name: str) -> tuple[Plan, CostModel]:
    sink = Sink()
    plan = plan_spec(SpecSource("steps.yaml", SPEC.format(LAYOUTS[name]), None), (), sink)
    assert isinstance(plan, Plan), [found.finding.message for found in sink.diagnostics]
    return plan, cost_model_for(plan.problem, framework(plan.problem.framework))


def busiest(shown: SchedulePreview, pp: int) -> float:
    """Return the seconds of one micro-batch on the slowest rank."""
    owned = list(zip(shown.table.owners, shown.costs.stages, strict=True))
    return max(sum(one.total for owner, one in owned if owner == rank) for rank in range(pp))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_shortened_step_lacks_only_its_steady_state(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, cost_model = planned(name)
    short = preview_schedule(cost_model, plan.layout)
    monkeypatch.setattr(schedule_preview, "MOST_ROUNDS", 1_000)
    whole = preview_schedule(cost_model, plan.layout)
    assert whole.left_out == 0
    assert short.left_out == whole.micro_batches - short.micro_batches > 0
    assert short.left_out % plan.layout.pp == 0
    between = whole.timeline.makespan_seconds - short.timeline.makespan_seconds
    steady = short.left_out * busiest(short, plan.layout.pp)
    hops = 2 * short.left_out * stage_boundary_seconds(cost_model, plan.layout)
    assert steady <= between * (1 + 1e-9)
    assert between <= steady + hops + 1e-9


@pytest.mark.parametrize(("name", "error"), [("1f1b", 0.05), ("interleaved", 1e-6)])
def test_the_simulated_step_takes_the_estimated_time(
    name: str, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, cost_model = planned(name)
    monkeypatch.setattr(schedule_preview, "MOST_ROUNDS", 1_000)
    simulated = preview_schedule(cost_model, plan.layout).timeline.makespan_seconds
    time = plan.estimate.time
    expected = time.total_seconds - time.dp_seconds - time.optimizer_seconds
    # The preview leaves out the time that all hosts wait for the slowest one.
    expected -= time.compute_seconds * (1 - 1 / straggler_factor(cost_model, plan.layout))
    assert simulated == pytest.approx(expected, rel=error)


def test_forward_and_backward_of_a_chunk_are_its_share_of_the_stage() -> None:
    plan, cost_model = planned("1f1b")
    stages = preview_schedule(cost_model, plan.layout).costs.stages
    assert len(stages) == plan.layout.pp
    for stage in stages:
        assert 0 < stage.forward < stage.backward
        assert 0 < stage.weight_gradient <= stage.input_gradient
