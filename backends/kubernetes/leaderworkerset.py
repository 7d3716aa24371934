"""The LeaderWorkerSets of a serving job, with one group of pods per engine, and their probes.

If several engines share a host, a group is a single pod that runs all engines of that host. If the
plan names the hosts, each pod is bound to its host. Each engine of several hosts then has a
separate LeaderWorkerSet, because all groups of a LeaderWorkerSet have the same pod templates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parc.backends.kubernetes.compute_domain import claim_channel, compute_domain
from parc.backends.kubernetes.config_map import MOUNT, config_map, config_map_volume
from parc.backends.kubernetes.object_names import dns_label
from parc.backends.kubernetes.pod import (
    FIND_NODE_RANK,
    bind_to_hosts,
    merge_annotations,
    node_variables,
    pod_spec,
)
from parc.backends.kubernetes.slices import QUEUE, REQUIRED, topology_label
from parc.backends.registry import engine, serving_backend
from parc.compiler.ir import Artifact, ServingPlan

GROUP = "metadata.labels['leaderworkerset.sigs.k8s.io/group-index']"
NAME_LABEL = "app.kubernetes.io/name"
WORKER_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
TOGETHER = "kueue.x-k8s.io/podset-group-name"
PERIOD_SECONDS = 10
LIVENESS_FAILURES = 6
"""Number of consecutive failed probes after which a pod restarts. It is above Kubernetes' default
of 3, because an overloaded engine may miss some probes."""


def serving_files(plan: ServingPlan) -> tuple[Artifact, ...]:
    """Return the files that every pod mounts: the script that starts the engine."""
    return serving_backend(plan.problem.framework).emit_serving(plan)


def hosts_per_group(plan: ServingPlan) -> int:
    """Return the number of hosts per group of pods.

    A group contains all hosts of one engine, or a single host if several engines share it.
    """
    return max(1, plan.layout.engine_gpus // plan.placement.ranks_per_node)


def serving_objects(plan: ServingPlan) -> list[dict[str, Any]]:
    """Return the objects of a serving job.

    These are the ConfigMap with the script, a ComputeDomain if engines use NVLink between hosts,
    the LeaderWorkerSets and the Service.
    """
    job, name = plan.problem.launch.kubernetes, dns_label(plan.problem.name)
    metadata = {"namespace": job.namespace} if job.namespace else {}
    files, config = serving_files(plan), f"{name}-plan"
    leader, worker = _pod_specs(plan, config_map_volume(config, files))
    domains = []
    if claims_channels(plan):
        leader, worker = (claim_channel(one, name) for one in (leader, worker))
        domains = [compute_domain(name, metadata, len(plan.placement.hosts))]
    return [
        config_map(config, metadata, files),
        *domains,
        *(
            _build_leader_worker_set(plan, {"name": one, **metadata}, leader, worker, hosts)
            for one, hosts in leader_worker_sets(plan)
        ),
        _build_service(plan, name, metadata),
    ]


def claims_channels(plan: ServingPlan) -> bool:
    """Return True if the engines of ``plan`` use NVLink between hosts: pods claim IMEX channels."""
    return plan.problem.launch.kubernetes.compute_domain and hosts_per_group(plan) > 1


def leader_worker_sets(plan: ServingPlan) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (name, hosts) of each LeaderWorkerSet, whose pods are bound to these hosts.

    ``hosts`` is empty if the plan does not name the hosts.
    """
    name, size = dns_label(plan.problem.name), hosts_per_group(plan)
    hosts = tuple(host.name for host in plan.placement.hosts)
    if not plan.problem.cluster.named:
        yield name, ()
    elif size == 1:
        yield name, hosts
    else:
        for engine_index in range(len(hosts) // size):
            yield f"{name}-{engine_index}", hosts[engine_index * size : (engine_index + 1) * size]


def host_addresses(plan: ServingPlan) -> tuple[str, ...]:
    """Return an address for each node rank, through which the pods of an engine find each other.

    In group g the leader is ``NAME-g``, and worker i (from 1) is ``NAME-g-i``. If the plan names
    the hosts, the LeaderWorkerSet of engine e is ``NAME-e`` and has one group. Its workers run on
    the other hosts of the engine in any order, so only the leader has a DNS name that is known in
    advance; the address of a worker is the name of its host.
    """
    name, size = dns_label(plan.problem.name), hosts_per_group(plan)
    named = plan.problem.cluster.named
    addresses = []
    for node, host in enumerate(plan.placement.hosts):
        group, worker = divmod(node, size)
        if named and worker:
            addresses.append(host.name)
        elif named:
            addresses.append(f"{name}-{group}-0.{name}-{group}")
        else:
            addresses.append(f"{name}-{group}" + (f"-{worker}" if worker else "") + f".{name}")
    return tuple(addresses)


def server_addresses(plan: ServingPlan) -> tuple[str, ...]:
    """Return the DNS name of a pod for each node rank, which other pods of the cluster resolve.

    A pod that is bound to a host of the plan can have another node rank in its engine or, if it is
    an engine, among the engines. ``check_serving_objects`` requires that such pods run API servers
    with the same ports, so that all names together reach all servers.
    """
    name, size = dns_label(plan.problem.name), hosts_per_group(plan)
    namespace = plan.problem.launch.kubernetes.namespace
    suffix = f".{namespace}" if namespace else ""
    addresses = []
    for node in range(len(plan.placement.hosts)):
        group, worker = divmod(node, size)
        # LeaderWorkerSet creates a headless Service with its own name (subdomainPolicy Shared).
        own, index = (
            (name, group) if size == 1 or not plan.problem.cluster.named else (f"{name}-{group}", 0)
        )
        addresses.append(f"{own}-{index}" + (f"-{worker}" if worker else "") + f".{own}{suffix}")
    return tuple(addresses)


def role_ports(plan: ServingPlan) -> tuple[set[tuple[int, ...]], set[tuple[int, ...]]]:
    """Return the distinct tuples of API ports of the leader pods, and of the worker pods.

    All pods of a role have the same template, so a manifest can express only one tuple per role.
    """
    servers = engine(plan.problem.framework).api_ports(plan)
    size = hosts_per_group(plan)
    leaders: set[tuple[int, ...]] = set()
    workers: set[tuple[int, ...]] = set()
    for node in range(len(plan.placement.hosts)):
        ports = tuple(sorted(port for place, port in servers if place == node))
        (workers if node % size else leaders).add(ports)
    return leaders, workers or {()}


def _build_leader_worker_set(
    plan: ServingPlan,
    head: dict[str, Any],
    leader: dict[str, Any],
    worker: dict[str, Any],
    hosts: tuple[str, ...],
) -> dict[str, Any]:
    """Return the LeaderWorkerSet with the metadata ``head`` and the pod specs of its two roles.

    Its pods are bound to ``hosts``, the leader of several hosts to the first one.
    """
    job, size = plan.problem.launch.kubernetes, hosts_per_group(plan)
    if job.queue:
        head = {**head, "labels": {QUEUE: job.queue}}
    topology = {}
    if job.queue and size > 1 and not hosts:
        # Kueue places leader and workers of a group together in one rack or NVLink domain.
        topology = {REQUIRED: topology_label(plan.problem.cluster, job), TOGETHER: "engine"}
    template = {
        "labels": {NAME_LABEL: dns_label(plan.problem.name)},
        **merge_annotations(job, topology),
    }
    if hosts:
        first, others = (hosts, hosts) if size == 1 else (hosts[:1], hosts[1:])
        label = NAME_LABEL, dns_label(plan.problem.name)
        leader = bind_to_hosts(leader, first, plan, label)
        worker = bind_to_hosts(worker, others, plan, label)
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": head,
        "spec": {
            "replicas": 1 if hosts and size > 1 else len(plan.placement.hosts) // size,
            "startupPolicy": "LeaderCreated",
            "networkConfig": {"subdomainPolicy": "Shared"},
            "leaderWorkerTemplate": {
                "size": size,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": {"metadata": template, "spec": leader},
                "workerTemplate": {"metadata": template, "spec": worker},
            },
        },
    }


