"""Errors that no single value causes state a way out, and a fix that works if there is one."""

from __future__ import annotations

from typing import Any

import pytest

from parc.backends.shared.extra_arguments import fix_unknown_flag
from parc.compiler.diagnostics import Sink
from parc.compiler.pipeline import plan_spec
from parc.compiler.spec.fixes import overrides_of_fix
from tests.compiled import changed, planned, source_of

TRAIN: dict[str, Any] = {
    **{"parc": 1, "name": "x", "model": "llama-3-8b", "emit": ["megatron"]},
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "job": {"sequence_length": 2048, "global_batch": 64},
}
SERVE = changed(
    {**TRAIN, "job": {"kind": "serve", "traffic": {"input_tokens": 500, "output_tokens": 100}}},
    {"emit": ["vllm"], "job.traffic.request_rate": 1.0},
)
ALL_SPARE = {
    "cluster": {"node": "dgx-h100", "racks": [{"name": "a", "nodes": "a[1-2]"}], "spare": "a[1-2]"}
}
ALL_DOWN = {
    "cluster": {"node": "dgx-h100", "racks": [{"name": "a", "nodes": "a1"}], "unavailable": "a1"}
}


@pytest.mark.parametrize(
    ("base", "changes", "code", "fix"),
    [
        (TRAIN, ALL_SPARE, "H06", "remove cluster.spare"),
        (TRAIN, {"goals.limits": {"dp": {"only": [5]}}}, "G01", "remove goals.limits.dp"),
        (SERVE, {"goals.limits": {"tp": {"min": 64}}}, "G01", "remove goals.limits.tp"),
        (
            {**TRAIN, "emit": ["deepspeed"]},
            {
                "model": "qwen3-8b",
                "job.sequence_length": 32768,
                "goals.limits": {"cp": {"only": [2]}},
            },
            "E10",
            "remove goals.limits.cp",
        ),
        (TRAIN, {"cluster.gpu": "mi250x-64gb"}, "H07", "cluster.node: frontier"),
    ],
)
def test_the_fix_works(base: Any, changes: Any, code: str, fix: str) -> None:
    spec = changed(base, changes)
    _, sink = planned(spec)
    errors = [one for one in sink.diagnostics if one.severity == "error"]
    assert [(one.code, one.finding.fix) for one in errors] == [(f"PARC-{code}", fix)]
    assert errors[0].finding.help
    after = Sink()
    plan_spec(source_of(spec), overrides_of_fix(fix), after)
    assert f"PARC-{code}" not in {one.code for one in after.diagnostics}


@pytest.mark.parametrize(
    ("base", "changes", "code", "text"),
    [
        (TRAIN, ALL_DOWN, "H06", "add hosts to the cluster"),
        (TRAIN, {"cluster.gpu": "mi300x-192gb"}, "H07", "xgmi, pcie"),
        (
            SERVE,
            {"cluster.node": "mi300x-8", "emit": ["tensorrt-llm"]},
            "R03",
            "engines for GPUs of amd: vllm, sglang",
        ),
    ],
)
def test_the_help_states_what_is_valid(base: Any, changes: Any, code: str, text: str) -> None:
    _, sink = planned(changed(base, changes))
    found = [one for one in sink.diagnostics if one.code == f"PARC-{code}"]
    assert text in found[0].finding.help


def test_limits_alone_are_not_called_settings_of_layout() -> None:
    _, sink = planned(changed(TRAIN, {"goals.limits": {"dp": {"only": [5]}}}))
    assert "layout of 16 GPUs satisfies the limits" in sink.diagnostics[0].finding.message
    assert "section layout" not in sink.diagnostics[0].finding.help


def test_prefix_hits_of_a_decode_pool_are_not_taken_for_those_of_the_spec() -> None:
    offload = {"size": "100GB", "prefix_hit": "20%"}
    pools = {"prefill": {"hosts": 1}, "decode": {"hosts": 1}}
    _, sink = planned(changed(SERVE, {"job.kv_offload": offload, "job.disaggregate": pools}))
    assert {one.code for one in sink.diagnostics if one.severity == "error"} == {"PARC-V45"}


def test_a_flag_that_only_resembles_the_unknown_one_is_no_fix() -> None:
    assert fix_unknown_flag("--log-params-norm", ["--offload-params"]) == ""
    assert fix_unknown_flag("--max-model-length", ["--max-model-len"]) == "--max-model-len"
    assert fix_unknown_flag("--x", []) == ""
