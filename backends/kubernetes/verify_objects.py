"""Objects of the manifests: settings that the plan decides, and the objects that they imply.

Sources: API references of JobSet v1alpha2, LeaderWorkerSet v1 and Kueue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import gcd
from typing import Any

from parc.backends.kubernetes.verify_pods import (
    KUBERNETES,
    MOUNT,
    PodSettings,
    expected_metadata,
    expected_pod,
    kept_apart,
    line_of_gpus,
    read_pod,
    read_pod_settings,
    secret_variables,
)
from parc.backends.kubernetes.verify_yaml import Path, YamlDocument, positive_integer_or_zero
from parc.backends.verifier import DerivedSetting
from parc.compiler.ir.frozen import frozen

QUEUE = "kueue.x-k8s.io/queue-name"
JOB_POD: Path = ("spec", "replicatedJobs", 0, "template", "spec", "template", "spec")
JOB_INDEX = "metadata.annotations['jobset.sigs.k8s.io/job-index']"
FIND_RANK = (
    "rank=0; for name in $NODE_NAMES; do "
    '[[ $name != "$NODE_NAME" ]] || export NODE_RANK=$rank; rank=$((rank + 1)); done; '
    ': "${NODE_RANK:?the plan has no host $NODE_NAME}"; exec '
)
"""Commands that a pod runs to find its node rank by the name of its node."""
TOPOLOGY = "kueue.x-k8s.io/podset"
JOB_KINDS = ("JobSet", "LeaderWorkerSet")


@frozen
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
        """The JobSet, or the first LeaderWorkerSet."""
        return next(one for one in self.documents if one.value_at("kind") in JOB_KINDS)

    @property
    def hosts(self) -> list[str]:
        """Names of the hosts that the pods are bound to, by node rank.

        Empty if the plan has only a number of hosts.
        """
        return list(self.plan["placement"]["hosts"]) if self.problem["cluster"]["named"] else []

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

    def job_metadata(self, annotations: Mapping[str, str], suffix: str = "") -> dict[str, Any]:
        """Return the metadata of the job: name, namespace, queue and ``annotations``.

        ``suffix`` follows the name of the plan in the name of the job.
        """
        queue = self.problem["launch"]["kubernetes"]["queue"]
        return {
            "name": f"{self.name}{suffix}",
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

    def compute_domains(self, pod: PodSettings) -> list[dict[str, Any]]:
        """Return the ComputeDomain whose channels pods claim; nothing if ``pod`` claims none."""
        if not pod.claims_channel:
            return []
        template = {"name": f"{self.name}-imex"}
        return [
            {
                "apiVersion": "resource.nvidia.com/v1beta1",
                "kind": "ComputeDomain",
                "metadata": {"name": self.name, **self.metadata},
                "spec": {
                    "numNodes": len(self.plan["placement"]["hosts"]),
                    "channel": {"resourceClaimTemplate": template},
                },
            }
        ]


def environment_line(job: YamlDocument, spec: Path, name: str) -> tuple[Any, int]:
    """Return the value of the variable ``name`` in the pod at ``spec``, and its line."""
    env: Path = (*spec, "containers", 0, "env")
    entries = job.value_at(*env)
    for place, one in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(one, dict) and one.get("name") == name:
            return one.get("value"), job.line(*env, place, "value")
    return None, job.line(*env)


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
    if manifest.hosts:
        names, line = environment_line(job, spec, "NODE_NAMES")
        hosts = names.split() if isinstance(names, str) else names
        yield DerivedSetting("placement.hosts", hosts, file, line)


def read_claims(manifest: Manifest, spec: Path, hosts: int) -> Iterator[DerivedSetting]:
    """Yield the setting that lets the pods claim channels for NVLink between hosts.

    Nothing is yielded if ``hosts``, the hosts of a job or of an engine, do not use such NVLink.

    Args:
        manifest: manifest with the pod.
        spec: path of the pod's spec in the job.
        hosts: number of hosts that exchange data through NVLink or the network.
    """
    if hosts > 1 and _spans_hosts(manifest.problem["cluster"]["node"]):
        claims = manifest.pod_settings(spec).claims_channel
        line = manifest.job.line(*spec, "resourceClaims")
        yield DerivedSetting(f"{KUBERNETES}.compute_domain", claims, manifest.file, line)


def read_job_set_settings(manifest: Manifest) -> Iterator[DerivedSetting]:
    """Yield the settings of the plan that the JobSet of a training job contains."""
    job, file = manifest.job, manifest.file
    yield from read_shared_settings(manifest, JOB_POD)
    restarts: Path = ("spec", "failurePolicy", "maxRestarts")
    yield DerivedSetting(
        f"{KUBERNETES}.max_restarts", job.value_at(*restarts), file, job.line(*restarts)
    )
    yield from read_claims(manifest, JOB_POD, len(manifest.plan["placement"]["hosts"]))
    pods = sum(replicated_pods(job))
    gpus = manifest.pod_settings(JOB_POD).gpus
    world = pods * int(gpus) if isinstance(gpus, str) and gpus.isdecimal() else 0
    place = job.line("spec", "replicatedJobs", 0, "replicas")
    line = line_of_gpus(job, JOB_POD, manifest.pod_settings(JOB_POD), manifest.plan, place)
    yield DerivedSetting("layout.world", world, file, line, f"{pods} pods")
    port, line = environment_line(job, JOB_POD, "MASTER_PORT")
    number = int(port) if isinstance(port, str) and re.fullmatch(r"[0-9]{1,5}", port) else port
    yield DerivedSetting("problem.launch.master_port", number, file, line)
    if not manifest.hosts:
        notes = slice_annotations(manifest.plan)
        yield from read_topology_settings(manifest, notes, (*JOB_POD[:-1],))


def replicated_pods(job: YamlDocument) -> Iterator[int]:
    """Yield the number of pods of each replicated job in a JobSet."""
    jobs = job.value_at("spec", "replicatedJobs")
    for place in range(len(jobs) if isinstance(jobs, list) else 0):
        one: Path = ("spec", "replicatedJobs", place)
        count = positive_integer_or_zero(job.value_at(*one, "replicas"))
        yield count * positive_integer_or_zero(
            job.value_at(*one, "template", "spec", "completions")
        )


def read_topology_settings(
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
    """Return the objects of a training job that PARC emits for the settings in the manifest."""
    job, name, plan = manifest.job, manifest.name, manifest.plan
    pod = manifest.pod_settings(JOB_POD)
    jobs = (
        _expected_jobs_on_hosts(manifest, pod) if manifest.hosts else _expected_jobs(manifest, pod)
    )
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": topology_label(manifest.problem)}
    several = not manifest.hosts and job_count(plan) > 1
    restarts = job.value_at("spec", "failurePolicy", "maxRestarts")
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": manifest.job_metadata(exclusive if several else {}),
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": name},
            "failurePolicy": {"maxRestarts": restarts},
            "replicatedJobs": jobs,
        },
    }
    return [manifest.config_map(pod.files), *manifest.compute_domains(pod), job_set]


def _expected_jobs(manifest: Manifest, pod: PodSettings) -> list[dict[str, Any]]:
    """Return the replicated job of a plan without host names."""
    plan, count = manifest.plan, job_count(manifest.plan)
    each, notes = len(plan["placement"]["hosts"]) // count, slice_annotations(plan)
    rank = f"NODE_RANK=$((JOB_INDEX * {each} + JOB_COMPLETION_INDEX)) exec "
    index = {"name": "JOB_INDEX", "valueFrom": {"fieldRef": {"fieldPath": JOB_INDEX}}}
    container = _expected_container(manifest, rank, [index], "hosts")
    metadata = expected_metadata(pod, notes)
    template = {
        **({"metadata": metadata} if metadata else {}),
        "spec": expected_pod(pod, manifest.name, "Never", container),
    }
    return [_expected_job("hosts", count, each, template)]


def _expected_jobs_on_hosts(manifest: Manifest, pod: PodSettings) -> list[dict[str, Any]]:
    """Return the replicated jobs of a plan with host names: the first host, and the other hosts."""
    hosts = manifest.hosts
    container = _expected_container(manifest, FIND_RANK, host_variables(hosts), "leader")
    metadata = expected_metadata(pod, {})
    head = {"metadata": metadata} if metadata else {}
    label = "jobset.sigs.k8s.io/jobset-name", manifest.name
    return [
        _expected_job(
            name,
            1,
            len(part),
            {
                **head,
                "spec": kept_apart(
                    expected_pod(pod, manifest.name, "Never", container, part),
                    manifest.plan,
                    part,
                    label,
                ),
            },
        )
        for name, part in (("leader", hosts[:1]), ("hosts", hosts[1:]))
        if part
    ]


def host_variables(hosts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the environment entries with the names of the pod's node and of all hosts."""
    own = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    return [
        {"name": "NODE_NAME", "valueFrom": own},
        {"name": "NODE_NAMES", "value": " ".join(hosts)},
    ]


