"""Tests of the JobSet: node ranks of its pods, and annotations that keep racks together."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from ruamel.yaml import YAML

from parc.backends.kubernetes.backend import BACKEND
from parc.backends.kubernetes.object_names import dns_label, is_dns_label
from parc.backends.kubernetes.slices import hosts_per_slice, pod_annotations
from parc.backends.kubernetes.verify import VERIFIER
from parc.backends.verifier import JobShape
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Plan
from tests.backends.plans import HOSTILE, launch_plan, nameless_plan, nvl72_plan, with_launch
from tests.placement.placement_plans import cluster
from tests.spec_defaults import kubernetes_job

JOB = kubernetes_job(image="trainer:1", resources={"rdma/hca": "8"})


def plan_for(made: Plan, **changes: Any) -> Plan:
    return with_launch(made, kubernetes=replace(JOB, **changes))


def documents(made: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (ConfigMap, JobSet) of the plan, parsed from YAML."""
    (artifact,) = BACKEND.emit(made)
    config, jobset = YAML(typ="safe").load_all(artifact.text)
    return config, jobset


def codes(made: Plan) -> list[str]:
    sink = Sink()
    BACKEND.check(made, sink)
    return [one.code.removeprefix("PARC-") for one in sink.diagnostics]


def test_every_pod_has_its_own_node_rank_and_all_ranks_are_there() -> None:
    made = plan_for(nameless_plan(2, 2))
    config, jobset = documents(made)
    (job,) = jobset["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    line = container["command"][2].replace("exec bash /parc/torchrun/launch.sh", "env")
    ranks = Counter[str]()
    for index in range(job["replicas"]):
        for place in range(spec["completions"]):
            env = {"JOB_INDEX": str(index), "JOB_COMPLETION_INDEX": str(place), "PATH": "/usr/bin"}
            done = subprocess.run(
                ["/bin/bash", "-c", line], env=env, capture_output=True, text=True, check=True
            )
            ranks += Counter(one for one in done.stdout.split("\n") if one[:10] == "NODE_RANK=")
    assert ranks == Counter(f"NODE_RANK={rank}" for rank in range(4))
    assert "torchrun.launch.sh" in config["data"]


def test_without_a_queue_each_rack_is_a_separate_job() -> None:
    _, jobset = documents(plan_for(nameless_plan(2, 2)))
    assert jobset["metadata"]["annotations"] == {
        "alpha.jobset.sigs.k8s.io/exclusive-topology": JOB.rack_label
    }
    assert jobset["spec"]["replicatedJobs"][0]["replicas"] == 2


def test_with_a_queue_runs_of_node_ranks_are_slices() -> None:
    _, jobset = documents(plan_for(nameless_plan(4, 4), queue="training"))
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["metadata"]["annotations"] == {
        "kueue.x-k8s.io/podset-preferred-topology": JOB.rack_label,
        "kueue.x-k8s.io/podset-slice-required-topology": JOB.rack_label,
        "kueue.x-k8s.io/podset-slice-size": "4",
    }
    assert jobset["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "training"}


def test_one_rack_is_required_and_domains_of_several_hosts_are_the_racks() -> None:
    small = plan_for(nameless_plan(4), queue="q")
    on, hosts = small.problem.cluster, small.placement.hosts
    assert pod_annotations(on, hosts, small.problem.launch.kubernetes) == {
        "kueue.x-k8s.io/podset-required-topology": JOB.rack_label
    }
    large = plan_for(nvl72_plan(4, 4, named=False), queue="q")
    notes = pod_annotations(
        large.problem.cluster, large.placement.hosts, large.problem.launch.kubernetes
    )
    assert notes["kueue.x-k8s.io/podset-slice-required-topology"] == JOB.domain_label


def test_the_slice_size_divides_every_run() -> None:
    made = nameless_plan(6, 9)
    assert hosts_per_slice(made.problem.cluster, made.placement.hosts) == 3


def test_racks_that_the_manifests_cannot_keep_together_are_reported() -> None:
    assert codes(plan_for(nameless_plan(3, 5))) == ["L27"]
    assert codes(plan_for(nameless_plan(2, 2))) == []


def test_a_pod_has_every_file_at_its_path_in_the_output_folder() -> None:
    made = plan_for(launch_plan(cluster(2), emit=("megatron",)))
    config, jobset = documents(made)
    spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    items = {item["key"]: item["path"] for item in spec["volumes"][0]["configMap"]["items"]}
    assert items.keys() == config["data"].keys()
    assert sorted(items.values()) == ["megatron/args.sh", "torchrun/hosts", "torchrun/launch.sh"]


def test_hostile_text_stays_text() -> None:
    made = with_launch(plan_for(nameless_plan(2)), program=f"{HOSTILE}.py", args=(HOSTILE,))
    config, _ = documents(made)
    done = subprocess.run(
        ["/bin/bash", "-n"], input=config["data"]["torchrun.launch.sh"], text=True, check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"image": ""}, "L24"),
        ({"shared_memory": "64 GB"}, "L25"),
        ({"namespace": "Not_A_Label"}, "L25"),
        ({"resources": (("rdma/hca", "many"),)}, "L25"),
        ({"node_selector": (("a b", "c"),)}, "L25"),
        ({"claims": (("data", "relative"),)}, "L25"),
        ({"rack_label": "bad label"}, "L25"),
        ({"requests": (("rdma/hca", "8"),)}, "L25"),
        ({"requests": (("memory", "1Ti"),), "resources": (("memory", "2Ti"), ("a/b", "1"))}, "L25"),
        ({"requests": (("cpu", "many"),)}, "L25"),
        ({"tolerations": ("gpu=a:Sometimes",)}, "L25"),
        ({"pull_secrets": ("My_Key",)}, "L25"),
        ({"host_paths": (("lib", "/lib"),)}, "L25"),
        ({"host_paths": (("/a/../b", "/lib"),)}, "L25"),
        ({"host_paths": (("/lib", "lib"),)}, "L25"),
        ({"annotations": (("kueue.x-k8s.io/podset-group-name", "a"),)}, "L25"),
        ({"annotations": (("not a key", "a"),)}, "L25"),
    ],
)
def test_values_that_the_api_server_rejects_are_rejected(
    changes: dict[str, Any], code: str
) -> None:
    assert codes(plan_for(nameless_plan(2), **changes)) == [code]


