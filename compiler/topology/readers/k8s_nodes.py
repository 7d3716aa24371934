"""Reader of Kubernetes nodes: ``kubectl get nodes -o json`` with topology labels.

Supported labels: topograph (three generations), AWS, Google Cloud, the clique of the GPU operator
and the NVLink domain of CoreWeave. If a node has labels from topograph and from a cloud, those from
topograph are used, because an administrator installed topograph on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.topology.readers.document import DocumentNode, read_document
from parc.compiler.topology.readers.reader_state import (
    Fragment,
    HostFilter,
    HostLabels,
    LocatedHost,
    Reading,
    keep_all,
    summarize_names,
)

_TIERS = (
    re.compile(r"fabric\.topograph\.run/tier-([0-9]{1,2})"),
    re.compile(r"network\.topology\.nvidia\.com/tier-([0-9]{1,2})"),
)
"""Labels with numbered tiers; tier 0 is the nearest to the host."""
_NAMED = (
    tuple(f"network.topology.nvidia.com/{tier}" for tier in ("leaf", "spine", "core")),
    tuple(f"network.topology.nvidia.com/{tier}" for tier in ("block", "spine", "datacenter")),
    # AWS numbers the layers from the top: layer 3 is next to the node.
    tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (3, 2, 1)),
    tuple(f"cloud.google.com/gce-topology-{part}" for part in ("subblock", "block")),
)
"""Labels with named tiers, the leaf switch first."""
_DOMAINS = (
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "nvidia.com/gpu.clique",
    "ds.coreweave.com/nvlink.domain",
)
_GPU = "nvidia.com/gpu"
_PRODUCTS = (f"{_GPU}.product", "amd.com/gpu.product-name")
_INSTANCE = "node.kubernetes.io/instance-type"
_NETWORK_DEVICE = re.compile(
    r"(?!.*(?:kubernetes|gke)\.io[./])(?:.+/.*(?:rdma|roce|hca|hostdev|efa|ib\b).*|rdma/.+)"
)
"""Matches the resource of a device plugin that gives pods access to RDMA or EFA. Resources of GKE
have no effect without annotations, which differ from pod to pod."""
_MOST_DEVICES = 32
"""Most network devices of one host. More of a resource are shares of the same devices."""


def read_k8s_nodes(
    text: str, name: str, sink: Sink, keep: HostFilter = keep_all
) -> Fragment | None:
    """Read Kubernetes nodes as hosts; racks, tiers and NVLink domains come from node labels.

    Nodes that are not ready become unavailable hosts. Nodes without GPUs and those that ``keep``
    does not accept are left out.
    """
    reading = Reading(text, name, sink)
    reading.lists_nodes = True
    root = read_document(reading)
    if root is None or not root.check_type(dict):
        return None
    counts: dict[int, list[str]] = {}
    devices: list[dict[str, int]] = []
    without: list[str] = []
    for entry in _node_entries(root):
        host = entry.text("metadata", "name", required=True)
        gpus = _gpu_count(entry)
        # Control-plane and CPU nodes are in the same list and get no ranks.
        if gpus == 0:
            without.append(host)
            reading.left_out[host] = None
            continue
        metadata = entry.mapping("metadata")
        labels = metadata.mapping("labels") if metadata is not None else None
        written = {str(key): str(value) for key, value in (labels.value if labels else {}).items()}
        types = tuple(written[key] for key in _PRODUCTS if key in written)
        node = HostLabels(types, (), written.get(_INSTANCE, ""))
        if not keep(node):
            reading.left_out[host] = None
            continue
        reading.labels[node] = None
        reading.add_host(
            LocatedHost(host, _switch_path(written), _nvlink_domain(written), entry.span)
        )
        counts.setdefault(gpus, []).append(host)
        devices.append(_network_devices(entry))
        if not _is_ready(entry):
            reading.unavailable[host] = None
    _set_gpus_per_node(reading, counts, without)
    if requests := _device_requests(devices):
        reading.spec["launch"] = {"kubernetes": {"resources": requests}}
    return reading.fragment()


def _node_entries(root: DocumentNode) -> list[DocumentNode]:
    """Return the entries of all Kubernetes nodes in the file, which is a list or a single node."""
    if root.text("kind") == "Node":
        return [root]
    return [entry for entry in root.items("items") if entry.check_type(dict)]


def _gpu_count(entry: DocumentNode) -> int:
    """Return the number of GPUs of a Kubernetes node; 0 if the node has no GPUs.

    The number is read from a label or, if there is no such label, from the allocatable resources.
    """
    for keys in (("metadata", "labels", f"{_GPU}.count"), ("status", "allocatable", _GPU)):
        text = entry.text(*keys)
        if re.fullmatch(r"[0-9]{1,6}", text):
            return int(text)
    return 0


def _network_devices(entry: DocumentNode) -> dict[str, int]:
    """Return the allocatable network devices of a Kubernetes node, by resource."""
    status = entry.mapping("status")
    allocatable = status.mapping("allocatable") if status is not None else None
    found = {}
    for key, value in allocatable.value.items() if allocatable is not None else ():
        count = re.fullmatch(r"([0-9]{1,6})(k?)", str(value))
        if count and int(count[1]) and _NETWORK_DEVICE.fullmatch(str(key)):
            found[str(key)] = int(count[1]) * (1000 if count[2] else 1)
    return found


def _device_requests(devices: Sequence[Mapping[str, int]]) -> dict[str, str]:
    """Return what a pod requests to use all network devices of its node, by resource.

    A resource counts only if all nodes have it. Of a resource that pods share, one is enough.
    """
    found = {}
    for name in sorted(set.intersection(*map(set, devices)) if devices else ()):
        count = min(node[name] for node in devices)
        found[name] = str(count if count <= _MOST_DEVICES else 1)
    return found


def _switch_path(labels: Mapping[str, str]) -> tuple[str, ...]:
    for pattern in _TIERS:
        tiers = {int(match[1]): labels[key] for key in labels if (match := pattern.fullmatch(key))}
        if tiers:
            return tuple(tiers[tier] for tier in sorted(tiers))
    for keys in _NAMED:
        if keys[0] in labels:
            return tuple(labels[key] for key in keys if key in labels)
    return ()


def _nvlink_domain(labels: Mapping[str, str]) -> str | None:
    return next((labels[key] for key in _DOMAINS if labels.get(key)), None)


def _is_ready(entry: DocumentNode) -> bool:
    """Return True if a Kubernetes node can run a job.

    The node must not be cordoned. Its condition ``Ready`` must be True or missing.
    """
    spec, status = entry.mapping("spec"), entry.mapping("status")
    # kubectl cordon sets spec.unschedulable.
    if spec is not None and spec.value.get("unschedulable") is True:
        return False
    conditions = status.items("conditions", required=False) if status is not None else []
    ready = [one.text("status") for one in conditions if one.text("type") == "Ready"]
    return not ready or ready[0] == "True"


def _set_gpus_per_node(reading: Reading, counts: dict[int, list[str]], without: list[str]) -> None:
    if len(counts) > 1:
        parts = "; ".join(
            f"{count} on {summarize_names(hosts)}" for count, hosts in sorted(counts.items())[:3]
        )
        finding = Finding(
            f"nodes have different numbers of GPUs: {parts}",
            help="PARC supports one node type per job: select nodes of one type with "
            "kubectl -l or, in parc init, with --gpu",
        )
        reading.report_error("I03", finding, reading.span())
    if without and counts:
        finding = Finding(f"nodes without GPUs are left out: {summarize_names(without)}")
        reading.report("I04", finding, reading.span())
    if not counts and len(reading.left_out) == len(without) and reading.is_valid:
        help_ = f"GPUs are read from the label {_GPU}.count or from status.allocatable ({_GPU})"
        finding = Finding("the file has no nodes with GPUs", help=help_)
        reading.report_error("I02", finding, reading.span())
    if counts:
        reading.spec = {"cluster": {"node": {"gpus_per_node": min(counts)}}}
