"""Tests of the LeaderWorkerSet: groups are engines, and pods have the node ranks of the plan."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from ruamel.yaml import YAML

from parc.backends.kubernetes.backend import BACKEND
from parc.backends.kubernetes.leaderworkerset import pod_names
from parc.backends.kubernetes.verify import VERIFIER
from parc.backends.verifier import JobShape
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import ServingPlan
from tests.backends.kubernetes.test_kubernetes import JOB
from tests.search.serving_specs import plan_of, spec


def plan_for(layout: dict[str, Any], nodes: int = 1, **changes: Any) -> ServingPlan:
    made = plan_of(spec("llama-3.1-8b", "dgx-h100", nodes, layout=layout))
    launch = replace(made.problem.launch, kubernetes=replace(JOB, **changes))
    return replace(made, problem=replace(made.problem, launch=launch))


def documents(plan: ServingPlan) -> list[dict[str, Any]]:
    (artifact,) = BACKEND.emit_serving(plan)
    return list(YAML(typ="safe").load_all(artifact.text))


def test_an_engine_over_two_hosts_is_a_group_of_two_pods() -> None:
    plan = plan_for({"tp": 8, "pp": 2, "replicas": 2}, nodes=4)
    _, groups, service = documents(plan)
    spec_ = groups["spec"]
    assert (spec_["replicas"], spec_["leaderWorkerTemplate"]["size"]) == (2, 2)
    assert service["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
    assert [
        name.split(".")[0].removeprefix(groups["metadata"]["name"]) for name in pod_names(plan)
    ] == [
        "-0",
        "-0-1",
        "-1",
        "-1-1",
    ]


def test_engines_that_share_a_host_are_one_pod() -> None:
    plan = plan_for({"tp": 2, "replicas": 4})
    _, groups, _ = documents(plan)
    assert groups["spec"]["replicas"] == groups["spec"]["leaderWorkerTemplate"]["size"] == 1


def test_every_pod_has_its_own_node_rank() -> None:
    plan = plan_for({"tp": 8, "pp": 2, "replicas": 2}, nodes=4)
    _, groups, _ = documents(plan)
    template = groups["spec"]["leaderWorkerTemplate"]
    line = template["workerTemplate"]["spec"]["containers"][0]["command"][2]
    line = line.replace("exec bash /parc/vllm/serve.sh", "env")
    found = Counter[str]()
    for group in range(groups["spec"]["replicas"]):
        for worker in range(template["size"]):
            env = {"GROUP_INDEX": str(group), "LWS_WORKER_INDEX": str(worker), "PATH": "/usr/bin"}
            done = subprocess.run(
                ["/bin/bash", "-c", line], env=env, capture_output=True, text=True, check=True
            )
            found += Counter(one for one in done.stdout.split("\n") if one[:10] == "NODE_RANK=")
    assert found == Counter(f"NODE_RANK={rank}" for rank in range(4))


def test_a_queue_keeps_the_pods_of_an_engine_in_one_rack() -> None:
    _, groups, _ = documents(plan_for({"tp": 8, "pp": 2, "replicas": 1}, nodes=2, queue="serving"))
    template = groups["spec"]["leaderWorkerTemplate"]
    for name in ("leaderTemplate", "workerTemplate"):
        assert template[name]["metadata"]["annotations"] == {
            "kueue.x-k8s.io/podset-required-topology": JOB.rack_label,
            "kueue.x-k8s.io/podset-group-name": "engine",
        }


def test_mistakes_are_rejected_as_for_training() -> None:
    sink = Sink()
    BACKEND.check_serving(plan_for({"tp": 8}, image="", shared_memory="64 GB"), sink)
    assert sorted(one.code for one in sink.diagnostics) == ["PARC-L24", "PARC-L25"]


@pytest.mark.parametrize(
    ("old", "new"), [("size: 2", "size: 3"), ("GROUP_INDEX * 2 ", "GROUP_INDEX * 1 ")]
)
def test_a_changed_leaderworkerset_is_detected(old: str, new: str) -> None:
    plan = plan_for({"tp": 8, "pp": 2, "replicas": 2}, nodes=4)
    (artifact,) = BACKEND.emit_serving(plan)
    assert old in artifact.text
    for text, wrong in ((artifact.text, 0), (artifact.text.replace(old, new), 1)):
        sink = Sink()
        names = [host.name for host in plan.placement.hosts]
        VERIFIER.check_launch({artifact.path: text}, JobShape(names, 8), sink)
        assert len(sink.diagnostics) == wrong
