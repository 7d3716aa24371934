"""Tests of the LeaderWorkerSet: groups are engines, and pods have the node ranks of the plan."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from ruamel.yaml import YAML

from parc.backends.kubernetes.backend import BACKEND
from parc.backends.kubernetes.leaderworkerset import host_addresses, server_settings
from parc.backends.kubernetes.verify import VERIFIER
from parc.backends.verifier import JobShape
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import ServingPlan
from tests import compiled
from tests.backends.kubernetes.test_kubernetes import JOB, rank_on
from tests.search.serving_specs import plan_of, spec

pytestmark = pytest.mark.usefixtures("few_requests")


def plan_for(
    layout: dict[str, Any], nodes: int | str = 1, model: str = "llama-3.1-8b", **changes: Any
) -> ServingPlan:
    """Return a plan of ``nodes`` hosts, or of the hosts with the names ``nodes``."""
    tree = spec(model, "dgx-h100", nodes if isinstance(nodes, int) else 1, layout=layout)
    if isinstance(nodes, str):
        tree["cluster"] = {"node": "dgx-h100", "racks": [{"name": "r", "nodes": nodes}]}
    tree["launch"] = {"load_balancer": changes.pop("load_balancer", "internal")}
    made = plan_of(tree)
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
        name.split(".")[0].removeprefix(groups["metadata"]["name"]) for name in host_addresses(plan)
    ] == [
        "-0",
        "-0-1",
        "-1",
        "-1-1",
    ]


def test_engines_that_share_a_host_are_one_pod() -> None:
    plan = plan_for({"tp": 2, "replicas": 4})
    _, groups, service = documents(plan)
    template = groups["spec"]["leaderWorkerTemplate"]
    assert groups["spec"]["replicas"] == template["size"] == 1
    (container,) = template["leaderTemplate"]["spec"]["containers"]
    ports = [8000, 8001, 8002, 8003]
    assert [one["containerPort"] for one in container["ports"]] == ports
    assert [one["targetPort"] for one in service["spec"]["ports"]] == ports
    names = [one["name"] for one in service["spec"]["ports"]]
    assert names == ["api-8000", "api-8001", "api-8002", "api-8003"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert "in 8000 8001 8002 8003;" in container[probe]["exec"]["command"][2]


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


class Health(BaseHTTPRequestHandler):
    """Responds with the status of its server."""

    def do_GET(self) -> None:
        """Respond with status 404 for other paths than /health."""
        self.send_response(self.server.status if self.path == "/health" else 404)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize("statuses", [(200, 200), (200, 503), (503, 200), (200, None)])
def test_the_probe_of_several_servers_requires_all_of_them(
    statuses: tuple[int | None, ...],
) -> None:
    servers = [HTTPServer(("127.0.0.1", 0), Health) for _ in statuses]
    for server, status in zip(servers, statuses, strict=True):
        server.status = status  # type: ignore[attr-defined]
        if status is None:
            server.server_close()
        else:
            Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    ports = tuple(server.server_port for server in servers)
    settings = server_settings(ports, "/health", 1)
    done = subprocess.run(
        settings["readinessProbe"]["exec"]["command"], capture_output=True, check=False
    )
    for server, status in zip(servers, statuses, strict=True):
        if status is not None:
            server.shutdown()
            server.server_close()
    assert (done.returncode == 0) is (set(statuses) == {200})


def test_an_engine_has_its_startup_time_before_kubernetes_restarts_it() -> None:
    _, groups, _ = documents(plan_for({"tp": 8, "pp": 2}, nodes=2, startup_minutes=30))
    template = groups["spec"]["leaderWorkerTemplate"]
    (leader,) = template["leaderTemplate"]["spec"]["containers"]
    assert leader["startupProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    probe = leader["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] == 1800
    (worker,) = template["workerTemplate"]["spec"]["containers"]
    assert not worker.keys() & {"ports", "startupProbe", "livenessProbe", "readinessProbe"}


def test_workers_with_api_servers_are_behind_the_service() -> None:
    plan = plan_for({"tp": 8, "dp": 2}, nodes=2, model="mixtral-8x7b", load_balancer="external")
    _, groups, service = documents(plan)
    assert service["spec"]["selector"] == {"app.kubernetes.io/name": groups["metadata"]["name"]}
    template = groups["spec"]["leaderWorkerTemplate"]
    (worker,) = template["workerTemplate"]["spec"]["containers"]
    assert (
        worker["readinessProbe"]["httpGet"]["port"] == worker["ports"][0]["containerPort"] == 8000
    )


@pytest.mark.parametrize(("balancer", "found"), [("internal", []), ("external", ["L32"])])
def test_pods_of_a_template_without_equal_servers_are_rejected(
    balancer: str, found: list[str]
) -> None:
    plan = plan_for(
        {"tp": 8, "pp": 2, "dp": 2}, nodes=4, model="mixtral-8x7b", load_balancer=balancer
    )
    sink = Sink()
    BACKEND.check_serving(plan, sink)
    errors = [one.code for one in sink.diagnostics if one.severity == "error"]
    assert errors == [f"PARC-{code}" for code in found]


def test_engines_on_named_hosts_are_bound_to_them() -> None:
    plan = plan_for({"tp": 8, "pp": 2, "replicas": 2}, nodes="n[1-4]", queue="q")
    _, *groups, service = documents(plan)
    assert service["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
    names = [host.name for host in plan.placement.hosts]
    name = service["metadata"]["name"].removesuffix("-api")
    for index, group in enumerate(groups):
        assert group["metadata"]["name"] == f"{name}-{index}"
        assert group["spec"]["replicas"] == 1
        template = group["spec"]["leaderWorkerTemplate"]
        for role, host in (("leader", names[2 * index]), ("worker", names[2 * index + 1])):
            pod = template[f"{role}Template"]
            assert pod["metadata"]["labels"] == {"app.kubernetes.io/name": name}
            assert "annotations" not in pod["metadata"]
            assert bound_hosts(pod["spec"]) == [host]
            assert f"NODE_RANK={names.index(host)}\n" in rank_on(pod["spec"], host).stdout
    assert len(groups) == 2
    assert host_addresses(plan)[2:] == (f"{name}-1-0.{name}-1", names[3])


def test_engines_that_share_named_hosts_are_one_set() -> None:
    plan = plan_for({"tp": 4, "replicas": 4}, nodes="n[1-2]")
    _, groups, _ = documents(plan)
    pod = groups["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]
    assert groups["spec"]["replicas"] == 2
    assert bound_hosts(pod) == ["n1", "n2"]
    # The script contains the names of the hosts, and pod names would replace them.
    assert "PARC_HOSTS" not in {one["name"] for one in pod["containers"][0]["env"]}


@pytest.mark.parametrize(
    ("replicas", "hosts", "apart"), [(9, "n[1-3]", True), (10, "n[1-2]", False), (3, "n1", False)]
)
def test_small_pods_on_named_hosts_do_not_share_one(replicas: int, hosts: str, apart: bool) -> None:
    load = {"input_tokens": 500, "output_tokens": 50, "request_rate": 1}
    tree = spec("llama-3.1-8b", "dgx-h100", 1, layout={"tp": 1, "replicas": replicas})
    tree["cluster"] = {"node": "dgx-h100", "racks": [{"name": "r", "nodes": hosts}]}
    tree |= {"emit": ["vllm", "kubernetes", "rankmap"], "job": {**tree["job"], "traffic": load}}
    plan = plan_of(tree | {"launch": {"kubernetes": {"image": "registry.example/image:1"}}})
    files = compiled.emitted(plan)
    _, groups, _ = YAML(typ="safe").load_all(files["kubernetes/leaderworkerset.yaml"])
    template = groups["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    term = {
        "labelSelector": {"matchLabels": template["metadata"]["labels"]},
        "topologyKey": "kubernetes.io/hostname",
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    assert template["spec"]["affinity"].get("podAntiAffinity") == (required if apart else None)
    assert compiled.verification_codes(files) == set()
    if apart:
        text = files["kubernetes/leaderworkerset.yaml"]
        files["kubernetes/leaderworkerset.yaml"] = text.replace("podAntiAffinity", "podAffinity")
        assert "A18" in compiled.verification_codes(files)


def test_small_pods_of_a_training_job_do_not_share_a_named_host() -> None:
    tree: dict[str, Any] = {"parc": 1, "name": "small", "model": "llama-3-8b"}
    tree["job"] = {"sequence_length": 2048, "global_batch": 72}
    tree["cluster"] = {"node": "dgx-h100", "racks": [{"name": "r", "nodes": "n[1-3]"}]}
    tree["layout"] = {"tp": 1, "pp": 1, "cp": 1, "dp": 9}
    tree["launch"] = {"kubernetes": {"image": "registry.example/image:1"}}
    plan, _ = compiled.planned(tree | {"emit": ["fsdp", "kubernetes", "rankmap"]})
    assert plan is not None
    files = compiled.emitted(plan)
    _, jobset = YAML(typ="safe").load_all(files["kubernetes/jobset.yaml"])
    leader, others = (
        one["template"]["spec"]["template"]["spec"]["affinity"]
        for one in jobset["spec"]["replicatedJobs"]
    )
    assert "podAntiAffinity" not in leader
    (term,) = others["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == {"jobset.sigs.k8s.io/jobset-name": "small"}
    assert compiled.verification_codes(files) == set()


def bound_hosts(pod: dict[str, Any]) -> list[str]:
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return list(required["nodeSelectorTerms"][0]["matchExpressions"][0]["values"])


def test_mistakes_are_rejected_as_for_training() -> None:
    sink = Sink()
    BACKEND.check_serving(plan_for({"tp": 8}, image="", shared_memory="64 GB"), sink)
    fixes = {one.code: one.finding.fix for one in sink.diagnostics}
    assert fixes.keys() == {"PARC-L24", "PARC-L25", "PARC-L37"}
    assert fixes["PARC-L24"] == "launch.kubernetes.image: vllm/vllm-openai:v0.33.0"


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
