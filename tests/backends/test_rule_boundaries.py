"""Rules reject the spec on one side of their boundary and accept the one on the other side."""

from __future__ import annotations

import pytest

from parc.backends.registry import framework
from parc.compiler.diagnostics.codes import codes_with_letter
from parc.compiler.ir import Problem
from tests.backends.boundary import Boundary
from tests.backends.deepspeed.boundaries import BOUNDARIES as DEEPSPEED
from tests.backends.megatron.boundaries import BOUNDARIES as MEGATRON
from tests.backends.torch.boundaries import BOUNDARIES as TORCH
from tests.compiled import Spec, error_codes, resolved

EVERY = (*MEGATRON, *DEEPSPEED, *TORCH)
IDS = [f"{one.framework} {k} {one.code}" for k, one in enumerate(EVERY)]
MEGATRON_FAMILIES = "SPMBREF"
SAID_OTHERWISE = {
    ("deepspeed", "P01"): "P04",
    ("fsdp", "M01"): "E08",
    ("fsdp", "P06"): "E11",
    ("accelerate", "D19"): "E11",
    ("accelerate", "D06"): "D02",
}
"""(framework, code of a rule) -> code that may be reported instead, for the same root cause. One
root cause gives one error, and another rule at the same setting explains it first."""


@pytest.mark.parametrize("boundary", EVERY, ids=IDS)
def test_the_bad_spec_gets_the_code_of_the_rule(boundary: Boundary) -> None:
    other = SAID_OTHERWISE.get((boundary.framework, boundary.code), boundary.code)
    # Without this goal, a batch or a size that does not divide leaves hosts idle.
    bad = {**boundary.bad, "goals": {**boundary.bad.get("goals", {}), "idle_hosts": "forbid"}}
    assert {boundary.code, other} & error_codes(bad)


@pytest.mark.parametrize("boundary", EVERY, ids=IDS)
def test_the_good_spec_has_no_error(boundary: Boundary) -> None:
    assert error_codes(boundary.good) == set()


def test_every_error_of_the_megatron_families_has_a_boundary() -> None:
    elsewhere = {"R03", "R04", "R17", "S12", "S16", "F01", "F02", "F03"}
    elsewhere |= {"E11", "E12"}  # of other frameworks
    elsewhere |= {"E15"}  # of emit, whatever the layout
    elsewhere |= {"M09", "M10", "F06"}  # rules of engines that serve
    elsewhere |= {"B02", "B03", "F08", "R06", "R13", "R16", "S14"}  # of scripts that others wrote
    elsewhere |= {boundary.code for boundary in DEEPSPEED}
    rows = [info for letter in MEGATRON_FAMILIES for info in codes_with_letter(letter).values()]
    codes = {info.code for info in rows if info.severity == "error"} - elsewhere
    assert codes <= {boundary.code for boundary in MEGATRON}


def rule_codes(spec: Spec) -> set[str]:
    problem, _ = resolved(spec)
    assert isinstance(problem, Problem)
    return {rule.code for rule in framework(problem.framework).rules(problem)}


def test_every_rule_of_deepspeed_has_a_boundary() -> None:
    reported = {code for boundary in DEEPSPEED for code in rule_codes(boundary.good)}
    assert reported == {boundary.code for boundary in DEEPSPEED}
