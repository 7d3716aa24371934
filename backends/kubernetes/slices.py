"""Annotations that make Kueue or JobSet put consecutive node ranks into the same rack."""

from __future__ import annotations

from math import gcd

from parc.backends.shared.rack_runs import contiguous_rack_runs
from parc.compiler.ir import Cluster, Host, KubernetesJob

QUEUE = "kueue.x-k8s.io/queue-name"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
SLICE_TOPOLOGY = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"


def hosts_per_slice(cluster: Cluster, hosts: tuple[Host, ...]) -> int:
    """Return the number of hosts per Kueue slice, a group of pods that stay in one rack.

    The number is the greatest common divisor of the lengths of the runs of consecutive node ranks
    in one rack, so that no slice crosses the border of a run.
    """
    # gcd(0, n) is n, so that the first run sets the size.
    size = 0
    for _, count in contiguous_rack_runs(cluster, hosts):
        size = gcd(size, count)
    return size


def topology_label(cluster: Cluster, job: KubernetesJob) -> str:
    """Return the node label of the domain that contains a Kueue slice.

    The domain is an NVLink domain if it spans several hosts, otherwise a rack.
    """
    return job.domain_label if cluster.node.nvlink_spans_hosts else job.rack_label


def pod_annotations(
    cluster: Cluster, hosts: tuple[Host, ...], job: KubernetesJob
) -> dict[str, str]:
    """Return the pod annotations for Kueue's topology-aware scheduling (KEP-2724).

    Without a queue the result is empty. Kueue assigns topology domains in the order of the pod
    index, so that consecutive node ranks share a rack as in the plan.
    """
    if not job.queue or len(hosts) == 1:
        return {}
    size, label = hosts_per_slice(cluster, hosts), topology_label(cluster, job)
    if size == len(hosts):
        return {REQUIRED: label}
    # A slice of one host expresses nothing; only ask Kueue to prefer few racks.
    if size == 1:
        return {PREFERRED: label}
    return {PREFERRED: label, SLICE_TOPOLOGY: label, SLICE_SIZE: str(size)}


def replicated_job_count(cluster: Cluster, hosts: tuple[Host, ...], job: KubernetesJob) -> int:
    """Return the number of jobs in the JobSet: one per rack if possible, otherwise 1.

    One job per rack has three conditions: there is no queue, every rack has a single run of
    consecutive node ranks, and all runs have the same length. JobSet's exclusive-topology
    annotation then puts each job into a separate rack.
    """
    runs = contiguous_rack_runs(cluster, hosts)
    equal = len({count for _, count in runs}) == 1
    single = len({rack for rack, _ in runs}) == len(runs)
    return len(runs) if equal and single and not job.queue else 1
