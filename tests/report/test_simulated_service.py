"""Percentiles of the simulated service in summary, estimate, search and report page."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from parc.compiler import api
from parc.compiler.cost.serving.deployment import build_deployment
from parc.compiler.cost.serving.simulation.simulate import simulate
from parc.compiler.ir import ServingPlan
from parc.compiler.report.formatting import format_seconds
from parc.compiler.report.json.plan_json import plan_document
from parc.compiler.report.page.report_page import report_artifact
from parc.compiler.report.page.simulation import simulation_chart
from parc.compiler.report.text.serving_tables import serving_estimate_text, serving_search_text
from parc.compiler.report.text.summary import summary_text


@cache
def plan(load: str = "", output_tokens: int = 100, **goals: str) -> ServingPlan:
    traffic: dict[str, Any] = {"input_tokens": 1000, "output_tokens": output_tokens}
    traffic |= {load: 8} if load else {}
    spec = {
        "parc": 1,
        "name": "simulated",
        "model": "llama-3.1-8b",
        "cluster": {"node": "dgx-h100", "nodes": 1},
        "job": {"kind": "serve", "traffic": traffic},
        "goals": goals,
    }
    found = api.compile(spec)
    assert isinstance(found, ServingPlan)
    return found


@pytest.mark.parametrize("load", ["request_rate", "concurrency"])
def test_a_plan_with_a_load_shows_its_percentiles_in_every_output(load: str) -> None:
    found = plan(load)
    simulated = found.estimate.simulated
    assert simulated is not None
    ttft = simulated.ttft_seconds
    problem = found.problem
    # The plan keeps results without the hosts, on which they must not depend.
    whole = build_deployment(problem.model, problem.cluster, problem.service.setup, found.layout)
    assert simulate(whole, problem.service.traffic) == simulated
    assert ttft.curve[0] <= ttft.p50 <= ttft.p90 <= ttft.p99 <= ttft.curve[-1]
    tail = format_seconds(ttft.p99)
    assert f"simulated TTFT p50 {format_seconds(ttft.p50)}, p99 {tail};" in summary_text(found)
    assert tail in serving_estimate_text(found)
    # The first candidate of the search is the plan, and its simulation is the same one.
    assert tail in serving_search_text(found, 3)
    assert plan_document(found)["estimate"]["simulated"]["ttft_seconds"]["p99"] == pytest.approx(
        ttft.p99, rel=1e-5
    )
    page = report_artifact(found).text
    assert '<section id="simulation">' in page
    assert f"p99 {tail}" in page


def test_without_a_load_nothing_is_simulated() -> None:
    found = plan()
    assert found.estimate.simulated is None
    assert "\nsimulated " not in summary_text(found)
    assert "Simulated" not in serving_search_text(found, 3)
    assert 'id="simulation"' not in report_artifact(found).text


def test_the_load_that_the_search_found_is_simulated() -> None:
    found = plan(tpot="20ms")
    simulated, rate = found.estimate.simulated, found.estimate.solved_request_rate
    assert simulated is not None
    assert rate is not None
    assert simulated.requests_per_second == pytest.approx(rate, rel=0.1)


def test_charts_mark_the_limits_of_the_goals() -> None:
    limited, free = (
        simulation_chart(plan("concurrency", **goals)) for goals in ({"tpot": "20ms"}, {})
    )
    assert limited is not None
    assert free is not None
    marks = [
        [path for path in chart.figure.paths if path.role == "mark"] for chart in (limited, free)
    ]
    assert [len(found) for found in marks] == [1, 0]
    bars = sum(path.data.count("z") for path in free.figure.paths if path.role == "k1")
    assert bars == 3 * 21


def test_answers_of_one_token_have_no_time_per_token_and_a_chart() -> None:
    found = plan("request_rate", output_tokens=1)
    simulated = found.estimate.simulated
    assert simulated is not None
    assert simulated.tpot_seconds.p99 == 0
    assert simulation_chart(found) is not None
