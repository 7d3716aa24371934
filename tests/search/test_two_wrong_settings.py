"""Two settings that are wrong independently of each other each get a fix."""

from __future__ import annotations

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.pipeline import plan_spec
from parc.compiler.spec.fixes import overrides_of_fix
from tests.compiled import Spec, source_of


@pytest.mark.parametrize("target", ["fsdp", "accelerate"])
@pytest.mark.parametrize("schedule", ["zb-h1", "dualpipe-v", "1f1b"])
def test_a_pipeline_in_a_framework_without_one_gets_fixes_that_work(
    target: str, schedule: str
) -> None:
    spec: Spec = {
        "parc": 1,
        "name": "run",
        "model": "llama-3-8b",
        "cluster": {"node": "hgx-h100", "nodes": 2},
        "job": {"sequence_length": 4096, "global_batch": 64},
        "layout": {"pp": 2, "schedule": schedule},
        "emit": [target],
    }
    sink = Sink()
    assert plan_spec(source_of(spec), (), sink) is None
    fixes = [one.finding.fix for one in sink.diagnostics if one.severity == "error"]
    assert all(fixes)
    edits = [edit for fix in fixes for edit in overrides_of_fix(fix)]
    fixed = Sink()
    assert plan_spec(source_of(spec), edits, fixed) is not None
    assert not fixed.failed()