def _pod_specs(plan: ServingPlan, volume: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the specs of a leader pod and of a worker pod, which run the engine's script."""
    serving = engine(plan.problem.framework)
    script = f"bash {MOUNT}/{serving.host_script}"
    addresses = {"name": "PARC_HOSTS", "value": " ".join(host_addresses(plan))}
    if plan.problem.cluster.named:
        start = FIND_NODE_RANK + script
        names = tuple(host.name for host in plan.placement.hosts)
        # The script contains the names of the hosts; engines of one host need no addresses.
        env = [*node_variables(names), *([addresses] if hosts_per_group(plan) > 1 else [])]
    else:
        rank = f"GROUP_INDEX * {hosts_per_group(plan)} + LWS_WORKER_INDEX"
        start = f"NODE_RANK=$(({rank})) exec {script}"
        index = {"name": "GROUP_INDEX", "valueFrom": {"fieldRef": {"fieldPath": GROUP}}}
        env = [index, addresses]
    command = {"command": ["bash", "-c", start], "env": env}
    minutes = plan.problem.launch.kubernetes.startup_minutes
    leader, worker = (
        pod_spec(
            plan.problem,
            plan.placement.ranks_per_node,
            volume,
            command | server_settings(min(ports), serving.health_path, minutes),
        )
        for ports in role_ports(plan)
    )
    # LeaderWorkerSet creates its pods through StatefulSets, which allow only Always.
    always = {"restartPolicy": "Always"}
    return {**leader, **always}, {**worker, **always}


def _build_service(plan: ServingPlan, name: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the Service that sends requests to the API servers.

    Its selector matches the leaders, and also the workers if these run API servers. Clients share
    their requests between its ports if a pod runs several API servers.
    """
    leaders, workers = role_ports(plan)
    selector = {NAME_LABEL: name} | ({} if min(workers) else {WORKER_LABEL: "0"})
    ports = min(leaders)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{name}-api", **metadata},
        "spec": {
            "selector": selector,
            "ports": [
                {"name": port_name(port, ports), "port": port, "targetPort": port} for port in ports
            ],
        },
    }


def port_name(port: int, ports: tuple[int, ...]) -> str:
    """Return the name of ``port``, which is one of the ports of a pod."""
    return "api" if len(ports) == 1 else f"api-{port}"


def server_settings(ports: tuple[int, ...], path: str, startup_minutes: int) -> dict[str, Any]:
    """Return the ports and probes of a container; an empty dict without API servers.

    Each probe succeeds if all API servers respond with status 200 at ``path``.
    """
    if not ports:
        return {}
    probe = {**_probe(ports, path), "periodSeconds": PERIOD_SECONDS, "timeoutSeconds": 10}
    attempts = startup_minutes * 60 // PERIOD_SECONDS
    return {
        "ports": [{"containerPort": port, "name": port_name(port, ports)} for port in ports],
        "startupProbe": {**probe, "failureThreshold": attempts},
        "livenessProbe": {**probe, "failureThreshold": LIVENESS_FAILURES},
        "readinessProbe": probe,
    }


def _probe(ports: tuple[int, ...], path: str) -> dict[str, Any]:
    """Return the request of a probe.

    An HTTP probe of Kubernetes checks one port, so a Bash command checks several ports.
    """
    if len(ports) == 1:
        return {"httpGet": {"path": path, "port": ports[0]}}
    script = (
        f"for port in {' '.join(map(str, ports))}; do exec 3<>/dev/tcp/127.0.0.1/$port && "
        f"printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && "
        "[[ $status == 200 ]] || exit 1; done"
    )
    return {"exec": {"command": ["bash", "-c", script]}}
