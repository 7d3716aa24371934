"""Section ``cluster`` of a starter spec, from a number of GPUs or from the nodes of a cluster.

GPUs and hosts are found in the catalog by the names that Slurm, Kubernetes and people use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from parc.compiler.catalog.find_hardware import find_gpu, node_for_gpu
from parc.compiler.catalog.instance_types import node_of_instance_type
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.import_files import import_files
from parc.compiler.topology.readers.cluster_section import cluster_section
from parc.compiler.topology.readers.reader_state import Fragment

_GPU_NAMES = re.compile(
    r'"nvidia\.com/gpu\.product"\s*:\s*"([^"]+)"|"amd\.com/gpu\.product-name"\s*:\s*"([^"]+)"'
    r"|\bgpu:([A-Za-z][\w.-]*):[0-9]"
)
_FEATURES = re.compile(r"\bAvailableFeatures=(\S+)")
_PARTITIONS = re.compile(r'\bPartitions=(\S+)|"partitions"\s*:\s*\[([^\]]*)\]')
"""Partitions of a host in the text and in the JSON output of ``scontrol show nodes``."""
_INSTANCE = re.compile(r'"node\.kubernetes\.io/instance-type"\s*:\s*"([^"]+)"')


Scheduler = Literal["slurm", "kubernetes"]


class StarterError(ValueError):
    """Error in the arguments of ``parc init``; the message is for the user."""


@dataclass(frozen=True, slots=True)
class StarterCluster:
    """Cluster of a starter spec."""

    section: dict[str, Any]
    """Keys of section ``cluster`` without the number of hosts, unless the hosts have names."""
    gpus_per_node: int
    hosts: int | None
    """Number of hosts that can run the job; None if ``parc init`` chooses the number."""
    scheduler: Scheduler = "slurm"
    partition: str = ""
    """Partition of Slurm, if all hosts have the same one; empty if there are several."""
    site: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the site; empty for none."""

    @property
    def has_names(self) -> bool:
        """Return True if the section lists the hosts."""
        return "racks" in self.section


