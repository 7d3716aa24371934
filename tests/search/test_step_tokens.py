"""The number of tokens per step is chosen for services with latency limits or pipelines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parc.backends.registry import engine
from parc.compiler.ir import ServingPlan
from parc.compiler.ir.serving_plan import StepTokens
from parc.compiler.report.text.summary import serving_summary
from parc.compiler.search.choose_step_tokens import with_step_tokens
from tests.search.serving_specs import plan_of, planned, problem_of, spec

pytestmark = pytest.mark.usefixtures("few_requests")

LONG_PROMPTS = {"input_tokens": 4000, "output_tokens": 100}
LIMITS = {"ttft": {"p90": "3s"}, "tpot": {"p90": "12ms"}}


def service(goals: dict[str, Any], **job: Any) -> dict[str, Any]:
    return spec(
        "llama-3.1-8b",
        "dgx-h100",
        job={"traffic": LONG_PROMPTS} | job,
        goals=goals,
        layout={"tp": 1},
    )


def test_short_steps_serve_more_within_a_limit_on_the_time_per_token() -> None:
    tuned = plan_of(service(LIMITS))
    default = plan_of(service(LIMITS, max_num_batched_tokens=8192))
    chosen = tuned.search.step_tokens
    assert chosen is not None
    assert chosen.gain is not None
    assert chosen.default == 8192 > chosen.chosen == tuned.limits.max_num_batched_tokens
    assert tuned.tokens_per_second == pytest.approx(chosen.gain * default.tokens_per_second)
    assert tuned.estimate.simulated is not None
    assert tuned.estimate.simulated.tpot_seconds.p90 <= 0.012
    assert f"at most {chosen.chosen:,} tokens instead of 8,192" in serving_summary(tuned)


def test_a_number_of_the_spec_is_kept() -> None:
    plan = plan_of(service(LIMITS, max_num_batched_tokens=4096))
    assert plan.limits.max_num_batched_tokens == 4096
    assert plan.search.step_tokens is None


def test_running_requests_of_the_spec_bound_the_tokens_from_below() -> None:
    load = {**LONG_PROMPTS, "request_rate": 10}
    plan = plan_of(service(LIMITS, traffic=load, max_num_seqs=1024))
    assert plan.limits.max_num_seqs == 1024
    assert plan.limits.max_num_batched_tokens >= 1024


def test_limits_that_no_layout_meets_with_the_default_may_hold_with_short_steps() -> None:
    # Steps with 8,192 tokens of prompts are too long.
    goals = {"tpot": {"p99": "24ms"}}
    load = {**LONG_PROMPTS, "request_rate": 40}
    default, sink = planned(service(goals, traffic=load, max_num_batched_tokens=8192))
    assert default is None
    assert "PARC-G03" in [found.code for found in sink.diagnostics]
    plan = plan_of(service(goals, traffic=load))
    assert plan.search.step_tokens is not None
    assert plan.search.step_tokens.gain is None
    assert "no layout meets the limits with the default" in serving_summary(plan)


def test_a_service_that_must_be_fast_gains_time_and_no_throughput() -> None:
    load = {**LONG_PROMPTS, "request_rate": 20}
    goals = {"maximize": "latency", "ttft": {"p90": "3s"}}
    plan = plan_of(service(goals, traffic=load))
    assert plan.problem.minimizes_latency
    gained = replace(plan.search, step_tokens=StepTokens(512, 8192, 1.25))
    text = serving_summary(replace(plan, search=gained))
    assert "512 tokens instead of 8,192 by default: requests take 20.0 % less time\n" in text


def keeps_default(plan: ServingPlan) -> bool:
    return plan.search.step_tokens is None and "\nsteps" not in serving_summary(plan)


def test_services_without_latency_limits_keep_the_default() -> None:
    assert keeps_default(plan_of(service({}, traffic={**LONG_PROMPTS, "request_rate": 5})))


@pytest.mark.parametrize(
    "extra",
    [
        {"emit": ["rankmap", "sglang"]},
        {"launch": {"args": ["--no-enable-chunked-prefill"]}},
        {"launch": {"args": ["--no_enable_chunked_prefill"]}},
    ],
)
def test_engines_that_do_not_mix_prompts_and_tokens_keep_the_default(
    extra: dict[str, Any],
) -> None:
    problem = problem_of(service(LIMITS) | extra)
    numbers = getattr(engine(problem.framework), "step_tokens_to_try", lambda _: ())
    assert not numbers(problem)


def test_fewer_requests_run_if_each_verifies_draft_tokens() -> None:
    draft = {"method": "ngram", "tokens": 3, "acceptance": 0.5}
    problem = problem_of(service(LIMITS, speculative=draft))
    setup = with_step_tokens(problem, 512).service.setup
    assert (setup.max_batched_tokens, setup.max_running) == (512, 128)


def test_short_steps_spread_the_prompts_of_a_pipeline_over_its_micro_batches() -> None:
    load = {"input_tokens": 2000, "output_tokens": 500, "concurrency": 64}
    tree = spec("llama-3.1-70b", "hgx-h100", job={"traffic": load, "precision": "fp8"})
    for pp in (1, 2):
        layout = {"layout": {"tp": 2, "pp": pp, "replicas": 1}}
        tuned = plan_of(tree | layout)
        job = tree["job"] | {"max_num_batched_tokens": 8192}
        default = plan_of(tree | layout | {"job": job})
        chosen = tuned.search.step_tokens
        if pp == 1:
            assert chosen is None
            assert tuned.estimate == default.estimate
            continue
        assert chosen is not None
        assert chosen.gain is not None
        assert tuned.limits.max_num_batched_tokens == chosen.chosen < 8192
        gain = default.estimate.requests_per_second * chosen.gain
        assert tuned.estimate.requests_per_second == pytest.approx(gain, rel=1e-3)
        shorter = f"requests take {100 * (1 - 1 / chosen.gain):.1f} % less time"
        assert shorter in serving_summary(tuned)
