"""Services for a request rate without latency limits: their queues do not grow."""

from __future__ import annotations

import pytest

from parc.compiler.evaluate.simulated_limits import cannot_sustain
from tests import compiled
from tests.search.serving_specs import Tree, plan_of, planned, spec


def job(rate: float) -> Tree:
    traffic = {"input_tokens": 2000, "output_tokens": 500, "request_rate": rate}
    return {"precision": "fp8", "max_model_len": 8192, "traffic": traffic}


def test_a_layout_whose_simulated_queue_grows_is_not_chosen() -> None:
    # The formulas estimate that 2 GPUs serve 3.1 requests per second.
    tree = spec("llama-3.1-70b", "hgx-h100", job=job(3.1))
    plan = plan_of(tree)
    simulated = plan.estimate.simulated
    assert simulated is not None
    assert plan.layout.gpus == 4
    assert simulated.requests_per_second > 0.98 * 3.1
    assert simulated.ttft_seconds.p99 < 1.0
    assert not cannot_sustain(plan.problem, simulated)


def test_replicas_are_added_until_the_simulated_queue_does_not_grow() -> None:
    tree = spec("llama-3.1-70b", "hgx-h100", job=job(4.0), layout={"tp": 1, "pp": 3})
    plan, sink = planned(tree)
    assert plan is not None
    assert plan.layout.replicas == 2
    assert not sink.diagnostics


def test_a_pinned_layout_that_cannot_serve_the_rate_is_reported() -> None:
    layout = {"tp": 1, "pp": 3, "replicas": 1}
    steps = {"max_num_batched_tokens": 8192}
    plan, sink = planned(spec("llama-3.1-70b", "hgx-h100", job=job(3.0) | steps, layout=layout))
    assert plan is not None
    (found,) = sink.diagnostics
    assert found.code == "PARC-G06"
    assert "2.38 of 3 requests per second" in compiled.messages_of(sink)[0]


@pytest.mark.parametrize("rate", [0.5, 2.0, 3.0])
def test_a_service_below_its_capacity_has_no_growing_queue(rate: float) -> None:
    layout = {"tp": 4, "replicas": 1}
    tree = spec("llama-3.1-70b", "hgx-h100", job=job(rate), layout=layout)
    plan = plan_of(tree)
    assert plan.estimate.simulated is not None
    assert abs(plan.estimate.simulated.wait_growth) < 0.005


def test_if_no_layout_serves_the_rate_the_plan_serves_most_of_it_and_is_reported() -> None:
    node = {"base": "hgx-h100", "gpus_per_node": 3}
    plan, sink = planned(spec("llama-3.1-70b", node, job=job(3.2)))
    assert plan is not None
    assert plan.estimate.simulated is not None
    assert [one.code for one in sink.diagnostics] == ["PARC-G06"]
    served = f"{plan.estimate.simulated.requests_per_second:.3g} of 3.2 requests per second"
    assert served in compiled.messages_of(sink)[0]