def cluster_of_gpus(gpu: str, gpus: int | None, site: Mapping[str, Any]) -> StarterCluster:
    """Return a cluster of ``gpus`` GPUs of type ``gpu``, whose hosts have no names yet.

    Without ``gpu``, ``site`` determines the node type.

    Raises:
        StarterError: the catalog has no such GPU, the site has no node type, or the hosts would not
            be full.
    """
    scheduler: Scheduler = "kubernetes" if "kubernetes" in site.get("launch", {}) else "slurm"
    node = site.get("cluster", {}).get("node")
    if not gpu and node is None:
        raise StarterError("the site sets no cluster.node; set the type with --gpu")
    section = node_section(_gpu_name(gpu), None) if gpu else {"node": node}
    size = gpus_per_node(section)
    if gpus is None:
        return StarterCluster(section, size, None, scheduler, site=site)
    if gpus < size:
        return StarterCluster(part_of_host(section, gpus), gpus, 1, scheduler, site=site)
    if gpus % size:
        low = gpus // size * size
        raise StarterError(
            f"{gpus} GPUs are not divisible by {size} GPUs per host; use --gpus {low} or "
            f"{low + size}"
        )
    return StarterCluster(section, size, gpus // size, scheduler, site=site)


def cluster_of_files(
    files: Sequence[tuple[str, str]],
    gpu: str,
    gpus: int | None,
    site: Mapping[str, Any],
    sink: Sink,
) -> StarterCluster | None:
    """Return the cluster that node lists, given as (text, name), describe; None after an error.

    Args:
        files: output of Slurm's or Kubernetes' tools, in formats of ``parc import``.
        gpu: GPU type; empty to read it from the files.
        gpus: number of GPUs of the job; None for all that can run a job.
        site: settings of the site; its node type is used if it has the GPUs of the files.
        sink: receives the findings of the readers.

    Raises:
        StarterError: the files do not name the GPU type, or have fewer than ``gpus`` GPUs.
    """
    found = import_files("auto", files, sink)
    if found is None:
        return None
    text = "\n".join(text for text, _ in files)
    instance = _INSTANCE.search(text)
    node = node_of_instance_type(instance[1]) if instance is not None and not gpu else ""
    read = found.fragment.spec.get("cluster", {}).get("node", {})
    node_of_site = site.get("cluster", {}).get("node")
    gpu_of_site, size_of_site = _node_facts(node_of_site)
    name = (
        Library().entry("nodes", node)["gpu"]
        if node
        else _gpu_name(gpu or _gpu_in(text, gpu_of_site))
    )
    section = node_section(name, read.get("gpus_per_node"), node)
    size = gpus_per_node(section)
    if not gpu and (name, size) == (gpu_of_site, size_of_site):
        section = {"node": node_of_site}
    fragment = _limit_hosts(found.fragment, size, gpus)
    racks, _ = cluster_section(replace(fragment, spec={}), sink)
    hosts = len(fragment.hosts) - len(fragment.unavailable)
    scheduler: Scheduler = "kubernetes" if "k8s-nodes" in found.kinds else "slurm"
    partition = _partition_in(text)
    return StarterCluster({**section, **racks}, size, hosts, scheduler, partition, site)


def _node_facts(node: Any) -> tuple[str, int]:
    """Return (GPU type, GPUs per host) of a value of ``cluster.node``; ("", 0) if unknown."""
    base = node.get("base", "") if isinstance(node, dict) else node
    if base not in Library().names("nodes"):
        return "", 0
    return Library().entry("nodes", base)["gpu"], gpus_per_node({"node": node})


def _partition_in(text: str) -> str:
    """Return the only partition that has all hosts of a node list; empty if there is not one."""
    found = [set(re.findall(r"[^\s,\"]+", a or b)) for a, b in _PARTITIONS.findall(text)]
    common = set.intersection(*found) if found else set()
    return common.pop() if len(common) == 1 else ""


def _gpu_name(text: str) -> str:
    name = find_gpu(text)
    if name is None:
        raise StarterError(f"the catalog has no GPU {text!r}; `parc catalog gpus` lists the names")
    return name


def _gpu_in(text: str, default: str) -> str:
    """Return the name of the GPU type in a node list, or ``default`` if it has none.

    A list of Slurm without types (``gpu:8``) may name the GPU among the features of the hosts.
    """
    names: set[str] = {next(filter(None, groups)) for groups in _GPU_NAMES.findall(text)}
    if not names:
        words = {word for found in _FEATURES.findall(text) for word in found.split(",")}
        names = {word for word in words if find_gpu(word)} or {default} - {""}
    if len({find_gpu(name) for name in names}) == 1:
        return names.pop()
    shown = f"several GPU types ({', '.join(sorted(names)[:5])})" if names else "no GPU type"
    raise StarterError(f"the node list has {shown}; add the type, such as --gpu h100")


def _limit_hosts(fragment: Fragment, size: int, gpus: int | None) -> Fragment:
    """Return ``fragment`` with only as many hosts as ``gpus`` GPUs need, in the order of the file.

    ``size`` is the number of GPUs per host. Without ``gpus``, all hosts stay.
    """
    gone = set(fragment.unavailable)
    usable = [host for host in fragment.hosts if host.name not in gone]
    if not usable:
        raise StarterError(f"none of the {len(fragment.hosts)} hosts of the node list can run jobs")
    if gpus is None:
        return fragment
    count, rest = divmod(gpus, size)
    if rest or not 0 < count <= len(usable):
        raise StarterError(
            f"--gpus {gpus} is not possible: {len(usable)} hosts with {size} GPUs each can run "
            f"jobs; use a multiple of {size} up to {size * len(usable)}"
        )
    return replace(fragment, hosts=tuple(usable[:count]), unavailable=())


def node_section(gpu: str, gpus_per_node: int | None, node: str = "") -> dict[str, Any]:
    """Return the keys of section ``cluster`` that describe a host with ``gpu``.

    Args:
        gpu: catalog name of the GPU.
        gpus_per_node: number of GPUs per host; None for that of the node type.
        node: node type of the catalog, if it is known.
    """
    exact = True
    if not node:
        node, exact = node_for_gpu(gpu)
    section: dict[str, Any] = {"node": node} if exact else {"gpu": gpu, "node": node}
    same = gpus_per_node in (None, Library().entry("nodes", node)["gpus_per_node"])
    return section if same or gpus_per_node is None else part_of_host(section, gpus_per_node)


def part_of_host(section: dict[str, Any], gpus: int) -> dict[str, Any]:
    """Return ``section`` (from ``node_section``) changed to hosts with ``gpus`` GPUs."""
    node = section["node"] if isinstance(section["node"], dict) else {"base": section["node"]}
    facts = Library().entry("nodes", node["base"])
    # A domain of several hosts (NVL72) has no meaning for hosts of another size.
    domain = gpus if facts["nvlink_domain"] > 1 else 1
    return {**section, "node": {**node, "gpus_per_node": gpus, "nvlink_domain": domain}}


def gpu_of_section(section: dict[str, Any]) -> str:
    """Return the catalog name of the GPU of a result of ``node_section``."""
    node = section["node"]
    base = node["base"] if isinstance(node, dict) else node
    return str(section.get("gpu") or Library().entry("nodes", base)["gpu"])


def gpus_per_node(section: dict[str, Any]) -> int:
    """Return the number of GPUs per host of a result of ``node_section``."""
    node = section["node"]
    if not isinstance(node, dict):
        node = {"base": node}
    return int((Library().entry("nodes", node["base"]) | node)["gpus_per_node"])
