"""Which neighbours in node rank must share a rack, in words that schedulers know."""

from __future__ import annotations

from math import gcd

from parc.backends.shared.rack_runs import contiguous_rack_runs, nvlink_spans_hosts
from parc.compiler.ir import Cluster, Host, KubernetesJob

QUEUE = "kueue.x-k8s.io/queue-name"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
SLICE_TOPOLOGY = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"


def slice_hosts(cluster: Cluster, hosts: tuple[Host, ...]) -> int:
    """Hosts of a slice: the greatest size that tiles every run of node ranks in one rack."""
    size = 0
    for _, count in contiguous_rack_runs(cluster, hosts):
        size = gcd(size, count)
    return size


def level(cluster: Cluster, job: KubernetesJob) -> str:
    """The node label of the level that slices must not leave."""
    return job.domain_label if nvlink_spans_hosts(cluster) else job.rack_label


def pod_annotations(
    cluster: Cluster, hosts: tuple[Host, ...], job: KubernetesJob
) -> dict[str, str]:
    """Pod annotations for Kueue's topology-aware scheduling (KEP-2724); empty without a queue.

    Pods get their domains in the order of their index, so that neighbours in node rank share a
    rack wherever the plan has them share one.
    """
    if not job.queue or len(hosts) == 1:
        return {}
    size, label = slice_hosts(cluster, hosts), level(cluster, job)
    if size == len(hosts):
        return {REQUIRED: label}
    if size == 1:
        return {PREFERRED: label}
    return {PREFERRED: label, SLICE_TOPOLOGY: label, SLICE_SIZE: str(size)}


def jobs(cluster: Cluster, hosts: tuple[Host, ...], job: KubernetesJob) -> int:
    """Jobs that the hosts are cut into: one with a queue; without one a job a rack.

    A job a rack is what JobSet can keep apart by itself (its exclusive-topology annotation), where
    every rack has one run of equally many node ranks.
    """
    runs_ = contiguous_rack_runs(cluster, hosts)
    alike = len({count for _, count in runs_}) == 1 and len({rack for rack, _ in runs_}) == len(
        runs_
    )
    return len(runs_) if alike and not job.queue else 1
