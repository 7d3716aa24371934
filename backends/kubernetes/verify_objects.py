"""Objects of the manifests: settings that the plan decides, and the objects that they imply.

Sources: API references of JobSet v1alpha2, LeaderWorkerSet v1 and Kueue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parc.backends.kubernetes.verify_pods import (
    KUBERNETES,
    MOUNT,
    PodSettings,
    expected_pod,
    read_pod,
    read_pod_settings,
    secret_variables,
)
from parc.backends.kubernetes.verify_racks import (
    TOPOLOGY,
    job_count,
    slice_annotations,
    topology_label,
    topology_path,
)
from parc.backends.kubernetes.verify_yaml import Path, YamlDocument, positive_integer_or_zero
from parc.backends.verifier import DerivedSetting

QUEUE = "kueue.x-k8s.io/queue-name"
LWS = "leaderworkerset.sigs.k8s.io"
JOB_POD: Path = ("spec", "replicatedJobs", 0, "template", "spec", "template", "spec")
TEMPLATE: Path = ("spec", "leaderWorkerTemplate")
LEADER: Path = (*TEMPLATE, "leaderTemplate", "spec")
INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The documents of a manifest, and the plan that it belongs to."""

    file: str
    documents: Sequence[YamlDocument]
    plan: Mapping[str, Any]

    @property
    def problem(self) -> Mapping[str, Any]:
        """Section ``problem`` of the plan."""
        return dict(self.plan["problem"])

    @property
    def job(self) -> YamlDocument:
        """The JobSet or the LeaderWorkerSet."""
        return self.documents[1]

    @property
    def name(self) -> str:
        """DNS label of the plan's name: letters in lower case, digits, and dashes."""
        return re.sub(r"[^a-z0-9]+", "-", self.problem["name"].lower()).strip("-")

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata that all objects have besides a name: the namespace, if the spec sets one."""
        namespace = self.problem["launch"]["kubernetes"]["namespace"]
        return {"namespace": namespace} if namespace else {}

    def pod_settings(self, spec: Path) -> PodSettings:
        """Return the settings of the pod whose spec is at ``spec`` in the job."""
        vendor = self.problem["cluster"]["gpu"]["vendor"]
        return read_pod(self.job, spec, self.problem["launch"]["kubernetes"], vendor)

    def job_metadata(self, annotations: Mapping[str, str]) -> dict[str, Any]:
        """Return the metadata of the job: name, namespace, queue and ``annotations``."""
        queue = self.problem["launch"]["kubernetes"]["queue"]
        return {
            "name": self.name,
            **self.metadata,
            **({"labels": {QUEUE: queue}} if queue else {}),
            **({"annotations": dict(annotations)} if annotations else {}),
        }

    def config_map(self, files: Sequence[str]) -> dict[str, Any]:
        """Return the ConfigMap that contains ``files``, with the texts of the manifest.

        The texts are compared elsewhere.
        """
        texts = self.documents[0].value_at("data")
        keys = [path.replace("/", ".") for path in files]
        found = texts if isinstance(texts, dict) else {}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{self.name}-plan", **self.metadata},
            "data": {key: found.get(key) for key in keys},
        }


def read_shared_settings(manifest: Manifest, spec: Path) -> Iterator[DerivedSetting]:
    """Yield the settings that every job contains: those of the pod, the namespace and the queue.

    ``spec`` is the path of the pod's spec in the job.
    """
    job, file = manifest.job, manifest.file
    pod = manifest.pod_settings(spec)
    yield from read_pod_settings(file, job, spec, pod)
    line = job.line(*spec, "containers", 0, "env")
    yield DerivedSetting("problem.launch.env_inherited", list(pod.inherited), file, line)
    # An empty name in the plan stands for the name of the run.
    default = pod.secret in (None, manifest.name)
    secret = frozenset({"", manifest.name}) if default else pod.secret
    if pod.inherited:
        yield DerivedSetting(f"{KUBERNETES}.secret", secret, file, line)
    namespace = job.value_at("metadata", "namespace") or ""
    yield DerivedSetting(
        f"{KUBERNETES}.namespace", namespace, file, job.line("metadata", "namespace")
    )
    queue = job.value_at("metadata", "labels", QUEUE) or ""
    yield DerivedSetting(f"{KUBERNETES}.queue", queue, file, job.line("metadata", "labels"))


def read_job_set_settings(manifest: Manifest) -> Iterator[DerivedSetting]:
    """Yield the settings of the plan that the JobSet of a training job contains."""
    job, file = manifest.job, manifest.file
    yield from read_shared_settings(manifest, JOB_POD)
    restarts: Path = ("spec", "failurePolicy", "maxRestarts")
    yield DerivedSetting(
        f"{KUBERNETES}.max_restarts", job.value_at(*restarts), file, job.line(*restarts)
    )
    jobs: Path = ("spec", "replicatedJobs", 0)
    pods = positive_integer_or_zero(job.value_at(*jobs, "replicas")) * positive_integer_or_zero(
        job.value_at(*jobs, "template", "spec", "completions")
    )
    gpus = manifest.pod_settings(JOB_POD).gpus
    world = pods * int(gpus) if isinstance(gpus, str) and gpus.isdecimal() else 0
    yield DerivedSetting("layout.world", world, file, job.line(*jobs, "replicas"), f"{pods} pods")
    env: Path = (*JOB_POD, "containers", 0, "env", 2, "value")
    port = job.value_at(*env)
    number = int(port) if isinstance(port, str) and re.fullmatch(r"[0-9]{1,5}", port) else port
    yield DerivedSetting("problem.launch.master_port", number, file, job.line(*env))
    yield from _read_topology_settings(manifest, slice_annotations(manifest.plan), (*JOB_POD[:-1],))


def _read_topology_settings(
    manifest: Manifest, annotations: Mapping[str, str], template: Path
) -> Iterator[DerivedSetting]:
    """Yield the node label that keeps pods together; nothing if ``annotations`` contain no label.

    Args:
        manifest: manifest that contains the annotations.
        annotations: annotations that the pods need.
        template: path of the pod template in the job.
    """
    key = next((key for key in annotations if key.endswith("topology")), None)
    if key is not None:
        at: Path = (*template, "metadata", "annotations", key)
        job = manifest.job
        yield DerivedSetting(
            topology_path(manifest.problem), job.value_at(*at), manifest.file, job.line(*at)
        )


def expected_training_objects(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the ConfigMap and the JobSet that PARC emits for the settings in the manifest."""
    plan, job = manifest.plan, manifest.job
    pod = manifest.pod_settings(JOB_POD)
    count = job_count(plan)
    each = len(plan["placement"]["hosts"]) // count
    line = f"NODE_RANK=$((JOB_INDEX * {each} + JOB_COMPLETION_INDEX))"
    index = "metadata.annotations['jobset.sigs.k8s.io/job-index']"
    name = manifest.name
    container = {
        "command": ["bash", "-c", f"{line} exec bash {MOUNT}/torchrun/launch.sh"],
        "env": [
            {"name": "JOB_INDEX", "valueFrom": {"fieldRef": {"fieldPath": index}}},
            {"name": "MASTER_ADDR", "value": f"{name}-hosts-0-0.{name}"},
            {
                "name": "MASTER_PORT",
                "value": job.value_at(*JOB_POD, "containers", 0, "env", 2, "value"),
            },
            *secret_variables(pod),
        ],
    }
    notes = slice_annotations(plan)
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": topology_label(manifest.problem)}
    indexed = {
        "completionMode": "Indexed",
        "completions": each,
        "parallelism": each,
        "backoffLimit": 0,
        "template": {
            **({"metadata": {"annotations": notes}} if notes else {}),
            "spec": expected_pod(pod, f"{name}-plan", "Never", container),
        },
    }
    restarts = job.value_at("spec", "failurePolicy", "maxRestarts")
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": manifest.job_metadata(exclusive if count > 1 else {}),
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": name},
            "failurePolicy": {"maxRestarts": restarts},
            "replicatedJobs": [{"name": "hosts", "replicas": count, "template": {"spec": indexed}}],
        },
    }
    return [manifest.config_map(pod.files), job_set]


