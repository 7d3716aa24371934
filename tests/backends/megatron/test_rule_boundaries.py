"""Each rule refuses on one side of its boundary and lets pass on the other."""

from __future__ import annotations

import pytest

from parc.compiler.diagnostics.codes import family
from tests.backends.deepspeed.boundaries import BOUNDARIES as DEEPSPEED
from tests.backends.megatron.boundaries import BOUNDARIES, Boundary
from tests.compiled import error_codes

IDS = [f"{k} {boundary.code}" for k, boundary in enumerate(BOUNDARIES)]
OWN_FAMILIES = "SPMBREF"


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=IDS)
def test_the_bad_spec_gets_the_code_of_the_rule(boundary: Boundary) -> None:
    assert boundary.code in error_codes(boundary.bad)


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=IDS)
def test_the_good_spec_has_no_error(boundary: Boundary) -> None:
    assert error_codes(boundary.good) == set()


def test_every_error_of_the_megatron_families_has_a_boundary() -> None:
    elsewhere = {"R03", "R04", "R17", "S12", "S16", "F01", "F02", "F03"}
    elsewhere |= {"E11", "E12"}  # of other frameworks
    elsewhere |= {"M09", "M10"}  # rules of engines that serve
    elsewhere |= {boundary.code for boundary in DEEPSPEED}
    rows = [info for letter in OWN_FAMILIES for info in family(letter).values()]
    codes = {info.code for info in rows if info.severity == "error"} - elsewhere
    assert codes <= {boundary.code for boundary in BOUNDARIES}
