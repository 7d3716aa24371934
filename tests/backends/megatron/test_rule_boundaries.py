"""Each rule refuses on one side of its boundary and lets pass on the other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.codes import family
from parc.compiler.pipeline import plan_spec
from parc.compiler.spec.source import Source
from tests.backends.deepspeed.boundaries import BOUNDARIES as DEEPSPEED
from tests.backends.megatron.boundaries import BOUNDARIES, Boundary

IDS = [f"{k} {boundary.code}" for k, boundary in enumerate(BOUNDARIES)]
OWN_FAMILIES = "SPMBREF"


def errors(spec: dict[str, Any]) -> set[str]:
    sink = Sink()
    plan_spec(Source("spec.yaml", json.dumps(spec, indent=1), None), (), sink)
    return {found.code for found in sink.diagnostics if found.severity == "error"}


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=IDS)
def test_the_bad_spec_gets_the_code_of_the_rule(boundary: Boundary) -> None:
    assert f"PARC-{boundary.code}" in errors(boundary.bad)


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=IDS)
def test_the_good_spec_has_no_error(boundary: Boundary) -> None:
    assert errors(boundary.good) == set()


def test_every_error_of_the_megatron_families_has_a_boundary() -> None:
    elsewhere = {"R03", "R04", "R17", "S12", "S16", "F01", "F02", "F03"}
    elsewhere |= {"E11", "E12"}  # of other frameworks
    elsewhere |= {"M09", "M10"}  # rules of engines that serve
    elsewhere |= {boundary.code for boundary in DEEPSPEED}
    rows = [info for letter in OWN_FAMILIES for info in family(letter).values()]
    codes = {info.code for info in rows if info.severity == "error"} - elsewhere
    assert codes <= {boundary.code for boundary in BOUNDARIES}