def read_serving_settings(manifest: Manifest) -> Iterator[DerivedSetting]:
    """Yield the settings of the plan that the LeaderWorkerSet of a serving job contains."""
    job, file = manifest.job, manifest.file
    yield from read_shared_settings(manifest, LEADER)
    pods = positive_integer_or_zero(job.value_at("spec", "replicas")) * positive_integer_or_zero(
        job.value_at(*TEMPLATE, "size")
    )
    gpus = manifest.pod_settings(LEADER).gpus
    total = pods * int(gpus) if isinstance(gpus, str) and gpus.isdecimal() else 0
    yield DerivedSetting("layout.gpus", total, file, job.line("spec", "replicas"), f"{pods} pods")
    port: Path = (*LEADER, "containers", 0, "ports", 0, "containerPort")
    yield DerivedSetting("problem.endpoint.port", job.value_at(*port), file, job.line(*port))
    yield from _read_topology_settings(manifest, _group_annotations(manifest), LEADER[:-1])


def _group_size(plan: Mapping[str, Any]) -> int:
    """Return the number of pods per group: the hosts of an engine, or 1 if engines share a host."""
    return max(1, int(plan["layout"]["engine_gpus"]) // int(plan["placement"]["ranks_per_node"]))


def _group_annotations(manifest: Manifest) -> dict[str, str]:
    """Return the annotations with which Kueue puts the pods of a group into one rack."""
    queue = manifest.problem["launch"]["kubernetes"]["queue"]
    if not queue or _group_size(manifest.plan) == 1:
        return {}
    label = topology_label(manifest.problem)
    return {f"{TOPOLOGY}-required-topology": label, f"{TOPOLOGY}-group-name": "engine"}


def expected_serving_objects(
    manifest: Manifest, script: str, health_path: str
) -> list[dict[str, Any]]:
    """Return the objects that PARC emits for the settings in the manifest.

    The objects are the ConfigMap, the LeaderWorkerSet and the Service. ``script`` is the path of
    the script that starts the processes of a host. ``health_path`` is the URL path that responds
    once an engine is ready.
    """
    plan, job, name = manifest.plan, manifest.job, manifest.name
    size, nodes, pod = (
        _group_size(plan),
        len(plan["placement"]["hosts"]),
        manifest.pod_settings(LEADER),
    )
    port = job.value_at(*LEADER, "containers", 0, "ports", 0, "containerPort")
    notes = _group_annotations(manifest)
    template = {
        "labels": {"app.kubernetes.io/name": name},
        **({"annotations": notes} if notes else {}),
    }
    rank = f"NODE_RANK=$((GROUP_INDEX * {size} + LWS_WORKER_INDEX))"
    index = {"fieldRef": {"fieldPath": f"metadata.labels['{LWS}/group-index']"}}
    container = {
        "command": ["bash", "-c", f"{rank} exec bash {MOUNT}/{script}"],
        "env": [
            {"name": "GROUP_INDEX", "valueFrom": index},
            {"name": "PARC_HOSTS", "value": " ".join(_pod_names(name, nodes, size))},
            *secret_variables(pod),
        ],
        "ports": [{"containerPort": port, "name": "api"}],
    }
    ready = {"httpGet": {"path": health_path, "port": port}, "periodSeconds": 10}
    leader, worker = (
        {"metadata": template, "spec": expected_pod(pod, f"{name}-plan", "Always", one)}
        for one in ({**container, "readinessProbe": ready}, container)
    )
    groups = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": manifest.job_metadata({}),
        "spec": {
            "replicas": nodes // size,
            "startupPolicy": "LeaderCreated",
            "networkConfig": {"subdomainPolicy": "Shared"},
            "leaderWorkerTemplate": {
                "size": size,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": leader,
                "workerTemplate": worker,
            },
        },
    }
    return [manifest.config_map(pod.files), groups, _expected_service(manifest, port)]


