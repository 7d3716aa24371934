"""The text of each term names what its formula depends on."""

from __future__ import annotations

from dataclasses import fields

import pytest

from parc.compiler.catalog.find_generation import find_generation
from parc.compiler.catalog.library import Library
from parc.compiler.cost.memory.workspaces import (
    COMMUNICATOR_BYTES,
    COMMUNICATORS_PER_AXIS,
    MEASURED_PEERS,
    PCIE_COMMUNICATOR_BYTES,
    PEER_BYTES,
)
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.cost.step.terms import TERMS
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Efficiency, Plan, StepTime
from tests.cost.memory.test_static_memory import plan_of
from tests.cost.step.test_stack_facts import cost_model_with

GIB = 2.0**30
PROPERTIES = tuple(
    one.name
    for one in fields(Efficiency)
    if isinstance(one.default, bool) and not one.name.startswith("measured")
)
"""Properties of a software stack that select a formula of the step time."""


def _plan(model: str, node: str = "dgx-h100", **layout: object) -> Plan:
    return plan_of(
        model=model,
        cluster={"node": node, "nodes": 8},
        job={"sequence_length": 4096, "global_batch": 256},
        layout={"tp": 2, "micro_batch": 1, "recompute": "full", **layout},
    )


@pytest.fixture(scope="module")
def plans() -> tuple[Plan, ...]:
    # The hosts of the last plan have four NICs for eight GPUs. With one sequence per micro-batch,
    # the host would be about as fast as the GPUs of the first plan, and hide collectives.
    return (
        _plan("mixtral-8x7b", pp=1, ep=4, micro_batch=2),
        _plan("llama-3-8b", pp=1, sequence_parallel=False),
        _plan("llama-3-8b", "aws-p4d", pp=1, tp=4, micro_batch=1),
    )


@pytest.fixture(scope="module")
def pipeline() -> Plan:
    return _plan("llama-3-8b", pp=2, sequence_parallel=False)


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_term_names_the_properties_of_the_software_that_change_it(
    name: str, plans: tuple[Plan, ...], pipeline: Plan
) -> None:
    # With stages, another one may be the slowest, which changes all terms.
    changed = _changed_terms(pipeline, name) & {"pp_seconds"}
    changed = changed.union(*(_changed_terms(plan, name) for plan in plans))
    assert changed, f"{name} has no effect on these plans"
    assert [term for term in changed if name not in TERMS[term].variants] == []


def _changed_terms(plan: Plan, name: str) -> set[str]:
    """Return the terms that another value of a property changes in the direction of the step.

    Terms that hide behind computation change in the other direction, by the time of computation.
    Changes below 1 % of the step are left out: of collectives that hide behind launches, more or
    less is exposed with every other kernel.
    """
    usual = cost_model_with(plan)
    other = cost_model_with(plan, **{name: not getattr(usual.efficiency, name)})
    one, two = (step_time(model, plan.layout) for model in (usual, other))
    changes = {
        term.name: (getattr(two, term.name) - getattr(one, term.name)) / one.total_seconds
        for term in fields(StepTime)
    }
    sign = sum(changes.values())
    return {term for term, change in changes.items() if change * sign > 0 and abs(change) > 0.01}


def test_the_constants_in_the_text_of_memory_terms_are_those_of_the_code() -> None:
    text = TERMS["communication_bytes"].formula
    assert f"{COMMUNICATORS_PER_AXIS} x {COMMUNICATOR_BYTES / GIB:.2f} GiB" in text
    assert f"{COMMUNICATORS_PER_AXIS} x {PCIE_COMMUNICATOR_BYTES / GIB:.2f} GiB" in text
    assert f"{PEER_BYTES / GIB:.2f} GiB per NVLink peer" in text
    assert f"at most {MEASURED_PEERS} peers" in text


def test_the_driver_contexts_in_the_text_are_those_of_the_catalog() -> None:
    text, library = TERMS["framework_bytes"].formula.replace(" GiB", ""), Library()
    *named, others = (part.split(" on ") for part in text.split(", "))
    stated = {name.lower(): number for number, name in named}
    for name in library.names("generations"):
        found = find_generation(name, library, Sink(), "cluster.generation")
        assert found is not None
        number = f"{found.driver_context_mb * 1e6 / GIB:.2f}"
        assert stated.get(name, others[0]) == number, name
