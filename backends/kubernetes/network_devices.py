"""Devices of the network that the pods of a job on several hosts request."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Task

AT = "launch.kubernetes"
EFA = "vpc.amazonaws.com/efa"
"""Resource of the device plugin of AWS (aws/eks-charts, aws-efa-k8s-device-plugin)."""
NAMES = {"infiniband": "InfiniBand", "roce": "RoCE", "efa": "EFA", "slingshot": "Slingshot"}
"""Fabric that NCCL uses through devices, not through the pod network -> its name."""


def check_network_devices(problem: Task, sink: Sink) -> None:
    """Report pods that get no device of the fabric, so that NCCL uses slow TCP, or stops (L45).

    Devices come from a resource such as ``rdma/hca``, from a network that an annotation attaches,
    or from a privileged container.
    """
    job, cluster = problem.launch.kubernetes, problem.cluster
    name = NAMES.get(cluster.fabric.kind)
    requested = any("/" in resource for resource, _ in job.resources)
    if name is None or requested or job.annotations or job.privileged:
        return
    fix, resource = "", "rdma/hca"
    if cluster.fabric.kind == "efa":
        resource = EFA
        fix = "" if job.resources else f'{AT}.resources: {{{EFA}: "{cluster.node.nics}"}}'
    finding = Finding(
        f"the pods request no {name} devices, so NCCL cannot use the fabric",
        label="without devices, NCCL uses TCP through the pod network, or stops",
        help=f"set {AT}.resources to the resource of the cluster's device plugin, such as "
        f"{resource}; or set {AT}.annotations or {AT}.privileged",
        fix=fix,
        causes=(Cause("cluster", f"{name}, {cluster.node.nics} NICs per host"),),
        targets=("kubernetes",),
    )
    sink.report("L45", finding, at=AT)
