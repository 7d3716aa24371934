"""Each rule refuses on one side of its boundary and lets pass on the other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.backends.deepspeed.backend import BACKEND
from parc.compiler.diagnostics import Sink
from parc.compiler.pipeline import plan_spec, resolve_spec
from parc.compiler.spec.source import Source
from tests.backends.deepspeed.boundaries import BOUNDARIES, Boundary

IDS = [f"{k} {boundary.code}" for k, boundary in enumerate(BOUNDARIES)]


def errors(spec: dict[str, Any]) -> set[str]:
    sink = Sink()
    plan_spec(Source("spec.yaml", json.dumps(spec, indent=1), None), (), sink)
    return {found.code for found in sink.diagnostics if found.severity == "error"}


SAID_OTHERWISE = {"P01": "P04"}
"""A split that cannot be had is told by the reason why."""


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=IDS)
def test_the_bad_spec_gets_the_code_of_the_rule(boundary: Boundary) -> None:
    assert f"PARC-{SAID_OTHERWISE.get(boundary.code, boundary.code)}" in errors(boundary.bad)


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=IDS)
def test_the_good_spec_has_no_error(boundary: Boundary) -> None:
    assert errors(boundary.good) == set()


def test_every_rule_has_a_boundary() -> None:
    told = set()
    for boundary in BOUNDARIES:
        source = Source("spec.yaml", json.dumps(boundary.good), None)
        problem = resolve_spec(source, (), Sink())
        assert problem is not None
        told |= {rule.code for rule in BACKEND.rules(problem)}
    assert told == {boundary.code for boundary in BOUNDARIES}