def _expected_container(
    manifest: Manifest, rank: str, env: list[dict[str, Any]], first: str
) -> dict[str, Any]:
    """Return command and environment of the container; ``rank`` sets the node rank.

    ``first`` is the name of the replicated job with the pod of node rank 0.
    """
    port, _ = environment_line(manifest.job, JOB_POD, "MASTER_PORT")
    return {
        "command": ["bash", "-c", f"{rank}bash {MOUNT}/torchrun/launch.sh"],
        "env": [
            *env,
            {"name": "MASTER_ADDR", "value": f"{manifest.name}-{first}-0-0.{manifest.name}"},
            {"name": "MASTER_PORT", "value": port},
            *secret_variables(manifest.pod_settings(JOB_POD)),
        ],
    }


def _expected_job(name: str, count: int, pods: int, template: dict[str, Any]) -> dict[str, Any]:
    indexed = {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "backoffLimit": 0,
        "template": template,
    }
    return {"name": name, "replicas": count, "template": {"spec": indexed}}


def topology_path(problem: Mapping[str, Any]) -> str:
    """Return the path of the setting that names the node label of racks, or of NVLink domains.

    NVLink domains are used if they span hosts, otherwise racks.
    """
    field = "domain_label" if _spans_hosts(problem["cluster"]["node"]) else "rack_label"
    return f"problem.launch.kubernetes.{field}"


