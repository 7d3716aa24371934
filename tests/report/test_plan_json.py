"""Tests of plan.json and parc.lock: schemas, rounding, and the decisions of --locked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from parc.compiler.ir import SwitchTier
from parc.compiler.report.formatting import round_to_six_digits
from parc.compiler.report.json.locked_plan import (
    LockUnreadable,
    changed_decisions,
    locked_decisions,
)
from parc.compiler.report.json.output_schemas import schema_text
from parc.compiler.report.json.plan_json import (
    lock_artifact,
    lock_document,
    plan_artifact,
    plan_document,
)
from tests.placement.placement_plans import cluster, layout, plan

SCHEMAS = Path(__file__).parent.parent.parent / "schemas"
PLAN = plan(cluster(2, 2), layout(tp=8, pp=2, dp=2), experts=8)


@pytest.mark.parametrize("name", ["plan", "lock", "spec"])
def test_a_checked_in_schema_is_current(name: str) -> None:
    assert (SCHEMAS / f"{name}.schema.json").read_text("utf-8") == schema_text(name), "make schemas"


@pytest.mark.parametrize(
    ("name", "text"), [("plan", plan_artifact(PLAN).text), ("lock", lock_artifact(PLAN, ()).text)]
)
def test_output_files_match_their_schema_and_the_schema_is_closed(name: str, text: str) -> None:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    document = json.loads(text)
    validator.validate(document)
    assert not validator.is_valid({**document, "surprise": 1})


def test_levels_above_racks_are_in_the_plan_and_match_the_schema() -> None:
    schema = json.loads((SCHEMAS / "plan.schema.json").read_text("utf-8"))
    plain = PLAN.problem.cluster
    racks = tuple(
        replace(rack, hosts=tuple(replace(host, above=("core",)) for host in rack.hosts))
        for rack in plain.racks
    )
    node = replace(plain.node, gpu_numa=(0,) * 4 + (1,) * 4)
    fabric = replace(plain.fabric, rails=8)
    upper = (SwitchTier("core", 1.0, 2e-6),)
    tree = replace(plain, node=node, fabric=fabric, racks=racks, upper=upper)
    document = plan_document(replace(PLAN, problem=replace(PLAN.problem, cluster=tree)))
    jsonschema.Draft202012Validator(schema).validate(document)
    written = document["problem"]["cluster"]
    assert [level["name"] for level in written["levels"]] == ["leaf", "core"]
    assert [rack["above"] for rack in written["racks"]] == [["core"], ["core"]]
    assert written["node"]["gpu_numa"] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert written["fabric"]["rails"] == 8
    before = plan_document(PLAN)["problem"]["cluster"]
    keys = before.keys() | before["node"].keys() | before["fabric"].keys()
    assert {"levels", "above", "gpu_numa", "rails"}.isdisjoint(keys)


def test_files_end_in_one_newline_and_have_sorted_keys() -> None:
    for artifact in (plan_artifact(PLAN), lock_artifact(PLAN, ())):
        assert artifact.text.endswith("}\n")
        document = json.loads(artifact.text)
        again = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        assert artifact.text == again


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1 / 3, 0.333333), (2e9, 2000000000), (1234567.8, 1234570), (1e-5, 1e-5), (0.0, 0)],
)
def test_a_float_keeps_six_digits(value: float, expected: float) -> None:
    assert round_to_six_digits(value) == expected
    assert isinstance(round_to_six_digits(value), type(expected))


def test_equal_decisions_do_not_differ() -> None:
    old = locked_decisions(lock_artifact(PLAN, ()).text)
    assert list(changed_decisions(old, lock_document(PLAN)["decisions"])) == []


def test_a_changed_decision_is_listed_with_both_values() -> None:
    old = locked_decisions(lock_artifact(PLAN, ()).text)
    new = lock_document(replace(PLAN, layout=replace(PLAN.layout, micro_batch=2)))["decisions"]
    assert list(changed_decisions(old, new)) == [("layout.micro_batch", "1 -> 2")]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"decisions": 3}', "\ufffd", "[" * 100_000])
def test_an_invalid_lock_is_refused(text: str) -> None:
    with pytest.raises(LockUnreadable):
        locked_decisions(text)
