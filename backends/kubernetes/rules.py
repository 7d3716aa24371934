"""Checks of ``launch.kubernetes``.

They report values that the API server would reject, and racks to which pods cannot be bound.
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.kubernetes.config_map import MOST_BYTES, mounted_files
from parc.backends.kubernetes.jobset import HOSTS
from parc.backends.kubernetes.leaderworkerset import serving_files
from parc.backends.kubernetes.object_names import (
    MOST_LABEL,
    dns_label,
    is_dns_label,
    is_label_value,
    is_qualified_name,
    is_quantity,
)
from parc.backends.kubernetes.slices import hosts_per_slice, replicated_job_count
from parc.backends.shared.launch_rules import check_setup_and_variables
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Artifact, KubernetesJob, Plan, ServingPlan, Task

TARGETS = ("kubernetes",)
AT = "launch.kubernetes"


def check_kubernetes(plan: Plan, sink: Sink) -> None:
    """Report problems with the Kubernetes settings of a training plan.

    These are names, image, labels and resource quantities, files that are too large to mount, and
    racks of the plan to which pods cannot be bound.
    """
    hosts = len(plan.placement.hosts)
    # JobSet names pods NAME-JOB-INDEX-INDEX-xxxxx, with five random characters.
    _check_names(plan.problem, f"-{HOSTS}-{hosts}-{hosts}-abcde", sink)
    _check_config_map_size(mounted_files(plan), sink)
    _check_racks(plan, sink)
    _check_host_names(plan.problem, hosts, sink)


def check_serving_objects(plan: ServingPlan, sink: Sink) -> None:
    """Report problems with the Kubernetes settings of a serving plan.

    These are invalid names, labels and quantities, a missing image, and files that are too large to
    mount.
    """
    hosts = len(plan.placement.hosts)
    _check_names(plan.problem, f"-{hosts}-{hosts}", sink)
    _check_config_map_size(serving_files(plan), sink)
    check_setup_and_variables(plan, sink)
    _check_host_names(plan.problem, hosts, sink)


def _check_names(task: Task, suffix: str, sink: Sink) -> None:
    """Report a missing image (L24), an unused Secret (E13) and invalid Kubernetes names (L25).

    ``suffix`` is the longest text that Kubernetes appends to the job's name to name a pod.
    """
    job = task.launch.kubernetes
    if not job.image:
        finding = Finding(
            "pods require a container image", label="launch.kubernetes.image is not set",
            fix="launch.kubernetes.image: REGISTRY/IMAGE:TAG", targets=TARGETS,
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
    """Report a job name that makes the names of pods empty or too long (L25).

    ``suffix`` is the longest text that Kubernetes appends to the job's name to name a pod.
    """
    name, limit = dns_label(written), MOST_LABEL - len(suffix)
    if 0 < len(name) <= limit:
        return
    finding = Finding(
        f"{written!r} cannot be used in the names of pods",
        label=f"as a DNS label the name has {len(name)} characters, must have 1 to {limit}",
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
    yield from _invalid_resources(job)
    yield from _invalid_claims(job)


def _invalid_resources(job: KubernetesJob) -> Iterator[InvalidValue]:
    """Yield the invalid names and quantities in ``launch.kubernetes.resources``."""
    for name, quantity in job.resources:
        if not is_qualified_name(name):
            yield f"{AT}.resources", name, "resource name"
        elif not is_quantity(quantity):
            yield f"{AT}.resources.{name}", quantity, "quantity such as 8 or 64Gi"


def _invalid_claims(job: KubernetesJob) -> Iterator[InvalidValue]:
    """Yield the invalid claim names and mount paths in ``launch.kubernetes.claims``."""
    for claim, path in job.claims:
        if not is_dns_label(claim):
            yield f"{AT}.claims", claim, "name of a PersistentVolumeClaim"
        elif not path.startswith("/") or ":" in path:
            yield f"{AT}.claims.{claim}", path, "absolute path without a colon"


def _check_config_map_size(files: tuple[Artifact, ...], sink: Sink) -> None:
    """Report mounted files that are too large for a ConfigMap (L26)."""
    size = sum(len(file.text.encode()) + len(file.path) for file in files)
    if size <= MOST_BYTES:
        return
    largest = max(files, key=lambda file: len(file.text))
    finding = Finding(
        f"the files of the plan have {size:,} bytes, but a ConfigMap holds at most {MOST_BYTES:,}",
        label=f"the largest file is {largest.path}",
        help="set cluster.nodes to a number of nodes instead of host names, and set nodes_per_rack",
        targets=TARGETS,
    )
    sink.report("L26", finding, at="cluster")


def _check_host_names(task: Task, hosts: int, sink: Sink) -> None:
    """Report a plan that names its hosts, because no manifest binds pods to hosts (F05)."""
    selector = task.launch.kubernetes.node_selector
    if not task.cluster.named or selector:
        return
    finding = Finding(
        f"the plan names {hosts} hosts, but Kubernetes chooses the hosts of the pods",
        label="no manifest contains these names, so ranks may run on other hosts than planned",
        help="set cluster.nodes and nodes_per_rack; or label these hosts, and select the label "
        "with launch.kubernetes.node_selector",
        targets=TARGETS,
    )
    sink.report("F05", finding, at="cluster")


def _check_racks(plan: Plan, sink: Sink) -> None:
    """Report a plan over several racks whose pods cannot be bound to racks (L27)."""
    problem, hosts = plan.problem, plan.placement.hosts
    job, cluster = problem.launch.kubernetes, problem.cluster
    racks = len({host.rack for host in hosts})
    if racks == 1 or (job.queue and hosts_per_slice(cluster, hosts) > 1):
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
