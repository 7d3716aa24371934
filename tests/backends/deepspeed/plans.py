"""Plans for the tests of DeepSpeed's files."""

from __future__ import annotations

import json
from typing import Any

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Plan
from parc.compiler.pipeline import emit_plan, plan_spec
from parc.compiler.spec.source import Source


def plan_of(spec: dict[str, Any]) -> Plan:
    """The plan of a spec that has no errors."""
    sink = Sink()
    plan = plan_spec(Source("spec.yaml", json.dumps(spec), None), (), sink)
    assert plan is not None, [found.finding.message for found in sink.diagnostics]
    return plan


def files_of(spec: dict[str, Any]) -> dict[str, str]:
    """Path -> text of everything that the spec compiles to."""
    sink = Sink()
    artifacts = emit_plan(plan_of(spec), sink)
    assert not sink.failed(), [found.finding.message for found in sink.diagnostics]
    return {artifact.path: artifact.text for artifact in artifacts}
