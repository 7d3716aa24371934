"""Each rule refuses on one side of its boundary and lets pass on the other."""

from __future__ import annotations

import json

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.pipeline import plan_spec
from parc.compiler.spec.source import Source
from tests.backends.torch.boundaries import BOUNDARIES, Boundary
from tests.backends.torch.specs import Spec

IDS = [f"{one.framework} {k} {one.code}" for k, one in enumerate(BOUNDARIES)]


def errors(spec: Spec) -> set[str]:
    sink = Sink()
    plan_spec(Source("spec.yaml", json.dumps(spec, indent=1), None), (), sink)
    return {found.code for found in sink.diagnostics if found.severity == "error"}


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=IDS)
def test_the_bad_spec_gets_the_code_of_the_rule(boundary: Boundary) -> None:
    assert f"PARC-{boundary.code}" in errors(boundary.bad)


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=IDS)
def test_the_good_spec_has_no_error(boundary: Boundary) -> None:
    assert errors(boundary.good) == set()
