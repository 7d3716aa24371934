"""Length, energy and cost of a run follow from the plan; failures decide the checkpoints."""

from __future__ import annotations

import pytest

from parc.compiler.report.text.summary import summary_text
from tests.compiled import Spec, changed, error_codes, files_of, plan_of, resolved

SPEC: Spec = {
    "parc": 1,
    "name": "run",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 4, "price_per_gpu_hour": 2.0, "pue": 1.5},
    "job": {"sequence_length": 8192, "global_batch": 128, "steps": 2000, "checkpoint_dir": "/ck"},
    "layout": {"tp": 4, "pp": 1, "cp": 1, "micro_batch": 1, "recompute": "none"},
    "emit": ["megatron"],
}


def test_tokens_give_the_steps_rounded_up() -> None:
    tokens = changed(SPEC, {"job.tokens": "1B"})
    assert error_codes(tokens) == {"X25"}
    del tokens["job"]["steps"]
    job = plan_of(tokens).problem.job
    assert job.steps == 954  # 10^9 / 2^20 = 953.7
    assert job.lr_decay_steps == 954


def test_hours_energy_and_cost_follow_from_the_expected_time() -> None:
    plan = plan_of(SPEC)
    run = plan.run
    assert run.wall_seconds is not None
    assert run.gpu_hours is not None
    assert run.productive_seconds == 2000 * plan.estimate.time.total_seconds
    assert run.gpu_hours == pytest.approx(32 * run.wall_seconds / 3600)
    assert run.cost == pytest.approx(2.0 * run.gpu_hours)
    assert run.energy_kwh == pytest.approx(4 * 10.2 * 1.5 * run.wall_seconds / 3600)
    assert run.effective_share == run.productive_seconds / run.wall_seconds


@pytest.mark.parametrize(
    ("node", "watts"),
    [
        ({"base": "dgx-h100", "gpus_per_node": 1}, 10_200 / 8),
        ({"base": "dgx-h100", "gpus_per_node": 4}, 10_200 / 2),
        ({"base": "dgx-h100", "gpus_per_node": 4, "watts": 6000}, 6000),
        ({"base": "hgx-h100", "gpus_per_node": 2}, 1.8 * 700 * 2),
    ],
)
def test_hosts_with_fewer_gpus_than_their_base_have_a_share_of_its_power(
    node: Spec, watts: float
) -> None:
    problem, _ = resolved(changed(SPEC, {"cluster.node": node}))
    assert problem is not None
    assert problem.cluster.host_watts == pytest.approx(watts)


def test_an_interval_beyond_the_run_is_reported_and_counts_as_one_checkpoint_at_the_end() -> None:
    whole, longer = (changed(SPEC, {"job.checkpoint_interval": steps}) for steps in (2000, 9000))
    assert error_codes(longer) == set()
    _, sink = resolved(longer)
    assert [one.code for one in sink.diagnostics] == ["PARC-X27"]
    assert resolved(whole)[1].diagnostics == ()
    assert plan_of(longer).run == plan_of(whole).run
    assert "with a checkpoint every 2,000 steps" in summary_text(plan_of(longer))


def test_more_frequent_failures_give_more_frequent_checkpoints_in_the_files() -> None:
    intervals = []
    for hours in (500_000, 2_000, 200):
        spec = changed(SPEC, {"cluster.failures": {"gpu_mtbf": f"{hours}h"}})
        plan = plan_of(spec)
        text = files_of(spec)["megatron/args.sh"]
        assert f"--save-interval {plan.run.best_checkpoint_steps}" in text
        intervals.append(plan.run.best_checkpoint_steps)
    assert intervals == sorted(intervals, reverse=True)
    assert len(set(intervals)) == 3


def test_a_pinned_interval_is_kept_and_costs_time() -> None:
    often = changed(SPEC, {"cluster.failures": {"gpu_mtbf": "500h"}})
    best, pinned = plan_of(often).run, plan_of(changed(often, {"job.checkpoint_interval": 2})).run
    assert (pinned.checkpoint_steps, pinned.best_checkpoint_steps) == (2, best.checkpoint_steps)
    assert pinned.effective_share < best.effective_share


def test_asynchronous_checkpoints_cost_less_and_are_more_frequent() -> None:
    often = changed(SPEC, {"cluster.failures": {"gpu_mtbf": "500h"}})
    waits, background = (
        plan_of(changed(often, {"job.async_checkpoint": value})).run for value in (False, True)
    )
    assert background.save_seconds < waits.save_seconds
    assert background.best_checkpoint_steps < waits.best_checkpoint_steps
    assert background.effective_share > waits.effective_share


def test_a_run_without_checkpoints_counts_no_lost_time() -> None:
    spec = changed(SPEC, {"cluster.failures": {"gpu_mtbf": "50h"}})
    del spec["job"]["checkpoint_dir"]
    plan = plan_of(spec)
    assert plan.run.wall_seconds == plan.run.productive_seconds
    assert "has no checkpoints and finishes without a failure" in summary_text(plan)


def test_a_run_that_cannot_finish_says_so() -> None:
    spec = changed(SPEC, {"cluster.failures": {"gpu_mtbf": "1s"}})
    plan = plan_of(spec)
    assert plan.run.wall_seconds is None
    assert plan.run.cost is None
    assert "does not finish" in summary_text(plan)
    assert '"wall_seconds": null' in files_of(spec)["plan.json"]
