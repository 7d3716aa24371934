"""The Kubernetes models accept every emitted object; PARC rejects the settings they reject."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from ruamel.yaml import YAML

from parc.backends.kubernetes.backend import BACKEND
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import KubernetesJob, Plan, ServingPlan
from tests.backends.plans import nameless_plan, nvl72_plan, with_launch
from tests.compiled import example
from tests.conformance.tool_checkers import kubernetes_verdicts
from tests.search.serving_specs import plan_of, spec
from tests.spec_defaults import kubernetes_job

pytestmark = pytest.mark.conformance
VALID, INVALID = 220, 120
SERVED = 60
RELEASES = list(BACKEND.versions)
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
    {"requests": (("rdma/hca", "8"),)},
    {"requests": (("cpu", "all"),)},
    {"tolerations": ("gpu=a:Maybe",)},
    {"pull_secrets": ("My key",)},
)


def objects(plan: Plan | ServingPlan) -> list[dict[str, Any]]:
    (artifact,) = BACKEND.emit(plan) if isinstance(plan, Plan) else BACKEND.emit_serving(plan)
    found = YAML(typ="safe").load_all(artifact.text)
    return [json.loads(json.dumps(one)) for one in found]


def random_job(dice: Random) -> KubernetesJob:
    """Return random Kubernetes settings that are compatible."""
    return replace(
        GOOD,
        queue=dice.choice(["", "training", "team-a.batch"]).replace(".", "-"),
        namespace=dice.choice(["", "research"]),
        host_network=dice.random() < 0.3,
        resources=dice.choice([(), (("rdma/hca", "8"),), (("memory", "1Ti"), ("rdma/ib", "4"))]),
        requests=dice.choice(
            [(), (("cpu", "96"),), (("cpu", "1500m"), ("ephemeral-storage", "9Gi"))]
        ),
        node_selector=dice.choice([(), (("node.kubernetes.io/instance-type", "p5.48xlarge"),)]),
        tolerations=dice.choice(
            [(), ("nvidia.com/gpu", "a=b:NoSchedule", "c:PreferNoSchedule", "d=")]
        ),
        pull_secrets=dice.choice([(), ("registry", "mirror")]),
        run_as_user=dice.choice([None, 0, 1000]),
        run_as_group=dice.choice([None, 0, 1000]),
        compute_domain=dice.random() < 0.5,
        privileged=dice.random() < 0.3,
        host_paths=dice.choice([(), (("/opt/network", "/usr/local/network"),)]),
        annotations=dice.choice([(), (("example.com/interfaces", '[{"name":"eth1"}]'),)]),
        claims=dice.choice([(), (("datasets", "/data"), ("checkpoints", "/ckpt"))]),
        max_restarts=dice.randint(1, 9),
        startup_minutes=dice.randint(1, 99),
    )


def random_plan(seed: int) -> Plan:
    """Return a plan with as many Kubernetes settings as are compatible."""
    dice = Random(f"kubernetes {seed}")
    if dice.random() < 0.4:
        sizes = [dice.randint(1, 4) for _ in range(dice.randint(1, 3))]
        made = nvl72_plan(*sizes, named=dice.random() < 0.5)
    else:
        made = nameless_plan(*(dice.randint(1, 5) for _ in range(dice.randint(1, 4))))
    name = dice.choice(["run", "Llama-3.1_8B", "a.b.c", "x" * 30])
    made = with_launch(made, kubernetes=random_job(dice))
    return replace(made, problem=replace(made.problem, name=name))


def random_service(seed: int) -> ServingPlan:
    """Return a serving plan with random engines, load balancing, hosts and Kubernetes settings."""
    dice = Random(f"service {seed}")
    layout, nodes, balancer = dice.choice(
        [
            ({"tp": 1, "replicas": 8}, 1, "internal"),
            ({"tp": 2, "replicas": 8}, 2, "internal"),
            ({"tp": 8, "replicas": 2}, 2, "internal"),
            ({"tp": 8, "pp": 2, "replicas": 2}, 4, "internal"),
            ({"tp": 4, "dp": 2}, 1, "external"),
            ({"tp": 2, "dp": 8}, 2, "external"),
            ({"tp": 2, "dp": 8}, 2, "hybrid"),
            ({"tp": 8, "dp": 2, "replicas": 2}, 4, "external"),
        ]
    )
    tree = spec("qwen1.5-moe-a2.7b", "dgx-h100", nodes, layout=layout)
    tree["launch"] = {"load_balancer": balancer}
    if dice.random() < 0.5:
        racks = [{"name": "r", "nodes": f"gpu-node-[1-{nodes}]"}]
        tree["cluster"] = {"node": "dgx-h100", "racks": racks}
    made = plan_of(tree)
    launch = replace(made.problem.launch, kubernetes=random_job(dice))
    return replace(made, problem=replace(made.problem, launch=launch))


def errors(plan: Plan | ServingPlan) -> set[str]:
    sink = Sink()
    if isinstance(plan, Plan):
        BACKEND.check(plan, sink)
    else:
        BACKEND.check_serving(plan, sink)
    return {one.code for one in sink.diagnostics if one.severity == "error"}


def cases_of(plan: Plan | ServingPlan, name: str) -> list[dict[str, Any]]:
    releases = RELEASES if os.environ.get("PARC_CONFORMANCE_KUBERNETES") else []
    return [
        {"name": f"{name} {one['kind']}", "manifest": one, "releases": releases}
        for one in objects(plan)
    ]


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


def test_objects_of_services_are_accepted_with_all_keys() -> None:
    shown = example("llama-3.1-405b-serve-kubernetes")
    assert isinstance(shown, ServingPlan)
    cases = cases_of(shown, "example")
    assert [one["manifest"]["kind"] for one in cases] == ["ConfigMap", "LeaderWorkerSet", "Service"]
    for seed in range(SERVED):
        plan = random_service(seed)
        assert errors(plan) <= {"PARC-L32"}
        cases += [] if errors(plan) else cases_of(plan, str(seed))
    assert len(cases) > 3 * SERVED
    verdicts = kubernetes_verdicts(cases)
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