def topology_label(problem: Mapping[str, Any]) -> str:
    """Return the node label that ``topology_path`` names."""
    return str(problem["launch"]["kubernetes"][topology_path(problem).rpartition(".")[2]])


def _spans_hosts(node: Mapping[str, Any]) -> bool:
    return bool(node["link_kind"] == "nvlink" and node["nvlink_domain"] > node["gpus"])


def rack_runs(plan: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return (rack or NVLink domain, number of hosts) of each run of consecutive node ranks."""
    cluster = plan["problem"]["cluster"]
    homes: dict[str, str] = {}
    for rack in cluster["racks"]:
        domains = _spans_hosts(cluster["node"])
        names = rack["nvlink_domains"] if domains else [rack["name"]] * len(rack["hosts"])
        homes |= zip(rack["hosts"], names, strict=True)
    places = [homes.get(host, "") for host in plan["placement"]["hosts"]]
    return [(home, len(list(run))) for home, run in groupby(places)]


def job_count(plan: Mapping[str, Any]) -> int:
    """Return the number of jobs in the JobSet.

    It is one job per rack if there is no queue and all racks have the same number of hosts;
    otherwise it is 1.
    """
    runs = rack_runs(plan)
    equal = len({count for _, count in runs}) == 1 and len({home for home, _ in runs}) == len(runs)
    queue = plan["problem"]["launch"]["kubernetes"]["queue"]
    return len(runs) if equal and not queue else 1


def slice_annotations(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations that make Kueue keep consecutive node ranks in one rack."""
    problem, hosts = plan["problem"], len(plan["placement"]["hosts"])
    if not problem["launch"]["kubernetes"]["queue"] or hosts == 1:
        return {}
    size, label = gcd(*(count for _, count in rack_runs(plan))), topology_label(problem)
    if size == hosts:
        return {f"{TOPOLOGY}-required-topology": label}
    preferred = {f"{TOPOLOGY}-preferred-topology": label}
    if size == 1:
        return preferred
    slices = {f"{TOPOLOGY}-slice-required-topology": label, f"{TOPOLOGY}-slice-size": str(size)}
    return preferred | slices
