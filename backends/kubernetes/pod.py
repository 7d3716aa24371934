"""The spec of a pod that runs on one host: container, resources, volumes and node selector."""

from __future__ import annotations

from typing import Any

from parc.backends.kubernetes.config_map import MOUNT, config_map_volume
from parc.backends.kubernetes.object_names import dns_label
from parc.compiler.ir import Artifact, Task

GPU_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""Resource names that the device plugins of the vendors register."""


def pod_spec(
    task: Task, gpus: int, files: tuple[Artifact, ...], config: str, command: dict[str, Any]
) -> dict[str, Any]:
    """Return the spec of a pod that requests ``gpus`` GPUs.

    ``command`` contains the command and the environment of the container. The pod mounts ``files``
    from the ConfigMap named ``config``.
    """
    job = task.launch.kubernetes
    limits = {
        job.gpu_resource or GPU_RESOURCES[task.cluster.gpu.vendor]: str(gpus),
        **dict(job.resources),
    }
    memory = {"medium": "Memory", "sizeLimit": job.shared_memory}
    claims = [f"claim-{place}" for place in range(len(job.claims))]
    container = {
        "name": "ranks",
        "image": job.image,
        **command,
        "env": [*command["env"], *_inherited_variables(task)],
        "resources": {"limits": limits, "requests": dict(limits)},
        # RDMA registers (pins) memory, which needs IPC_LOCK.
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": [
            {"name": "plan", "mountPath": MOUNT},
            # The container default of 64 MiB is too small for the shared-memory transport of NCCL
            # and for data loaders.
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            *(
                {"name": name, "mountPath": path}
                for name, (_, path) in zip(claims, job.claims, strict=True)
            ),
        ],
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        # Time to save a checkpoint, the same as before Slurm's time limit.
        "terminationGracePeriodSeconds": task.launch.slurm.signal_seconds,
    }
    if job.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if job.node_selector:
        spec["nodeSelector"] = dict(job.node_selector)
    spec["containers"] = [container]
    spec["volumes"] = [
        config_map_volume(config, files),
        {"name": "shared-memory", "emptyDir": memory},
        *(
            {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            for name, (claim, _) in zip(claims, job.claims, strict=True)
        ),
    ]
    return spec


def _inherited_variables(task: Task) -> list[dict[str, Any]]:
    """Return the environment entries of a container whose values come from a Secret.

    These are the variables that ``launch.env`` takes from the environment (``from: environment``).
    """
    secret = task.launch.kubernetes.secret or dns_label(task.name)
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}}
        for name in task.launch.env_inherited
    ]
