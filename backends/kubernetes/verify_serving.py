"""Verifier of the manifest of a service.

It reads the settings that the manifest expresses, derives the objects that PARC emits for them, and
checks that the Service reaches all API servers.

Sources: API reference of LeaderWorkerSet v1; Kubernetes API reference, Container and Service.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from parc.backends.kubernetes.verify_objects import (
    FIND_RANK,
    TOPOLOGY,
    Manifest,
    host_variables,
    read_claims,
    read_shared_settings,
    read_topology_settings,
    topology_label,
)
from parc.backends.kubernetes.verify_pods import (
    KUBERNETES,
    MOUNT,
    expected_metadata,
    expected_pod,
    kept_apart,
    line_of_gpus,
    secret_variables,
)
from parc.backends.kubernetes.verify_yaml import Path, YamlDocument, positive_integer_or_zero
from parc.backends.verifier import DerivedSetting
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir.frozen import frozen

LWS = "leaderworkerset.sigs.k8s.io"
APP = "app.kubernetes.io/name"
TEMPLATE: Path = ("spec", "leaderWorkerTemplate")
LEADER: Path = (*TEMPLATE, "leaderTemplate", "spec")
WORKER: Path = (*TEMPLATE, "workerTemplate", "spec")
Ports = tuple[int, ...]
MOST_PODS = 100_000
"""Largest number of pods that are listed, so that a damaged manifest cannot exhaust memory."""


@frozen
class Servers:
    """API servers of the plan, the script that starts them, and the path that probes request."""

    script: str
    """Path of the script that starts the processes of a host."""
    health_path: str
    """URL path that responds once an engine is ready."""
    places: tuple[tuple[int, int], ...]
    """(node rank, port) of each API server."""

    def ports(self, node: int) -> Ports:
        """Return the ports of the API servers on the host with node rank ``node``."""
        return tuple(sorted(port for place, port in self.places if place == node))


def pods_per_group(plan: Mapping[str, Any]) -> int:
    """Return the number of pods per group: the hosts of an engine, or 1 if engines share a host."""
    return max(1, int(plan["layout"]["engine_gpus"]) // int(plan["placement"]["ranks_per_node"]))


def group_documents(documents: Sequence[YamlDocument]) -> Sequence[YamlDocument]:
    """Return the LeaderWorkerSets among the objects of a manifest."""
    return [one for one in documents if one.value_at("kind") == "LeaderWorkerSet"]


def read_serving_settings(manifest: Manifest) -> Iterator[DerivedSetting]:
    """Yield the settings of the plan that the LeaderWorkerSets of a serving job contain."""
    job, file = manifest.job, manifest.file
    yield from read_shared_settings(manifest, LEADER)
    yield from read_claims(manifest, LEADER, pods_per_group(manifest.plan))
    pods = sum(number_of_pods(one) for one in group_documents(manifest.documents))
    gpus = manifest.pod_settings(LEADER).gpus
    total = pods * int(gpus) if isinstance(gpus, str) and gpus.isdecimal() else 0
    place = job.line("spec", "replicas")
    line = line_of_gpus(job, LEADER, manifest.pod_settings(LEADER), manifest.plan, place)
    yield DerivedSetting("layout.gpus", total, file, line, f"{pods} pods")
    port: Path = (*LEADER, "containers", 0, "ports", 0, "containerPort")
    yield DerivedSetting("problem.endpoint.port", job.value_at(*port), file, job.line(*port))
    start: Path = (*LEADER, "containers", 0, "startupProbe")
    attempts, period = (
        positive_integer_or_zero(job.value_at(*start, key))
        for key in ("failureThreshold", "periodSeconds")
    )
    minutes = attempts * period / 60
    value = int(minutes) if minutes.is_integer() else minutes
    yield DerivedSetting(
        f"{KUBERNETES}.startup_minutes", value, file, job.line(*start, "failureThreshold")
    )
    yield from read_topology_settings(manifest, _group_annotations(manifest), LEADER[:-1])


def number_of_pods(job: YamlDocument) -> int:
    """Return the number of pods of a LeaderWorkerSet."""
    groups = positive_integer_or_zero(job.value_at("spec", "replicas"))
    return groups * positive_integer_or_zero(job.value_at(*TEMPLATE, "size"))


def pod_addresses(groups: Iterable[YamlDocument]) -> tuple[str, ...]:
    """Return the DNS name of each pod of the LeaderWorkerSets ``groups``.

    Source: kubernetes-sigs/lws, site/content/en/docs/reference/labels-annotations-and-environment-
    variables.md: LWS_LEADER_ADDRESS.
    """
    found = []
    for one in groups:
        name, space = (one.value_at("metadata", key) for key in ("name", "namespace"))
        size = min(positive_integer_or_zero(one.value_at(*TEMPLATE, "size")), MOST_PODS)
        for pod in range(min(number_of_pods(one), MOST_PODS)):
            group, worker = divmod(pod, size)
            own = f"{name}-{group}-{worker}" if worker else f"{name}-{group}"
            found.append(f"{own}.{name}.{space}" if space else f"{own}.{name}")
    return tuple(found)


def _group_annotations(manifest: Manifest) -> dict[str, str]:
    """Return the annotations that make Kueue put the pods of a group into one rack."""
    queue = manifest.problem["launch"]["kubernetes"]["queue"]
    if not queue or pods_per_group(manifest.plan) == 1 or manifest.hosts:
        return {}
    label = topology_label(manifest.problem)
    return {f"{TOPOLOGY}-required-topology": label, f"{TOPOLOGY}-group-name": "engine"}


def expected_serving_objects(manifest: Manifest, servers: Servers) -> list[dict[str, Any]]:
    """Return the objects of a service that PARC emits for the settings in the manifest."""
    size, hosts = pods_per_group(manifest.plan), manifest.hosts
    pod = manifest.pod_settings(LEADER)
    if not hosts or size == 1:
        groups = [_expected_groups(manifest, servers, "", hosts)]
    else:
        parts = [hosts[start : start + size] for start in range(0, len(hosts), size)]
        groups = [
            _expected_groups(manifest, servers, f"-{engine}", part)
            for engine, part in enumerate(parts)
        ]
    return [
        manifest.config_map(pod.files),
        *manifest.compute_domains(pod),
        *groups,
        _expected_service(manifest, servers),
    ]


def _expected_groups(
    manifest: Manifest, servers: Servers, suffix: str, hosts: Sequence[str]
) -> dict[str, Any]:
    """Return the LeaderWorkerSet whose name ends in ``suffix``, on ``hosts`` if there are any."""
    plan, notes = manifest.plan, _group_annotations(manifest)
    size, nodes = pods_per_group(plan), len(plan["placement"]["hosts"])
    pod, name = manifest.pod_settings(LEADER), manifest.name
    template = {"labels": {APP: manifest.name}, **expected_metadata(pod, notes)}
    leader, worker = (
        {
            "metadata": template,
            "spec": kept_apart(
                expected_pod(
                    pod, name, "Always", _expected_container(manifest, servers, ports), place
                ),
                plan,
                place,
                (APP, manifest.name),
            ),
        }
        for ports, place in (
            (servers.ports(0), hosts if size == 1 else hosts[:1]),
            (servers.ports(1) if size > 1 else (), hosts if size == 1 else hosts[1:]),
        )
    )
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": manifest.job_metadata({}, suffix),
        "spec": {
            "replicas": 1 if suffix else nodes // size,
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


def _expected_container(manifest: Manifest, servers: Servers, ports: Ports) -> dict[str, Any]:
    """Return command, environment, ports and probes of the container of a pod."""
    size, hosts = pods_per_group(manifest.plan), manifest.hosts
    addresses = {"name": "PARC_HOSTS", "value": " ".join(_host_addresses(manifest))}
    if hosts:
        rank = FIND_RANK
        env = [*host_variables(hosts), *([addresses] if size > 1 else [])]
    else:
        rank = f"NODE_RANK=$((GROUP_INDEX * {size} + LWS_WORKER_INDEX)) exec "
        index = {"fieldRef": {"fieldPath": f"metadata.labels['{LWS}/group-index']"}}
        env = [{"name": "GROUP_INDEX", "valueFrom": index}, addresses]
    return {
        "command": ["bash", "-c", f"{rank}bash {MOUNT}/{servers.script}"],
        "env": [*env, *secret_variables(manifest.pod_settings(LEADER))],
        **(_expected_probes(manifest, servers, ports) if ports else {}),
    }


def _expected_probes(manifest: Manifest, servers: Servers, ports: Ports) -> dict[str, Any]:
    """Return the ports and probes of a container whose API servers have ``ports``."""
    path, numbers = servers.health_path, " ".join(map(str, ports))
    request = rf"'GET {path} HTTP/1.0\r\n\r\n'"
    script = (
        f"for port in {numbers}; do exec 3<>/dev/tcp/127.0.0.1/$port && printf {request} >&3 "
        "&& read -r _ status _ <&3 && [[ $status == 200 ]] || exit 1; done"
    )
    probe: dict[str, Any] = {"exec": {"command": ["bash", "-c", script]}}
    if len(ports) == 1:
        probe = {"httpGet": {"path": path, "port": ports[0]}}
    probe |= {"periodSeconds": 10, "timeoutSeconds": 10}
    attempts = manifest.job.value_at(*LEADER, "containers", 0, "startupProbe", "failureThreshold")
    return {
        "ports": [{"containerPort": port, "name": _port_name(port, ports)} for port in ports],
        "startupProbe": {**probe, "failureThreshold": attempts},
        "livenessProbe": {**probe, "failureThreshold": 6},
        "readinessProbe": probe,
    }


def _port_name(port: int, ports: Ports) -> str:
    return "api" if len(ports) == 1 else f"api-{port}"


def _host_addresses(manifest: Manifest) -> Iterator[str]:
    """Yield an address per node rank: the DNS name of the pod, or the host of a bound worker."""
    name, size = manifest.name, pods_per_group(manifest.plan)
    for node, host in enumerate(manifest.plan["placement"]["hosts"]):
        group, worker = divmod(node, size)
        if manifest.hosts:
            yield host if worker else f"{name}-{group}-0.{name}-{group}"
        else:
            yield f"{name}-{group}-{worker}.{name}" if worker else f"{name}-{group}.{name}"


def _expected_service(manifest: Manifest, servers: Servers) -> dict[str, Any]:
    """Return the Service, which selects leaders only if the workers run no API servers."""
    ports = servers.ports(0)
    workers = pods_per_group(manifest.plan) > 1 and servers.ports(1)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{manifest.name}-api", **manifest.metadata},
        "spec": {
            "selector": {APP: manifest.name, **({} if workers else {f"{LWS}/worker-index": "0"})},
            "ports": [
                {"name": _port_name(port, ports), "port": port, "targetPort": port}
                for port in ports
            ],
        },
    }


def verify_endpoint(manifest: Manifest, places: Iterable[tuple[int, int]], sink: Sink) -> None:
    """Report API servers that the Service, a container port or a probe omits (A19).

    ``places`` contains (node rank, port) of each API server.
    """
    service, size = manifest.documents[-1], pods_per_group(manifest.plan)
    entries = service.value_at("spec", "ports")
    targets = {one.get("targetPort") for one in entries or () if isinstance(one, dict)}
    selector, found = service.value_at("spec", "selector"), sorted(places)
    covered = [_probed_ports(manifest.job, spec) for spec in (LEADER, WORKER)]
    missed = []
    for node, port in found:
        labels = {APP: manifest.name, f"{LWS}/worker-index": str(node % size)}
        selected = isinstance(selector, dict) and selector.items() <= labels.items()
        if not selected or port not in targets & covered[node % size > 0]:
            missed.append((node, port))
    if missed:
        node, port = missed[0]
        finding = Finding(
            f"the Service reaches {len(found) - len(missed)} of {len(found)} API servers of the "
            "plan",
            f"for example, port {port} of node rank {node} is not a target port of the Service, or "
            "its pod does not check the port with all its probes",
            help="the engines of the missing servers would get no requests, or fail unnoticed",
        )
        span = Span(manifest.file, service.line("spec", "ports"), 1)
        sink.report("A19", finding, span=span)


def _probed_ports(job: YamlDocument, spec: Path) -> set[int]:
    """Return the ports of the container in the pod at ``spec`` that all its probes check."""
    container: Path = (*spec, "containers", 0)
    entries = job.value_at(*container, "ports")
    found = {one.get("containerPort") for one in entries or () if isinstance(one, dict)}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        script = job.value_at(*container, probe, "exec", "command", 2)
        listed = re.search(r"for port in ([0-9 ]*);", script) if isinstance(script, str) else None
        several = {int(port) for port in listed[1].split()} if listed else set()
        found &= several | {job.value_at(*container, probe, "httpGet", "port")}
    return {port for port in found if type(port) is int}