def test_names_become_dns_labels() -> None:
    assert dns_label("Llama-3.1_405B.") == "llama-3-1-405b"
    assert is_dns_label(dns_label("A" * 63))


@pytest.mark.parametrize("hosts", [2, 12])
def test_a_name_may_fill_the_names_of_pods_to_63_characters(hosts: int) -> None:
    made = plan_for(nameless_plan(hosts))
    # JobSet's names of pods: NAME-hosts-INDEX-INDEX-xxxxx.
    longest = 63 - len(f"-hosts-{hosts}-{hosts}-xxxxx")
    for name, expected in (
        ("n" * longest, []),
        ("n" * (longest + 1), ["L25"]),
        ("_", ["L25"]),
        ("8-hosts", ["L25"]),
    ):
        assert codes(replace(made, problem=replace(made.problem, name=name))) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [("completions: 2", "completions: 3"), ("JOB_INDEX * 2 ", "JOB_INDEX * 1 "), ("'8'", "'4'")],
)
def test_a_changed_jobset_is_detected(old: str, new: str) -> None:
    made = plan_for(nameless_plan(2, 2))
    (artifact,) = BACKEND.emit(made)
    for text, wrong in ((artifact.text, 0), (artifact.text.replace(old, new), 1)):
        sink = Sink()
        names = [host.name for host in made.placement.hosts]
        VERIFIER.check_launch({artifact.path: text}, JobShape(names, 8), sink)
        assert len(sink.diagnostics) == wrong


@pytest.mark.parametrize(("secret", "name"), [("", "tiny"), ("keys", "keys")])
def test_inherited_variables_come_from_a_secret(secret: str, name: str) -> None:
    made = with_launch(plan_for(nameless_plan(2, 2), secret=secret), env_inherited=("A", "B"))
    config, jobset = documents(made)
    spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    env = {one["name"]: one for one in spec["containers"][0]["env"]}
    for variable in ("A", "B"):
        reference = {"secretKeyRef": {"name": name, "key": variable}}
        assert env[variable] == {"name": variable, "valueFrom": reference}
    assert "for name in A B; do" in config["data"]["torchrun.launch.sh"]


def test_the_name_of_a_secret_must_be_a_label() -> None:
    made = plan_for(nameless_plan(2, 2), secret="A key")
    assert codes(with_launch(made, env_inherited=("A",))) == ["L25"]


