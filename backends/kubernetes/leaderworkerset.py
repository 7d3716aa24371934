"""The LeaderWorkerSet of a serving job, with one group of pods per engine.

If several engines share a host, a group is a single pod that runs all engines of that host.
"""

from __future__ import annotations

from typing import Any

from parc.backends.kubernetes.config_map import MOUNT, config_map
from parc.backends.kubernetes.object_names import dns_label
from parc.backends.kubernetes.pod import pod_spec
from parc.backends.kubernetes.slices import QUEUE, REQUIRED, topology_label
from parc.backends.registry import engine, serving_backend
from parc.compiler.ir import Artifact, ServingPlan

GROUP = "metadata.labels['leaderworkerset.sigs.k8s.io/group-index']"
NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"
WORKER_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
TOGETHER = "kueue.x-k8s.io/podset-group-name"
HEALTH_SECONDS = 10


def serving_files(plan: ServingPlan) -> tuple[Artifact, ...]:
    """Return the files that every pod mounts: the script that starts the engine."""
    return serving_backend(plan.problem.framework).emit_serving(plan)


def hosts_per_group(plan: ServingPlan) -> int:
    """Return the number of hosts per group of the LeaderWorkerSet.

    A group contains all hosts of one engine, or a single host if several engines share it.
    """
    return max(1, plan.layout.engine_gpus // plan.placement.ranks_per_node)


def serving_objects(plan: ServingPlan) -> list[dict[str, Any]]:
    """Return the ConfigMap with the script, the LeaderWorkerSet and the Service."""
    job, name = plan.problem.launch.kubernetes, dns_label(plan.problem.name)
    metadata = {"namespace": job.namespace} if job.namespace else {}
    config = f"{name}-plan"
    return [
        config_map(config, metadata, serving_files(plan)),
        _build_leader_worker_set(plan, name, metadata, config),
        _build_service(plan, name, metadata),
    ]


def pod_names(plan: ServingPlan) -> tuple[str, ...]:
    """Return the DNS names of all pods, in the order of node ranks.

    In group g the leader is ``NAME-g``, and worker i (from 1) is ``NAME-g-i``.
    """
    name, size = dns_label(plan.problem.name), hosts_per_group(plan)
    return tuple(
        f"{name}-{node // size}" + (f"-{node % size}" if node % size else "") + f".{name}"
        for node in range(len(plan.placement.hosts))
    )


def _build_leader_worker_set(
    plan: ServingPlan, name: str, metadata: dict[str, Any], config: str
) -> dict[str, Any]:
    """Return the LeaderWorkerSet ``name``, whose pods mount the ConfigMap ``config``."""
    job, size = plan.problem.launch.kubernetes, hosts_per_group(plan)
    head: dict[str, Any] = {"name": name, **metadata}
    if job.queue:
        head["labels"] = {QUEUE: job.queue}
    template: dict[str, Any] = {"labels": {"app.kubernetes.io/name": name}}
    if job.queue and size > 1:
        # Kueue places leader and workers of a group together in one rack or NVLink domain.
        template["annotations"] = {
            REQUIRED: topology_label(plan.problem.cluster, job),
            TOGETHER: "engine",
        }
    spec = _worker_pod_spec(plan, config)
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": head,
        "spec": {
            "replicas": len(plan.placement.hosts) // size,
            "startupPolicy": "LeaderCreated",
            "networkConfig": {"subdomainPolicy": "Shared"},
            "leaderWorkerTemplate": {
                "size": size,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": {"metadata": template, "spec": _leader_pod_spec(plan, spec)},
                "workerTemplate": {"metadata": template, "spec": spec},
            },
        },
    }


def _worker_pod_spec(plan: ServingPlan, config: str) -> dict[str, Any]:
    """Return the spec of a worker pod, which runs the engine's script.

    The environment of the pod contains its node rank and the names of all pods.
    """
    rank = f"NODE_RANK=$((GROUP_INDEX * {hosts_per_group(plan)} + LWS_WORKER_INDEX))"
    script = engine(plan.problem.framework).host_script
    command = {
        "command": ["bash", "-c", f"{rank} exec bash {MOUNT}/{script}"],
        "env": [
            {"name": "GROUP_INDEX", "valueFrom": {"fieldRef": {"fieldPath": GROUP}}},
            {"name": "PARC_HOSTS", "value": " ".join(pod_names(plan))},
        ],
        "ports": [{"containerPort": plan.problem.endpoint.port, "name": "api"}],
    }
    files = serving_files(plan)
    spec = pod_spec(plan.problem, plan.placement.ranks_per_node, files, config, command)
    # LeaderWorkerSet creates its pods through StatefulSets, which allow only Always.
    return {**spec, "restartPolicy": "Always"}


def _leader_pod_spec(plan: ServingPlan, spec: dict[str, Any]) -> dict[str, Any]:
    """Return ``spec`` with a readiness probe, which sends requests to the leader's API server."""
    (container,) = spec["containers"]
    path = engine(plan.problem.framework).health_path
    request = {"httpGet": {"path": path, "port": plan.problem.endpoint.port}}
    probe = {"readinessProbe": {**request, "periodSeconds": HEALTH_SECONDS}}
    return {**spec, "containers": [{**container, **probe}]}


def _build_service(plan: ServingPlan, name: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the Service that sends requests to the API servers.

    With the engine's internal load balancer only the leaders run an API server; with any other load
    balancer every pod does.
    """
    selector = {NAME_LABEL: name}
    if plan.problem.endpoint.load_balancer == "internal":
        selector[WORKER_LABEL] = "0"
    port = plan.problem.endpoint.port
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{name}-api", **metadata},
        "spec": {
            "selector": selector,
            "ports": [{"name": "api", "port": port, "targetPort": port}],
        },
    }
