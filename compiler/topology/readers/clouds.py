"""Readers of the topologies of cloud providers: AWS, Google Cloud, Oracle Cloud and Lambda Cloud.

AWS: output of ``aws ec2 describe-instance-topology``
(https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceTopology.html). NetworkNodes are
listed from the top of the network down to the layer next to the instance. Instances of an
UltraServer share a CapacityBlockId, which identifies their NVLink domain (as in topograph,
pkg/providers/aws).

Google Cloud: output of ``gcloud compute instances list --format json``, or the API response
(https://cloud.google.com/compute/docs/instances/view-vm-topology). physicalHostTopology has
cluster, block, subblock and host, from far to near. A subblock is a leaf.

Oracle Cloud: compute hosts of the API, or rdmaTopologyData of the hosts
(https://docs.oracle.com/iaas/api, ComputeHost). A local block is part of a network block, which is
part of an HPC island. The metadata of a host (``/opc/v2/host/rdmaTopologyData``) has the same data
under other keys.

Lambda Cloud: a list of instances, each with its switches, the nearest first, and its NVLink domain.
"""

from __future__ import annotations

from parc.compiler.catalog.instance_types import node_of_instance_type
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.topology.readers.document import DocumentNode, read_document
from parc.compiler.topology.readers.reader_state import (
    Fragment,
    LocatedHost,
    Reading,
    summarize_names,
)


def read_aws(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read AWS instances as hosts, with the instance id as the host name.

    The nearest network layer becomes the rack. Higher layers become tiers of switches.
    """
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None or not root.check_type(dict):
        return None
    types: dict[str, None] = {}
    for entry in root.items("Instances"):
        if not entry.check_type(dict):
            continue
        layers = [layer.value for layer in entry.items("NetworkNodes") if layer.check_type(str)]
        if not layers:
            entry.report_missing("NetworkNodes")
        host = entry.text("InstanceId", required=True)
        block = entry.text("CapacityBlockId") or None
        # AWS lists the top of the network first; a path starts at the leaf.
        reading.add_host(LocatedHost(host, tuple(reversed(layers)), block, entry.span))
        types[entry.text("InstanceType")] = None
    _report_missing_instances(root, "NextToken", reading)
    _set_aws_node_type([kind for kind in types if kind], reading)
    return reading.fragment()


def _set_aws_node_type(types: list[str], reading: Reading) -> None:
    reading.notes.append("hosts are named by instance id; Slurm and ssh use other names")
    if len(types) == 1 and (node := node_of_instance_type(types[0])):
        reading.spec = {"cluster": {"node": node}}
    elif types:
        reading.notes.append(f"instance type {summarize_names(types)}")


# From near to far, as the path of a host.
_TIERS = ("subblock", "block", "cluster")


def read_gcp(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read Google Cloud instances as hosts.

    The subblock becomes the rack. The block and the cluster become tiers of switches. Instances
    without a physicalHostTopology are left out; a warning (I04) lists them.
    """
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None:
        return None
    # gcloud prints a list; the API returns an object with items.
    listed = root.items() if isinstance(root.value, list) else root.items("items")
    without: list[str] = []
    for entry in listed:
        if not entry.check_type(dict):
            continue
        host, path = entry.text("name", required=True), _gcp_switch_path(entry)
        if path:
            reading.add_host(LocatedHost(host, path, None, entry.span))
        else:
            without.append(host)
    if without and reading.hosts:
        finding = Finding(
            f"instances without physicalHostTopology are left out: {summarize_names(without)}"
        )
        reading.report("I04", finding, reading.span())
    if not reading.hosts and reading.is_valid:
        help_ = (
            "Google Cloud sets resourceStatus.physicalHostTopology on VMs with a placement policy"
        )
        finding = Finding("no instance has a physicalHostTopology", help=help_)
        reading.report_error("I02", finding, reading.span())
    return reading.fragment()


def _gcp_switch_path(entry: DocumentNode) -> tuple[str, ...]:
    status = entry.mapping("resourceStatus")
    place = status.mapping("physicalHostTopology") if status is not None else None
    if place is None:
        return ()
    return tuple(place.text(tier, required=True) for tier in _TIERS)


_API = ("localBlockId", "networkBlockId", "hpcIslandId", "gpuMemoryFabricId")
_METADATA = (
    "customerLocalBlock",
    "customerNetworkBlock",
    "customerHPCIslandId",
    "customerGpuMemoryFabric",
)


def read_oci(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read the hosts of Oracle Cloud, with the hostname or an id as the host name.

    The local block becomes the rack. The network block and the HPC island become tiers of switches.
    """
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None:
        return None
    for entry in _oci_host_entries(root):
        if not entry.check_type(dict):
            continue
        # The metadata of a host uses other keys than the API.
        keys = _METADATA if entry.child("customerLocalBlock") is not None else _API
        path = tuple(entry.text(key, required=True) for key in keys[:3])
        domain = entry.text(keys[3]) or None
        host = entry.text("hostname") or entry.text("instanceId")
        host = host or entry.text("customerHostId") or entry.text("id", required=True)
        reading.add_host(LocatedHost(host, path, domain, entry.span))
    if not reading.hosts and reading.is_valid:
        reading.report_error("I02", "the output has no hosts", reading.span())
    reading.notes.append("hosts are named by OCID; Slurm and ssh use other names")
    return reading.fragment()


def _oci_host_entries(root: DocumentNode) -> list[DocumentNode]:
    """Return the entries of the hosts in a file of Oracle Cloud.

    The API lists hosts below ``items``, the command line below ``data`` or ``data.items``. The root
    of the file can also be a list of hosts, or a single host.
    """
    if isinstance(root.value, list):
        return root.items()
    data = root.child("data")
    if data is not None:
        return data.items() if isinstance(data.value, list) else data.items("items")
    return root.items("items") if root.child("items") is not None else [root]


def read_lambda(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read Lambda Cloud instances as hosts; racks and tiers come from ``networkPath``."""
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None or not root.check_type(dict):
        return None
    for entry in root.items("data"):
        if not entry.check_type(dict):
            continue
        path = [part.text("id", required=True) for part in entry.items("networkPath")]
        host = entry.text("id", required=True)
        reading.add_host(LocatedHost(host, tuple(path), _lambda_nvlink_domain(entry), entry.span))
    _report_missing_instances(root, "page_token", reading)
    return reading.fragment()


def _lambda_nvlink_domain(entry: DocumentNode) -> str | None:
    nvlink = entry.mapping("nvlink")
    domain = nvlink.text("domain_id") if nvlink is not None else ""
    clique = nvlink.text("clique_id") if nvlink is not None else ""
    return (f"{domain}.{clique}" if clique else domain) or None


def _report_missing_instances(root: DocumentNode, token: str, reading: Reading) -> None:
    """Report output that has no instances (I02), or that is one of several pages (I04).

    ``token`` is the key of the identifier of the next page.
    """
    if root.text(token):
        finding = Finding(
            f"the output is incomplete: it has a {token}", help="pass the other pages too"
        )
        reading.report("I04", finding, reading.span())
    if not reading.hosts and reading.is_valid:
        reading.report_error("I02", "the output has no instances", reading.span())
