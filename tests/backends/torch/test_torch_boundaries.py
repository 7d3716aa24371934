"""Each rule refuses on one side of its boundary and lets pass on the other."""

from __future__ import annotations

import pytest

from tests.backends.torch.boundaries import BOUNDARIES, Boundary
from tests.compiled import error_codes

IDS = [f"{one.framework} {k} {one.code}" for k, one in enumerate(BOUNDARIES)]


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=IDS)
def test_the_bad_spec_gets_the_code_of_the_rule(boundary: Boundary) -> None:
    assert boundary.code in error_codes(boundary.bad)


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=IDS)
def test_the_good_spec_has_no_error(boundary: Boundary) -> None:
    assert error_codes(boundary.good) == set()
