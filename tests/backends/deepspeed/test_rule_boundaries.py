"""Each rule refuses on one side of its boundary and lets pass on the other."""

from __future__ import annotations

import pytest

from parc.backends.deepspeed.backend import BACKEND
from tests.backends.deepspeed.boundaries import BOUNDARIES, Boundary
from tests.compiled import error_codes, resolved

IDS = [f"{k} {boundary.code}" for k, boundary in enumerate(BOUNDARIES)]


SAID_OTHERWISE = {"P01": "P04"}
"""A split that cannot be had is told by the reason why."""


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=IDS)
def test_the_bad_spec_gets_the_code_of_the_rule(boundary: Boundary) -> None:
    assert SAID_OTHERWISE.get(boundary.code, boundary.code) in error_codes(boundary.bad)


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=IDS)
def test_the_good_spec_has_no_error(boundary: Boundary) -> None:
    assert error_codes(boundary.good) == set()


def test_every_rule_has_a_boundary() -> None:
    told = set()
    for boundary in BOUNDARIES:
        problem, _ = resolved(boundary.good)
        assert problem is not None
        told |= {rule.code for rule in BACKEND.rules(problem)}
    assert told == {boundary.code for boundary in BOUNDARIES}
