"""The JobSet of a training job, with one pod per host.

The index of a pod is its node rank; if the plan names the hosts, each pod is bound to its host.
"""

from __future__ import annotations

from typing import Any

from parc.backends.kubernetes.compute_domain import claim_channel, compute_domain
from parc.backends.kubernetes.config_map import (
    MOUNT,
    config_map,
    config_map_volume,
    mounted_files,
)
from parc.backends.kubernetes.object_names import dns_label
from parc.backends.kubernetes.pod import (
    FIND_NODE_RANK,
    bind_to_hosts,
    node_variables,
    pod_metadata,
    pod_spec,
)
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
LEADER = "leader"
"""Name of the replicated job with the host of node rank 0, if the plan names the hosts."""
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
"""Label with the name of the JobSet, which its controller sets on all pods."""
JOB_INDEX = "metadata.annotations['jobset.sigs.k8s.io/job-index']"
SCRIPT = f"bash {MOUNT}/torchrun/launch.sh"


def training_objects(plan: Plan) -> list[dict[str, Any]]:
    """Return the Kubernetes objects of a training job.

    These are the ConfigMap, a ComputeDomain if the pods use NVLink between hosts, and the JobSet.
    """
    job, name = plan.problem.launch.kubernetes, dns_label(plan.problem.name)
    metadata = {"namespace": job.namespace} if job.namespace else {}
    files, config = mounted_files(plan), f"{name}-plan"
    volume = config_map_volume(config, files)
    domains = (
        [compute_domain(name, metadata, len(plan.placement.hosts))] if claims_channels(plan) else []
    )
    jobset = _build_jobset(plan, name, metadata, volume)
    return [config_map(config, metadata, files), *domains, jobset]


def claims_channels(plan: Plan) -> bool:
    """Return True if the pods of ``plan`` use NVLink between hosts, and claim IMEX channels."""
    return plan.problem.launch.kubernetes.compute_domain and len(plan.placement.hosts) > 1


def _build_jobset(
    plan: Plan, name: str, metadata: dict[str, Any], volume: dict[str, Any]
) -> dict[str, Any]:
    """Return the JobSet ``name``, whose pods mount ``volume``."""
    problem = plan.problem
    job, named = problem.launch.kubernetes, problem.cluster.named
    head: dict[str, Any] = {"name": name, **metadata}
    if job.queue:
        head["labels"] = {QUEUE: job.queue}
    jobs = _named_host_jobs(plan, name, volume) if named else _any_host_jobs(plan, name, volume)
    # Several jobs mean one job per rack; the annotation keeps them in separate racks.
    if jobs[0]["replicas"] > 1:
        head["annotations"] = {EXCLUSIVE: topology_label(problem.cluster, job)}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": head,
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": name},
            "failurePolicy": {"maxRestarts": job.max_restarts},
            "replicatedJobs": jobs,
        },
    }


def _any_host_jobs(plan: Plan, name: str, volume: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the replicated job whose pods run on any hosts.

    The node rank counts the pods of all jobs, one job after another.
    """
    problem, hosts = plan.problem, plan.placement.hosts
    job, cluster = problem.launch.kubernetes, problem.cluster
    count = replicated_job_count(cluster, hosts, job)
    each = len(hosts) // count
    start = f"NODE_RANK=$((JOB_INDEX * {each} + JOB_COMPLETION_INDEX)) exec {SCRIPT}"
    index = {"name": "JOB_INDEX", "valueFrom": {"fieldRef": {"fieldPath": JOB_INDEX}}}
    command = {
        "command": ["bash", "-c", start],
        "env": [index, *_rendezvous_variables(plan, f"{name}-{HOSTS}-0-0.{name}")],
    }
    pod = {
        **pod_metadata(job, pod_annotations(cluster, hosts, job)),
        "spec": _pod_spec(plan, name, volume, command),
    }
    return [_replicated_job(HOSTS, count, each, pod)]


def _named_host_jobs(plan: Plan, name: str, volume: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the replicated jobs whose pods are bound to the hosts of the plan.

    A pod derives its node rank from the name of its node. The host of node rank 0 has a separate
    job, so that the DNS name of the rendezvous is known in advance.
    """
    names = tuple(host.name for host in plan.placement.hosts)
    command = {
        "command": ["bash", "-c", FIND_NODE_RANK + SCRIPT],
        "env": [
            *node_variables(names),
            *_rendezvous_variables(plan, f"{name}-{LEADER}-0-0.{name}"),
        ],
    }
    spec = _pod_spec(plan, name, volume, command)
    metadata = pod_metadata(plan.problem.launch.kubernetes, {})
    return [
        _replicated_job(
            job,
            1,
            len(hosts),
            {**metadata, "spec": bind_to_hosts(spec, hosts, plan, (JOBSET_LABEL, name))},
        )
        for job, hosts in ((LEADER, names[:1]), (HOSTS, names[1:]))
        if hosts
    ]


def _pod_spec(
    plan: Plan, name: str, volume: dict[str, Any], command: dict[str, Any]
) -> dict[str, Any]:
    """Return the spec of a pod of the JobSet ``name``; see ``pod_spec``."""
    spec = pod_spec(plan.problem, plan.placement.ranks_per_node, volume, command)
    return claim_channel(spec, name) if claims_channels(plan) else spec


def _rendezvous_variables(plan: Plan, address: str) -> list[dict[str, Any]]:
    """Return the environment entries with the rendezvous address and port."""
    return [
        {"name": "MASTER_ADDR", "value": address},
        {"name": "MASTER_PORT", "value": str(plan.problem.launch.master_port)},
    ]


def _replicated_job(name: str, count: int, pods: int, pod: dict[str, Any]) -> dict[str, Any]:
    """Return the replicated job ``name``: ``count`` jobs, each of ``pods`` pods."""
    indexed = {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        # 0: a failed pod fails its job. JobSet then restarts all pods together, because a static
        # rendezvous cannot readmit a single rank.
        "backoffLimit": 0,
        "template": pod,
    }
    return {"name": name, "replicas": count, "template": {"spec": indexed}}
