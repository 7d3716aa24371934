"""Section ``cluster`` of a starter spec, from a number of GPUs or from the nodes of a cluster.

GPUs and hosts are found in the catalog by the names that Slurm, Kubernetes and people use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, Literal

from parc.compiler.catalog.find_hardware import find_gpu, find_gpus, node_for_gpu
from parc.compiler.catalog.instance_types import node_of_instance_type
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Gpu
from parc.compiler.ir.frozen import frozen
from parc.compiler.resolve.resolve_hardware import Hardware, resolve_hardware
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.tools.importers.import_files import ImportResult, import_files
from parc.compiler.tools.starter.choose_gpu import (
    GpuChoice,
    StarterError,
    choose_gpu,
    possible_gpus,
)
from parc.compiler.topology.readers.cluster_section import cluster_section
from parc.compiler.topology.readers.reader_state import Fragment, HostLabels

Scheduler = Literal["slurm", "kubernetes"]
Section = dict[str, Any]
"""Keys of section ``cluster`` of a spec."""
_HARDWARE_KEYS = ("gpu", "node", "fabric")
"""Keys of section ``cluster`` that describe the hosts."""

_NODE_LISTS = (
    'use the unchanged output of scontrol show nodes, sinfo -N -o "%N %G %T %P" or, for '
    "Kubernetes, kubectl get nodes -o json"
)
"""Advice for a file that is not a list of nodes."""


@frozen
class HostRequest:
    """GPUs for which a starter spec is written."""

    gpu: str
    """GPU type that the user names; empty for that of the node lists or of the site."""
    gpus: int | None
    """Number of GPUs; None for all of a node list, or as few as the job needs."""
    site: Mapping[str, Any]
    """Settings of the site; empty for none."""
    site_hosts: Hardware | None
    """Hosts of the site; None if it sets no node type."""
    library: Library
    partition: str = ""
    """Partition of Slurm whose hosts run the job; empty for hosts of all partitions."""

    def accepts(self, host: HostLabels, *, unknown: bool = True) -> bool:
        """Return True if a listed host has the GPU type and the partition that the user names.

        A host is accepted if the list states only part of the name of its GPU, such as ``h100`` for
        an H100 NVL, and with ``unknown`` also if the catalog lacks the GPU type of the list.
        """
        if self.partition and self.partition not in host.partitions:
            return False
        known, wanted = possible_gpus(host), find_gpus(self.gpu) if self.gpu else ()
        if not wanted or (not known and (unknown or not host.gpu_types)):
            return True
        return any(name in known for name in wanted)


@frozen
class StarterCluster:
    """Cluster of a starter spec."""

    section: Section
    """Keys of section ``cluster`` without the number of hosts, unless the hosts have names. Without
    the key ``node``, the hosts are those of the site."""
    gpu: Gpu
    gpus_per_node: int
    hosts: int | None
    """Number of hosts that can run the job; None if ``parc init`` chooses the number."""
    scheduler: Scheduler = "slurm"
    partition: str = ""
    """Partition of Slurm, if all hosts have the same one; empty if there are several."""
    site: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the site; empty for none."""
    pod_resources: Mapping[str, str] = field(default_factory=dict)
    """Network devices that each pod requests, for Kubernetes; empty if no list states them."""
    choice: GpuChoice | None = None
    """Choice of the GPU among several of the same name; None if the site sets the GPU."""

    @property
    def has_similar_node(self) -> bool:
        """Return True if the node type is that of another GPU, because the catalog has none."""
        node = self.section.get("node")
        # A node type that the site describes in full has no base.
        base = node.get("base") if isinstance(node, dict) else node
        gpu = self.section.get("gpu")
        return gpu is not None and base is not None and Library().entry("nodes", base)["gpu"] != gpu

    @property
    def has_names(self) -> bool:
        """Return True if the section lists the hosts."""
        return "racks" in self.section


def resolve_hosts(
    section: Section, site: Mapping[str, Any], library: Library, sink: Sink
) -> Hardware | None:
    """Return the hosts of a section ``cluster``, completed by those of a site.

    Returns None after an error, and if neither sets a node type.
    """
    of_site = site.get("cluster", {})
    tree = {key: of_site[key] for key in _HARDWARE_KEYS if key in of_site} | section
    if isinstance(tree.get("node"), dict) and isinstance(of_site.get("node"), dict):
        tree["node"] = of_site["node"] | tree["node"]
    if tree.get("node") is None:
        return None
    # The models are strict: they accept a list as a tuple only in JSON.
    spec = ClusterSpec.model_validate_json(json.dumps({**tree, "nodes": 1}))
    return resolve_hardware(spec, library, sink, "cluster")


