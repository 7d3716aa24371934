"""The spec of a pod that runs on one host: container, resources, volumes and permitted nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parc.backends.kubernetes.config_map import MOUNT
from parc.backends.kubernetes.object_names import dns_label, toleration
from parc.compiler.ir import KubernetesJob, Plan, ServingPlan, Task

GPU_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""Resource names that the device plugins of the vendors register."""
HOSTNAME = "kubernetes.io/hostname"
"""Label with the name of a node, which every kubelet sets."""
SCHEDULING = "requiredDuringSchedulingIgnoredDuringExecution"
FIND_NODE_RANK = (
    "rank=0; for name in $NODE_NAMES; do "
    '[[ $name != "$NODE_NAME" ]] || export NODE_RANK=$rank; rank=$((rank + 1)); done; '
    ': "${NODE_RANK:?the plan has no host $NODE_NAME}"; exec '
)
"""Bash commands that set the node rank of a pod whose plan names the hosts."""


def node_variables(hosts: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the environment entries that ``FIND_NODE_RANK`` reads.

    They are the name of the node that runs the pod, and the names of all hosts by node rank.
    """
    own = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    return [
        {"name": "NODE_NAME", "valueFrom": own},
        {"name": "NODE_NAMES", "value": " ".join(hosts)},
    ]


def pod_spec(
    task: Task, gpus: int, plan_volume: dict[str, Any], command: dict[str, Any]
) -> dict[str, Any]:
    """Return the spec of a pod that requests ``gpus`` GPUs.

    ``command`` contains the command, environment, ports and probes of the container.
    ``plan_volume`` is the volume with the files of the plan.
    """
    job = task.launch.kubernetes
    limits = {
        job.gpu_resource or GPU_RESOURCES[task.cluster.gpu.vendor]: str(gpus),
        **dict(job.resources),
    }
    memory = {"medium": "Memory", "sizeLimit": job.shared_memory}
    volumes = _user_volumes(job)
    container = {
        "name": "ranks",
        "image": job.image,
        **command,
        "env": [*command["env"], *_inherited_variables(task)],
        "resources": {"limits": limits, "requests": {**limits, **dict(job.requests)}},
        "securityContext": {
            # The API server rejects privileged containers that may not escalate privileges.
            **({"privileged": True} if job.privileged else {"allowPrivilegeEscalation": False}),
            # RDMA registers (pins) memory, which needs IPC_LOCK.
            "capabilities": {"add": ["IPC_LOCK"]},
        },
        "volumeMounts": [
            {"name": "plan", "mountPath": MOUNT},
            # The container default of 64 MiB is too small for the shared-memory transport of NCCL
            # and for data loaders.
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            *({"name": name, "mountPath": path} for name, path, _ in volumes),
        ],
    }
    return {
        "restartPolicy": "Never",
        # Time to save a checkpoint, the same as before Slurm's time limit.
        "terminationGracePeriodSeconds": task.launch.slurm.signal_seconds,
        **_pod_settings(job),
        "containers": [container],
        "volumes": [
            plan_volume,
            {"name": "shared-memory", "emptyDir": memory},
            *({"name": name, **source} for name, _, source in volumes),
        ],
    }


def _user_volumes(job: KubernetesJob) -> list[tuple[str, str, dict[str, Any]]]:
    """Return (name, path in the container, source) of the volumes that the spec adds to a pod."""
    claims = [
        (f"claim-{place}", path, {"persistentVolumeClaim": {"claimName": claim}})
        for place, (claim, path) in enumerate(job.claims)
    ]
    # Without type Directory, kubelet would not report that the node has no such folder.
    folders = [
        (f"host-{place}", path, {"hostPath": {"path": folder, "type": "Directory"}})
        for place, (folder, path) in enumerate(job.host_paths)
    ]
    return [*claims, *folders]


def pod_metadata(job: KubernetesJob, annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return the key ``metadata`` of a pod template; an empty dictionary without annotations.

    The pods have ``annotations`` and the annotations that the user sets.
    """
    found = merge_annotations(job, annotations)
    return {"metadata": found} if found else {}


def merge_annotations(job: KubernetesJob, annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return the key ``annotations`` of an object's metadata; empty without annotations.

    An annotation of the user takes precedence over the same key in ``annotations``.
    """
    every = {**annotations, **dict(job.annotations)}
    return {"annotations": every} if every else {}


def bind_to_hosts(
    spec: dict[str, Any], hosts: tuple[str, ...], plan: Plan | ServingPlan, label: tuple[str, str]
) -> dict[str, Any]:
    """Return the pod spec ``spec`` with the requirement that the pod runs on one of ``hosts``.

    Pods with more than half of the GPUs of a host cannot share one. Others must not run with
    another pod that has ``label``, because both would have the node rank of their host.
    """
    expression = {"key": HOSTNAME, "operator": "In", "values": list(hosts)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity: dict[str, Any] = {"nodeAffinity": {SCHEDULING: required}}
    if len(hosts) > 1 and 2 * plan.placement.ranks_per_node <= plan.problem.cluster.node.gpus:
        other = {"labelSelector": {"matchLabels": dict([label])}, "topologyKey": HOSTNAME}
        affinity["podAntiAffinity"] = {SCHEDULING: [other]}
    return {**spec, "affinity": affinity}


def _pod_settings(job: KubernetesJob) -> dict[str, Any]:
    """Return the keys of a pod spec that belong to the pod, not to its container."""
    spec: dict[str, Any] = {}
    if job.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if job.node_selector:
        spec["nodeSelector"] = dict(job.node_selector)
    if job.tolerations:
        spec["tolerations"] = [toleration(taint) for taint in job.tolerations]
    if job.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in job.pull_secrets]
    user, group = job.run_as_user, job.run_as_group
    context = {} if user is None else {"runAsUser": user}
    # Without fsGroup, the processes may be unable to write to a mounted claim.
    context |= {} if group is None else {"runAsGroup": group, "fsGroup": group}
    return spec | ({"securityContext": context} if context else {})


def _inherited_variables(task: Task) -> list[dict[str, Any]]:
    """Return the environment entries of a container whose values come from a Secret.

    These are the variables that ``launch.env`` takes from the environment (``from: environment``).
    """
    secret = task.launch.kubernetes.secret or dns_label(task.name)
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}}
        for name in task.launch.env_inherited
    ]
