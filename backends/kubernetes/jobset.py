"""The JobSet of a training job, with one pod per host; the index of a pod is its node rank."""

from __future__ import annotations

from typing import Any

from parc.backends.kubernetes.config_map import MOUNT, config_map, mounted_files
from parc.backends.kubernetes.object_names import dns_label
from parc.backends.kubernetes.pod import pod_spec
from parc.backends.kubernetes.slices import (
    EXCLUSIVE,
    QUEUE,
    pod_annotations,
    replicated_job_count,
    topology_label,
)
from parc.compiler.ir import Plan

HOSTS = "hosts"
"""Name of the replicated job."""
JOB_INDEX = "metadata.annotations['jobset.sigs.k8s.io/job-index']"


def training_objects(plan: Plan) -> list[dict[str, Any]]:
    """Return the Kubernetes objects of a training job: the ConfigMap, then the JobSet."""
    job, name = plan.problem.launch.kubernetes, dns_label(plan.problem.name)
    metadata = {"namespace": job.namespace} if job.namespace else {}
    files, config = mounted_files(plan), f"{name}-plan"
    return [config_map(config, metadata, files), _build_jobset(plan, name, metadata, config)]


def _build_jobset(plan: Plan, name: str, metadata: dict[str, Any], config: str) -> dict[str, Any]:
    """Return the JobSet ``name``, whose pods mount the ConfigMap ``config``."""
    problem, hosts = plan.problem, plan.placement.hosts
    job, cluster = problem.launch.kubernetes, problem.cluster
    count = replicated_job_count(cluster, hosts, job)
    head: dict[str, Any] = {"name": name, **metadata}
    if job.queue:
        head["labels"] = {QUEUE: job.queue}
    # Several jobs mean one job per rack; the annotation keeps them in separate racks.
    if count > 1:
        head["annotations"] = {EXCLUSIVE: topology_label(cluster, job)}
    each = len(hosts) // count
    template = pod_spec(
        problem,
        plan.placement.ranks_per_node,
        mounted_files(plan),
        config,
        _container_command(plan, name, each),
    )
    pod: dict[str, Any] = {"spec": template}
    if notes := pod_annotations(cluster, hosts, job):
        pod = {"metadata": {"annotations": notes}, **pod}
    indexed = {
        "completionMode": "Indexed",
        "completions": each,
        "parallelism": each,
        # 0: a failed pod fails its job. JobSet then restarts all pods together, because a static
        # rendezvous cannot readmit a single rank.
        "backoffLimit": 0,
        "template": pod,
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": head,
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": name},
            "failurePolicy": {"maxRestarts": job.max_restarts},
            "replicatedJobs": [
                {"name": HOSTS, "replicas": count, "template": {"spec": indexed}},
            ],
        },
    }


def _container_command(plan: Plan, name: str, hosts_per_job: int) -> dict[str, Any]:
    """Return the keys ``command`` and ``env`` of the container in every pod.

    The node rank counts the pods of all jobs, one job after another.
    """
    start = f"NODE_RANK=$((JOB_INDEX * {hosts_per_job} + JOB_COMPLETION_INDEX))"
    line = f"{start} exec bash {MOUNT}/torchrun/launch.sh"
    port = plan.problem.launch.master_port
    return {
        "command": ["bash", "-c", line],
        "env": [
            {"name": "JOB_INDEX", "valueFrom": {"fieldRef": {"fieldPath": JOB_INDEX}}},
            {"name": "MASTER_ADDR", "value": f"{name}-{HOSTS}-0-0.{name}"},
            {"name": "MASTER_PORT", "value": str(port)},
        ],
    }