def cluster_of_gpus(request: HostRequest, sink: Sink) -> StarterCluster | None:
    """Return a cluster whose hosts have no names yet; None after an error that ``sink`` receives.

    Without a GPU type, the site determines the node type.

    Raises:
        StarterError: the catalog has no such GPU, the site has no node type, or the hosts would not
            be full.
    """
    site, gpus, hosts = request.site, request.gpus, request.site_hosts
    scheduler: Scheduler = "kubernetes" if "kubernetes" in site.get("launch", {}) else "slurm"
    section: Section = {}
    choice = None
    if request.gpu:
        choice = choose_gpu(request.gpu, (), hosts.gpu.catalog_name if hosts else "")
        section = _hosts_with_gpu(choice.name, site)
        hosts = resolve_hosts(section, site, request.library, sink)
    elif hosts is None:
        raise StarterError("the site sets no cluster.node; set the type with --gpu")
    if hosts is None:
        return None
    size = hosts.node.gpus
    if gpus is None:
        return StarterCluster(section, hosts.gpu, size, None, scheduler, "", site, choice=choice)
    if gpus < size:
        node = section["node"] if section else site["cluster"]["node"]
        changed = _with_size(node, gpus, hosts.node.nvlink_domain, site)
        section = {**section, "node": changed}
        return StarterCluster(section, hosts.gpu, gpus, 1, scheduler, "", site, choice=choice)
    if gpus % size:
        low = gpus // size * size
        raise StarterError(
            f"{gpus} GPUs are not divisible by {size} GPUs per host; use --gpus {low} or "
            f"{low + size}"
        )
    return StarterCluster(
        section, hosts.gpu, size, gpus // size, scheduler, "", site, choice=choice
    )


def cluster_of_files(
    files: Sequence[tuple[str, str]], request: HostRequest, sink: Sink
) -> StarterCluster | None:
    """Return the cluster that node lists, given as (text, name), describe; None after an error.

    The hosts are those of the site if these have the GPUs of the files.

    Args:
        files: output of Slurm's or Kubernetes' tools, in formats of ``parc import``.
        request: GPU type, number of GPUs and site.
        sink: receives the findings of the readers.

    Raises:
        StarterError: the files do not name the GPU type, or have fewer GPUs than requested.
    """
    found = _read_files(files, request, sink)
    if found is None:
        return None
    if found.fragment.left_out and not found.fragment.hosts:
        gpu = f" with GPU type {request.gpu}" if request.gpu else ""
        partition = f" in partition {request.partition}" if request.partition else ""
        raise StarterError(f"the node list has no GPU hosts{gpu}{partition}")
    if not found.fragment.hosts:
        raise StarterError(f"{files[0][1]} lists no hosts; {_NODE_LISTS}")
    section, choice = _listed_hosts(found.fragment, request)
    hosts = resolve_hosts(section, request.site, request.library, sink)
    if hosts is None:
        return None
    size = hosts.node.gpus
    fragment = _limit_hosts(found.fragment, size, request.gpus)
    if hosts.node.nvlink_domain <= size:
        # Some tools label hosts whose NVLink ends at the host with the name of a switch.
        alone = tuple(replace(host, nvlink_domain=None) for host in fragment.hosts)
        fragment = replace(fragment, hosts=alone)
    racks, _ = cluster_section(replace(fragment, spec={}), sink)
    return StarterCluster(
        {**section, **racks},
        hosts.gpu,
        size,
        len(fragment.hosts) - len(fragment.unavailable),
        "kubernetes" if "k8s-nodes" in found.kinds else "slurm",
        request.partition or _common_partition(found.fragment.labels),
        request.site,
        found.fragment.spec.get("launch", {}).get("kubernetes", {}).get("resources", {}),
        choice,
    )


def _read_files(
    files: Sequence[tuple[str, str]], request: HostRequest, sink: Sink
) -> ImportResult | None:
    """Return the content of node lists with the hosts that are accepted; None after an error.

    Hosts whose GPU type the catalog lacks are accepted only if no others have the GPU that the user
    names.
    """
    if request.gpu:
        first = Sink(sink.positions)
        known = partial(request.accepts, unknown=False)
        found = import_files("auto", files, first, known, _NODE_LISTS)
        if found is not None and found.fragment.hosts:
            sink.extend(first)
            return found
    return import_files("auto", files, sink, request.accepts, _NODE_LISTS)


