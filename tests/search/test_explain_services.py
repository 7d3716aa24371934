"""Findings that name the limits that services miss, with values of the estimate or simulation."""

from __future__ import annotations

from tests.search.serving_specs import Tree, planned, spec


def _missed(rate: float, limit: str) -> tuple[str, str]:
    """Return (message, label) of the finding for a prefill pool with a limit on the p99 of TTFT."""
    traffic = {"input_tokens": 2000, "output_tokens": 500, "request_rate": rate}
    job: Tree = {"precision": "fp8", "pool": "prefill", "max_model_len": 8192, "traffic": traffic}
    layout, goals = {"tp": 4, "replicas": 2}, {"ttft": {"p99": limit}}
    tree = spec("llama-3.1-70b", "dgx-h100", job=job, layout=layout, goals=goals)
    (found,) = planned(tree)[1].diagnostics
    assert found.code == "PARC-G03"
    return found.finding.message, found.finding.label


def test_a_limit_that_only_some_samples_miss_is_shown_with_the_worst_sample() -> None:
    message, label = _missed(17, "1400ms")  # the samples have 1275, 1460 and 1280 ms
    assert message.endswith("ttft p99 1400 ms")
    assert "ttft p99 1460 ms" in label


def test_a_value_just_below_the_limit_is_shown_with_the_margin() -> None:
    _, label = _missed(16, "1160ms")
    assert "ttft p99 1144 ms; PARC requires 3 % less than a limit" in label


def test_a_request_rate_that_all_layouts_serve_is_not_listed_as_missed() -> None:
    message, label = _missed(8, "100ms")
    assert "requests per second" not in message + label
    assert "ttft" in label