def _pod_names(name: str, nodes: int, size: int) -> Iterator[str]:
    """Yield the DNS name of each pod by node rank; a leader has no worker index in its name."""
    for node in range(nodes):
        group, worker = divmod(node, size)
        yield f"{name}-{group}-{worker}.{name}" if worker else f"{name}-{group}.{name}"


def _expected_service(manifest: Manifest, port: Any) -> dict[str, Any]:
    # With internal load balancing, only the leader of a group runs an API server.
    internal = manifest.problem["endpoint"]["load_balancer"] == INTERNAL
    leaders = {f"{LWS}/worker-index": "0"} if internal else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{manifest.name}-api", **manifest.metadata},
        "spec": {
            "selector": {f"{LWS}/name": manifest.name, **leaders},
            "ports": [{"name": "api", "port": port, "targetPort": port}],
        },
    }


def pods_reached_by_service(service: YamlDocument, size: int, nodes: int, name: str) -> set[int]:
    """Return the node ranks of the pods that the selector of the Service matches."""
    selector = service.value_at("spec", "selector")
    found = set()
    for node in range(nodes):
        labels = {
            f"{LWS}/name": name,
            f"{LWS}/worker-index": str(node % size),
            f"{LWS}/group-index": str(node // size),
            "app.kubernetes.io/name": name,
        }
        if isinstance(selector, dict) and selector.items() <= labels.items():
            found.add(node)
    return found