def _listed_hosts(fragment: Fragment, request: HostRequest) -> tuple[Section, GpuChoice | None]:
    """Return the keys that describe the hosts of node lists, and the choice of the GPU.

    The keys are empty for the hosts of the site.
    """
    instances = {one.instance_type for one in fragment.labels} - {""}
    node = "" if request.gpu or not instances else node_of_instance_type(min(instances))
    of_site = request.site_hosts
    choice = None
    if node:
        gpu = str(Library().entry("nodes", node)["gpu"])
    else:
        default = of_site.gpu.catalog_name if of_site else ""
        named = request.gpu or _listed_gpu(fragment.labels, default)
        choice = choose_gpu(named, fragment.labels, default)
        gpu = choice.name
    section = _hosts_with_gpu(gpu, request.site, node)
    facts = Library().entry("nodes", section["node"])
    size = fragment.spec.get("cluster", {}).get("node", {}).get("gpus_per_node")
    if size is None:
        size = facts["gpus_per_node"]
    if not request.gpu and of_site and (of_site.gpu.catalog_name, of_site.node.gpus) == (gpu, size):
        return {}, choice
    if size != facts["gpus_per_node"]:
        domain = facts["nvlink_domain"]
        section["node"] = _with_size(section["node"], size, domain, request.site)
    return section, choice


def _common_partition(labels: Sequence[HostLabels]) -> str:
    """Return the only partition that all hosts are in; empty if there are several.

    Raises:
        StarterError: no partition has all hosts, so that no job can run on all of them.
    """
    found = [set(one.partitions) for one in labels if one.partitions]
    if not found:
        return ""
    common = set.intersection(*found)
    if not common:
        names = sorted(set.union(*found))
        raise StarterError(
            f"no partition has all hosts of the node list; select one of {', '.join(names)}, such "
            f"as --partition {names[0]}"
        )
    return common.pop() if len(common) == 1 else ""


def _listed_gpu(labels: Sequence[HostLabels], default: str) -> str:
    """Return the name of the GPU type in a node list, or ``default`` if it has none.

    In a list of Slurm without types (``gpu:8``), one of the features of the hosts may name the GPU.
    """
    # Only features may name no GPU: the type of a gres is an error if the catalog lacks it.
    words = [one.type_words for one in labels]
    names = {name for types in words for name in types if len(types) == 1 or find_gpu(name)}
    known = {name for name in names if find_gpu(name)}
    names = known or names or {default} - {""}
    if len({find_gpu(name) for name in names}) == 1:
        return min(names)
    shown = f"several GPU types ({', '.join(sorted(names)[:5])})" if names else "no GPU type"
    if not names and not any(words):
        shown += " and no host with gpu in its gres"
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
            f"--gpus {gpus} is not possible: {len(usable)} of {len(fragment.hosts)} hosts can run "
            f"jobs, each with {size} GPUs; use a multiple of {size} up to {size * len(usable)}"
        )
    return replace(fragment, hosts=tuple(usable[:count]), unavailable=())


def _hosts_with_gpu(gpu: str, site: Mapping[str, Any], node: str = "") -> Section:
    """Return the keys that describe hosts with a GPU of the catalog, instead of those of the site.

    ``node`` is the node type, if it is known.
    """
    exact = True
    if not node:
        node, exact = node_for_gpu(gpu)
    return {"node": node} if exact and not _sets_gpu(site) else {"gpu": gpu, "node": node}


def _sets_gpu(site: Mapping[str, Any]) -> bool:
    """Return True if the site sets ``cluster.gpu``, which also applies to other node types."""
    return site.get("cluster", {}).get("gpu") is not None


def _with_size(
    node: str | dict[str, Any], gpus: int, nvlink_domain: int, site: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the node type ``node``, which has ``nvlink_domain``, changed to hosts with ``gpus``.

    The result is a mapping, which is merged with a mapping of the site. It therefore sets keys of
    another node type of the site to null.
    """
    # A domain of several hosts (NVL72) has no meaning for hosts of another size.
    size = {"gpus_per_node": gpus, "nvlink_domain": gpus if nvlink_domain > 1 else 1}
    if isinstance(node, dict):
        return {**node, **size}
    of_site = site.get("cluster", {}).get("node")
    others = dict.fromkeys(of_site) if isinstance(of_site, dict) else {}
    return {**others, "base": node, **size}