@pytest.mark.parametrize(("inherited", "found"), [((), ["E13"]), (("A",), [])])
def test_a_secret_that_no_variable_is_read_from_is_reported(
    inherited: tuple[str, ...], found: list[str]
) -> None:
    made = plan_for(nameless_plan(2, 2), secret="keys")
    assert codes(with_launch(made, env_inherited=inherited)) == found


def pods_by_host(jobset: dict[str, Any]) -> dict[str, list[str]]:
    """Return name of the replicated job -> hosts to which the affinity of its pods binds them."""
    found = {}
    for job in jobset["spec"]["replicatedJobs"]:
        spec = job["template"]["spec"]
        terms = spec["template"]["spec"]["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]["nodeSelectorTerms"]
        ((expression,),) = [term["matchExpressions"] for term in terms]
        assert (expression["key"], expression["operator"]) == ("kubernetes.io/hostname", "In")
        assert len(expression["values"]) == spec["completions"] * job["replicas"]
        found[job["name"]] = expression["values"]
    return found


def rank_on(pod: dict[str, Any], host: str) -> subprocess.CompletedProcess[str]:
    """Run the command of a pod on ``host``, with env in place of the launch script."""
    (container,) = pod["containers"]
    env = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    line = container["command"][2].replace("bash /parc/", "env #")
    return subprocess.run(
        ["/bin/bash", "-c", line],
        env={**env, "NODE_NAME": host, "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_pods_are_bound_to_named_hosts_and_have_their_node_ranks() -> None:
    made = plan_for(nvl72_plan(4, 4, named=True), queue="q")
    _, jobset = documents(made)
    names = [host.name for host in made.placement.hosts]
    assert pods_by_host(jobset) == {"leader": names[:1], "hosts": names[1:]}
    assert "annotations" not in jobset["metadata"]
    for job in jobset["spec"]["replicatedJobs"]:
        pod = job["template"]["spec"]["template"]["spec"]
        env = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
        assert env["MASTER_ADDR"] == "tiny-leader-0-0.tiny"
        for rank, host in enumerate(names):
            assert f"NODE_RANK={rank}\n" in rank_on(pod, host).stdout
        stranger = rank_on(pod, "other")
        assert stranger.returncode != 0
        assert "the plan has no host other" in stranger.stderr


def test_a_host_name_that_no_node_can_have_is_rejected() -> None:
    made = nvl72_plan(4, named=True)
    hosts = tuple(replace(one, name=one.name + "x" * 70) for one in made.placement.hosts)
    long = replace(made, placement=replace(made.placement, hosts=hosts))
    assert codes(plan_for(made)) == []
    assert codes(plan_for(long)) == ["L25"]


def test_racks_of_named_hosts_need_no_queue() -> None:
    assert codes(plan_for(nvl72_plan(3, 5, named=True))) == []


def test_settings_of_pods_reach_the_manifest() -> None:
    made = plan_for(
        nameless_plan(2),
        requests=(("cpu", "96"), ("memory", "1Ti")),
        tolerations=("nvidia.com/gpu=present:NoSchedule", "team:NoExecute", "x=", "y"),
        pull_secrets=("registry",),
        run_as_user=1000,
        run_as_group=0,
    )
    assert codes(made) == []
    _, jobset = documents(made)
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "rdma/hca": "8"}
    assert container["resources"]["requests"] == {
        **container["resources"]["limits"],
        "cpu": "96",
        "memory": "1Ti",
    }
    assert pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
        {"key": "team", "operator": "Exists", "effect": "NoExecute"},
        {"key": "x", "operator": "Equal", "value": ""},
        {"key": "y", "operator": "Exists"},
    ]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["securityContext"] == {"runAsUser": 1000, "runAsGroup": 0, "fsGroup": 0}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_the_pods_mount_the_preflight_program_if_it_is_emitted() -> None:
    made = plan_for(nameless_plan(2, 2))
    emit = ("megatron", "torchrun", "kubernetes")
    without, _ = documents(replace(made, problem=replace(made.problem, emit=emit)))
    asked = replace(made, problem=replace(made.problem, emit=(*emit, "preflight")))
    config, jobset = documents(asked)
    added = config["data"].keys() - without["data"].keys()
    assert added
    assert all(key.startswith("preflight.") for key in added)
    (job,) = jobset["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    (volume,) = [one["configMap"] for one in pod["volumes"] if "configMap" in one]
    assert added <= {item["key"] for item in volume["items"]}
