"""Services for a request rate without latency limits: their queues do not grow."""

from __future__ import annotations

import pytest

from parc.compiler.evaluate.simulated_limits import cannot_sustain
from tests import compiled
from tests.search.serving_specs import Tree, plan_of, planned, spec

RATE = 4.0
JOB: Tree = {
    "precision": "fp8",
    "max_model_len": 8192,
    "traffic": {"input_tokens": 2000, "output_tokens": 500, "request_rate": RATE},
}


def test_a_layout_whose_simulated_queue_grows_is_not_chosen() -> None:
    # The formulas estimate that 3 pipeline stages on 3 GPUs serve this rate.
    tree = spec("llama-3.1-70b", "hgx-h100", job=JOB)
    plan = plan_of(tree)
    simulated = plan.estimate.simulated
    assert simulated is not None
    assert plan.layout.gpus == 4
    assert simulated.requests_per_second > 0.98 * RATE
    assert simulated.ttft_seconds.p99 < 1.0
    assert not cannot_sustain(plan.problem, simulated)


def test_replicas_are_added_until_the_simulated_queue_does_not_grow() -> None:
    tree = spec("llama-3.1-70b", "hgx-h100", job=JOB, layout={"tp": 1, "pp": 3})
    plan, sink = planned(tree)
    assert plan is not None
    assert plan.layout.replicas == 2
    assert not sink.diagnostics


def test_a_pinned_layout_that_cannot_serve_the_rate_is_reported() -> None:
    layout = {"tp": 1, "pp": 3, "replicas": 1}
    plan, sink = planned(spec("llama-3.1-70b", "hgx-h100", job=JOB, layout=layout))
    assert plan is not None
    (found,) = sink.diagnostics
    assert found.code == "PARC-G06"
    assert "3.74 of 4 requests per second" in compiled.messages_of(sink)[0]


@pytest.mark.parametrize("rate", [0.5, 2.0, 3.0])
def test_a_service_below_its_capacity_has_no_growing_queue(rate: float) -> None:
    traffic = {**JOB["traffic"], "request_rate": rate}
    layout = {"tp": 4, "replicas": 1}
    tree = spec("llama-3.1-70b", "hgx-h100", job={**JOB, "traffic": traffic}, layout=layout)
    plan = plan_of(tree)
    assert plan.estimate.simulated is not None
    assert abs(plan.estimate.simulated.wait_growth) < 0.005


def test_if_no_layout_serves_the_rate_the_plan_serves_most_of_it_and_is_reported() -> None:
    node = {"base": "hgx-h100", "gpus_per_node": 3}
    plan, sink = planned(spec("llama-3.1-70b", node, job=JOB))
    assert plan is not None
    assert plan.estimate.simulated is not None
    assert [one.code for one in sink.diagnostics] == ["PARC-G06"]
    served = f"{plan.estimate.simulated.requests_per_second:.3g} of 4 requests per second"
    assert served in compiled.messages_of(sink)[0]
