"""Checks of ``launch.kubernetes``.

They report values that the API server would reject, racks to which pods cannot be bound, and API
servers that a pod template cannot express.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from parc.backends.kubernetes.config_map import MOST_BYTES, mounted_files
from parc.backends.kubernetes.jobset import HOSTS, LEADER, training_objects
from parc.backends.kubernetes.leaderworkerset import (
    hosts_per_group,
    role_ports,
    serving_files,
    serving_objects,
)
from parc.backends.kubernetes.network_devices import check_network_devices
from parc.backends.kubernetes.object_names import (
    MOST_LABEL,
    dns_label,
    is_dns_label,
    is_label_value,
    is_qualified_name,
    is_quantity,
    is_taint,
)
from parc.backends.kubernetes.slices import hosts_per_slice, replicated_job_count
from parc.backends.registry import engine
from parc.backends.shared.launchers.container_paths import (
    Container,
    missing_folders,
    missing_paths,
    report_missing_paths,
)
from parc.backends.shared.launchers.setup_and_variables import check_setup_and_variables
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Artifact, KubernetesJob, Plan, ServingPlan, Task

TARGETS = ("kubernetes",)
AT = "launch.kubernetes"
NO_CHANNELS = "no pods use NVLink between hosts"


def check_kubernetes(plan: Plan, sink: Sink) -> None:
    """Report problems with the Kubernetes settings of a training plan.

    These are names, image, labels and resource quantities, objects that are too large, and racks of
    the plan to which pods cannot be bound.
    """
    hosts = len(plan.placement.hosts)
    # JobSet names pods NAME-JOB-INDEX-INDEX-xxxxx, with five random characters.
    suffixes = [f"-{HOSTS}-{hosts}-{hosts}-abcde"]
    if plan.problem.cluster.named:
        suffixes = [f"-{LEADER}-0-0-abcde", f"-{HOSTS}-0-{hosts}-abcde"]
    _check_names(plan.problem, max(suffixes, key=len), sink)
    _check_host_names(plan, sink)
    _check_unused(plan.problem, "startup_minutes", "a training job has no startup probe", sink)
    if _check_config_map_size(mounted_files(plan), sink):
        _check_object_sizes(training_objects(plan)[1:], sink)
    _check_racks(plan, sink)
    _check_paths(plan, sink)
    if hosts > 1:
        check_network_devices(plan.problem, sink)
    if hosts == 1 or not plan.problem.cluster.node.nvlink_spans_hosts:
        _check_unused(plan.problem, "compute_domain", NO_CHANNELS, sink)


def check_serving_objects(plan: ServingPlan, sink: Sink) -> None:
    """Report problems with the Kubernetes settings of a serving plan.

    These are invalid names, labels and quantities, a missing image, objects that are too large, and
    API servers that only some pods of a template would start.
    """
    hosts = len(plan.placement.hosts)
    problem = plan.problem
    version, vendor = problem.version(problem.framework), problem.cluster.gpu.vendor
    image = engine(problem.framework).image(version, vendor)
    _check_names(problem, f"-{hosts}-0-{hosts}", sink, image)
    _check_host_names(plan, sink)
    check_setup_and_variables(plan, sink)
    _check_paths(plan, sink)
    if hosts_per_group(plan) > 1:
        check_network_devices(problem, sink)
    if hosts_per_group(plan) == 1 or not problem.cluster.node.nvlink_spans_hosts:
        _check_unused(problem, "compute_domain", NO_CHANNELS, sink)
    if _check_api_servers(plan, sink) and _check_config_map_size(serving_files(plan), sink):
        _check_object_sizes(serving_objects(plan)[1:], sink)


def _check_unused(task: Task, field: str, reason: str, sink: Sink) -> None:
    """Report the field of ``launch.kubernetes`` if the spec sets it without any effect (E13)."""
    path = f"{AT}.{field}"
    if sink.positions.is_path_in_spec(path):
        finding = Finding(
            f"{path} has no effect on {task.name!r:.80}", label=reason,
            fix=f"remove {path}", targets=TARGETS,
        )  # fmt: skip
        sink.report("E13", finding, at=path, key=True)


def _check_api_servers(plan: ServingPlan, sink: Sink) -> bool:
    """Return True if all pods of a template run the same API servers; otherwise report L32."""
    leaders, workers = role_ports(plan)
    uniform = len(leaders) == len(workers) == 1
    if uniform and (min(workers) in ((), min(leaders))) and min(leaders):
        return True
    found = sorted({ports for role in (leaders, workers) for ports in role})
    texts = [", ".join(map(str, ports)) or "none" for ports in found]
    finding = Finding(
        "pods with the same template would have to run different API servers",
        label=f"ports of the API servers of a pod: {'; '.join(texts)}",
        help="a Service would send requests to pods without an API server",
        fix="launch.load_balancer: internal",
        targets=TARGETS,
    )
    sink.report("L32", finding, at="launch.load_balancer")
    return False


def _check_names(task: Task, suffix: str, sink: Sink, image: str = "") -> None:
    """Report a missing image (L24), an unused Secret (E13) and invalid Kubernetes names (L25).

    ``suffix`` is the longest text that Kubernetes appends to the job's name to name a pod, and
    ``image`` the official image of the engine, if there is one.
    """
    job = task.launch.kubernetes
    if not job.image:
        finding = Finding(
            "pods require a container image", label="launch.kubernetes.image is not set",
            fix=f"launch.kubernetes.image: {image or 'REGISTRY/IMAGE:TAG'}", targets=TARGETS,
        )  # fmt: skip
        sink.report("L24", finding, at=AT if sink.positions.is_path_in_spec(AT) else "emit")
    if job.secret and not task.launch.env_inherited:
        finding = Finding(
            f"no pod reads the Secret {job.secret!r:.80}",
            label="no variable of launch.env is taken from the environment",
            help="name a variable of the Secret: launch.env.NAME: {from: environment}",
            fix=f"remove {AT}.secret", targets=TARGETS,
        )  # fmt: skip
        sink.report("E13", finding, at=f"{AT}.secret", key=True)
    _check_pod_names(task.name, suffix, sink)
    for path, text, what in _invalid_values(job):
        finding = Finding(
            f"{text!r:.80} is not a {what}", label=f"must be a {what}", targets=TARGETS
        )
        sink.report("L25", finding, at=path)


def _check_pod_names(written: str, suffix: str, sink: Sink) -> None:
    """Report a job name from which no valid DNS labels for pods and Services can be made (L25).

    ``suffix`` is the longest text that Kubernetes appends to the job's name to name a pod.
    """
    name, limit = dns_label(written), MOST_LABEL - len(suffix)
    if 0 < len(name) <= limit and not name[0].isdigit():
        return
    label = f"as a DNS label the name has {len(name)} characters, must have 1 to {limit}"
    finding = Finding(
        f"{written!r} cannot be used in the names of pods and Services",
        # RFC 1035: Kubernetes requires a letter at the start of a Service's name.
        label="the name must start with a letter" if name[:1].isdigit() else label,
        help="use letters, digits and dashes; dots and underscores become dashes",
        targets=TARGETS,
    )
    sink.report("L25", finding, at="name")


InvalidValue = tuple[str, str, str]
"""(spec path, invalid text, form that Kubernetes requires)."""


def _invalid_values(job: KubernetesJob) -> Iterator[InvalidValue]:
    """Yield (spec path, value, required form) of the values that Kubernetes would reject."""
    for field in ("namespace", "queue", "secret"):
        if not is_dns_label(getattr(job, field) or "absent"):
            yield f"{AT}.{field}", getattr(job, field), "DNS label"
    for field in ("rack_label", "domain_label", "gpu_resource"):
        if not is_qualified_name(getattr(job, field) or "absent"):
            yield f"{AT}.{field}", getattr(job, field), "label or resource name"
    if not is_quantity(job.shared_memory):
        yield f"{AT}.shared_memory", job.shared_memory, "quantity such as 64Gi"
    for name, value in job.node_selector:
        if not is_qualified_name(name) or not is_label_value(value):
            yield f"{AT}.node_selector", f"{name}: {value}", "node label"
    yield from _invalid_entries(job)
    yield from _invalid_resources(job)
    yield from _invalid_claims(job)
    yield from _invalid_host_paths(job)
    for name, _ in job.annotations:
        if not is_qualified_name(name) or name.startswith("kueue.x-k8s.io/"):
            yield f"{AT}.annotations", name, "annotation that PARC does not set itself"


def _invalid_entries(job: KubernetesJob) -> Iterator[InvalidValue]:
    """Yield the invalid tolerations and names of Secrets."""
    for place, taint in enumerate(job.tolerations):
        if not is_taint(taint):
            yield f"{AT}.tolerations[{place}]", taint, "taint such as KEY=VALUE:NoSchedule"
    for place, secret in enumerate(job.pull_secrets):
        if not is_dns_label(secret):
            yield f"{AT}.pull_secrets[{place}]", secret, "DNS label"


def _invalid_resources(job: KubernetesJob) -> Iterator[InvalidValue]:
    """Yield the invalid names and quantities in ``resources`` and ``requests``."""
    for name, quantity in job.resources:
        if not is_qualified_name(name):
            yield f"{AT}.resources", name, "resource name"
        elif not is_quantity(quantity):
            yield f"{AT}.resources.{name}", quantity, "quantity such as 8 or 64Gi"
    for name, quantity in job.requests:
        # The API server rejects a request for devices without an equal limit.
        if "/" in name or not is_qualified_name(name) or name in dict(job.resources):
            yield f"{AT}.requests", name, "resource without a limit, such as cpu or memory"
        elif not is_quantity(quantity):
            yield f"{AT}.requests.{name}", quantity, "quantity such as 96 or 1Ti"


def _invalid_claims(job: KubernetesJob) -> Iterator[InvalidValue]:
    """Yield the invalid claim names and mount paths in ``launch.kubernetes.claims``."""
    for claim, path in job.claims:
        if not is_dns_label(claim):
            yield f"{AT}.claims", claim, "name of a PersistentVolumeClaim"
        elif not path.startswith("/") or ":" in path:
            yield f"{AT}.claims.{claim}", path, "absolute path without a colon"


def _invalid_host_paths(job: KubernetesJob) -> Iterator[InvalidValue]:
    """Yield the invalid paths in ``launch.kubernetes.host_paths``."""
    for folder, path in job.host_paths:
        # The API server rejects a host path with "..".
        if not folder.startswith("/") or ".." in folder.split("/"):
            yield f"{AT}.host_paths", folder, "absolute path without .."
        elif not path.startswith("/") or ":" in path:
            yield f"{AT}.host_paths.{folder}", path, "absolute path without a colon"


def _check_config_map_size(files: tuple[Artifact, ...], sink: Sink) -> bool:
    """Return True if the mounted files fit in a ConfigMap; otherwise report L26."""
    size = sum(len(file.text.encode()) + len(file.path) for file in files)
    if size <= MOST_BYTES:
        return True
    largest = max(files, key=lambda file: len(file.text))
    finding = Finding(
        f"the files of the plan have {size:,} bytes, but a ConfigMap holds at most {MOST_BYTES:,}",
        label=f"the largest file is {largest.path}",
        help="set cluster.nodes to a number of nodes instead of host names, and set nodes_per_rack",
        targets=TARGETS,
    )
    sink.report("L26", finding, at="cluster")
    return False


def _check_object_sizes(objects: Sequence[dict[str, Any]], sink: Sink) -> None:
    """Report objects that are too large for the API server, because they name many hosts (L26)."""
    for one in objects:
        size = len(json.dumps(one))
        if size > MOST_BYTES:
            finding = Finding(
                f"the {one['kind']} has {size:,} bytes, but etcd stores at most {MOST_BYTES:,}",
                label="its pod templates contain the names of the hosts",
                help="set cluster.nodes to a number of nodes instead of host names, and set "
                "nodes_per_rack",
                targets=TARGETS,
            )
            sink.report("L26", finding, at="cluster")


def _check_host_names(plan: Plan | ServingPlan, sink: Sink) -> None:
    """Report a host name that is not a node label, so that no pod can be bound to it (L25)."""
    if not plan.problem.cluster.named:
        return
    wrong = [host.name for host in plan.placement.hosts if not is_label_value(host.name)]
    if wrong:
        finding = Finding(
            f"{wrong[0]!r:.80} cannot be the value of the node label kubernetes.io/hostname",
            label=f"{len(wrong)} of {len(plan.placement.hosts)} host names are not label values",
            help="write the names of kubectl get nodes; a label has at most 63 characters",
            targets=TARGETS,
        )
        sink.report("L25", finding, at="cluster")


def _check_paths(plan: Plan | ServingPlan, sink: Sink) -> None:
    """Report paths of the job that no claim and no folder of the node contains (L37)."""
    job, at = plan.problem.launch.kubernetes, f"{AT}.claims"
    mounts = [path for _, path in (*job.claims, *job.host_paths)]
    container = Container(
        "kubernetes", mounts, keeps_working_folder=False, setting=f"{at} (PersistentVolumeClaims)"
    )
    missing = missing_paths(plan, container)
    claims = dict(job.claims) | {dns_label(one): one for one in missing_folders(missing)}
    words = ", ".join(f"{claim}: {json.dumps(path)}" for claim, path in claims.items())
    fix = f"{at}: {{{words}}}" if len(claims) > len(job.claims) else ""
    report_missing_paths(container, fix, missing, sink)


def _check_racks(plan: Plan, sink: Sink) -> None:
    """Report a plan over several racks whose pods cannot be bound to racks (L27)."""
    problem, hosts = plan.problem, plan.placement.hosts
    job, cluster = problem.launch.kubernetes, problem.cluster
    racks = len({host.rack for host in hosts})
    # Pods that are bound to the hosts of the plan need no racks.
    if cluster.named or racks == 1 or (job.queue and hosts_per_slice(cluster, hosts) > 1):
        return
    if not job.queue and replicated_job_count(cluster, hosts, job) > 1:
        return
    finding = Finding(
        f"the plan uses {racks} racks, but the manifests cannot bind pods to racks",
        label="the racks contribute different numbers of consecutive node ranks",
        help="use racks that contribute equal numbers of hosts; with launch.kubernetes.queue, a "
        "common divisor of the numbers is enough",
        fix="" if job.queue else "launch.kubernetes.queue: NAME",
        causes=(Cause("cluster", f"{len(hosts)} hosts in {racks} racks"),),
        targets=TARGETS,
    )
    sink.report("L27", finding, at=AT if sink.positions.is_path_in_spec(AT) else "emit")
