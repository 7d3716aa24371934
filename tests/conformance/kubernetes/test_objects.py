"""The Kubernetes models accept every emitted object; PARC rejects the settings they reject."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from ruamel.yaml import YAML

from parc.backends.kubernetes.backend import BACKEND
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Plan, ServingPlan
from tests.backends.plans import nameless_plan, nvl72_plan, with_launch
from tests.compiled import example
from tests.conformance.tool_checkers import kubernetes_verdicts
from tests.spec_defaults import kubernetes_job

pytestmark = pytest.mark.conformance
VALID, INVALID = 220, 120
GOOD = kubernetes_job(image="registry.example.com/trainer:1")
BROKEN: tuple[dict[str, Any], ...] = (
    {"shared_memory": "64 GB"},
    {"shared_memory": "lots"},
    {"namespace": "Upper"},
    {"namespace": "a_b"},
    {"queue": "no such queue"},
    {"resources": (("rdma/hca", "eight"),)},
    {"resources": (("rdma hca", "8"),)},
    {"claims": (("Data", "/data"),)},
    {"claims": (("data", "data"),)},
    {"node_selector": (("zone", "a b"),)},
    {"node_selector": (("zo ne", "a"),)},
    {"image": ""},
)


def objects(plan: Plan) -> list[dict[str, Any]]:
    (artifact,) = BACKEND.emit(plan)
    found = YAML(typ="safe").load_all(artifact.text)
    return [json.loads(json.dumps(one)) for one in found]


def random_plan(seed: int) -> Plan:
    """Return a plan with as many Kubernetes settings as are compatible."""
    dice = Random(f"kubernetes {seed}")
    if dice.random() < 0.3:
        made = nvl72_plan(*(dice.randint(1, 4) for _ in range(dice.randint(1, 3))), named=False)
    else:
        made = nameless_plan(*(dice.randint(1, 5) for _ in range(dice.randint(1, 4))))
    job = replace(
        GOOD,
        queue=dice.choice(["", "training", "team-a.batch"]).replace(".", "-"),
        namespace=dice.choice(["", "research"]),
        host_network=dice.random() < 0.3,
        resources=dice.choice([(), (("rdma/hca", "8"),), (("memory", "1Ti"), ("rdma/ib", "4"))]),
        node_selector=dice.choice([(), (("node.kubernetes.io/instance-type", "p5.48xlarge"),)]),
        claims=dice.choice([(), (("datasets", "/data"), ("checkpoints", "/ckpt"))]),
        max_restarts=dice.randint(1, 9),
    )
    name = dice.choice(["run", "Llama-3.1_8B", "a.b.c", "x" * 30])
    made = with_launch(made, kubernetes=job)
    return replace(made, problem=replace(made.problem, name=name))


def errors(plan: Plan) -> set[str]:
    sink = Sink()
    BACKEND.check(plan, sink)
    return {one.code for one in sink.diagnostics if one.severity == "error"}


def cases_of(plan: Plan, name: str) -> list[dict[str, Any]]:
    return [{"name": f"{name} {one['kind']}", "manifest": one} for one in objects(plan)]


def test_objects_of_the_example_and_of_random_plans_are_accepted_with_all_keys() -> None:
    shown = example("llama-3-70b-kubernetes")
    assert isinstance(shown, Plan)
    cases = cases_of(shown, "example")
    for seed in range(VALID):
        plan = random_plan(seed)
        assert errors(plan) == set()
        cases += cases_of(plan, str(seed))
    wrong = [
        one for one in kubernetes_verdicts(cases) if not one["accepted"] or one["keys_ignored"]
    ]
    assert wrong == []


def test_objects_of_a_serving_plan_are_accepted_with_all_keys() -> None:
    shown = example("llama-3.1-405b-serve-kubernetes")
    assert isinstance(shown, ServingPlan)
    (artifact,) = BACKEND.emit_serving(shown)
    found = [json.loads(json.dumps(one)) for one in YAML(typ="safe").load_all(artifact.text)]
    cases = [{"name": one["kind"], "manifest": one} for one in found]
    verdicts = kubernetes_verdicts(cases)
    assert [one["name"] for one in verdicts] == ["ConfigMap", "LeaderWorkerSet", "Service"]
    assert [one for one in verdicts if not one["accepted"] or one["keys_ignored"]] == []


def test_settings_that_an_api_server_rejects_are_rejected_by_parc() -> None:
    """The models reject only some of these mistakes; all of them violate rules of the API."""
    dice, plans = Random("broken"), []
    for seed in range(INVALID):
        made = random_plan(seed)
        job = replace(made.problem.launch.kubernetes, **dice.choice(BROKEN))
        plans.append(with_launch(made, kubernetes=job))
    assert [number for number, plan in enumerate(plans) if not errors(plan)] == []
    cases = [case for number, plan in enumerate(plans) for case in cases_of(plan, str(number))]
    rejected = [one for one in kubernetes_verdicts(cases) if not one["accepted"]]
    assert len(rejected) >= 5
    assert not any(one["fault"] for one in rejected)
