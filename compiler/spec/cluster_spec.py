"""``cluster:``; the catalog files of GPUs, node types and fabrics are read into the same."""

from __future__ import annotations

from typing import Literal

from parc.compiler.spec.base import Strict
from parc.compiler.spec.numbers import Degree, Degree0, Real
from parc.compiler.spec.units import Gigabits, Gigabytes, Seconds

TopologyFormat = Literal[
    "slurm-topology",
    "scontrol-nodes",
    "topograph",
    "k8s-nodes",
    "aws",
    "gcp",
    "oci",
    "lambda",
    "ibnetdiscover",
]
"""Kinds of `parc import` that say which hosts there are and where."""


class GpuSpec(Strict):
    """GPU as a framework sees it: one device."""

    base: str | None = None
    """Catalog name to start from; the other keys change it."""
    name: str | None = None
    """Name for reports."""
    vendor: Literal["nvidia", "amd"] | None = None
    """Manufacturer."""
    generation: str | None = None
    """Architecture: catalog name (`parc catalog generations`), or the path of a YAML file with the
    same keys, relative to the spec. Decides precisions and efficiency."""
    compute_capability: str | None = None
    """CUDA compute capability, quoted: "9.0"; absent on AMD."""
    memory: Gigabytes | None = None
    """Usable device memory that the driver reports, decimal GB."""
    memory_gb_per_s: Real | None = None
    """Memory bandwidth, decimal GB/s."""
    peak_tflops: dict[str, Real] | None = None
    """Dense peak by precision: {bf16: 989.4, fp8: 1978.9}."""
    source: str | None = None
    """Source of the numbers."""


class NodeSpec(Strict):
    """Host type: GPUs, their links, and NICs."""

    base: str | None = None
    """Catalog name to start from; the other keys change it."""
    name: str | None = None
    """Name for reports."""
    gpu: str | None = None
    """The GPU it is sold with; cluster.gpu overrides it."""
    gpus_per_node: Degree | None = None
    """GPUs in one host."""
    nvlink_domain: Degree | None = None
    """GPUs that reach one another over NVLink or xGMI: 8 on HGX, 72 on NVL72, 1 on PCIe."""
    link_gb_per_s: Real | None = None
    """One direction, per GPU, inside the NVLink domain (PCIe where there is none), decimal GB/s."""
    link_kind: Literal["nvlink", "xgmi", "pcie"] | None = None
    """What the link is."""
    nics: Degree0 | None = None
    """Compute NICs of the host."""
    nic_speed: Gigabits | None = None
    """Speed of one NIC, gigabits a second."""
    nic_names: tuple[str, ...] | None = None
    """Device names for NCCL_IB_HCA, as ibstat prints them."""
    gpu_numa: tuple[Degree0, ...] | None = None
    """NUMA node of every GPU, in device order."""
    gpu_nics: tuple[str, ...] | None = None
    """The nearest NIC of every GPU, in device order."""
    cpu_cores: Degree | None = None
    """Physical cores of the host."""
    host_memory: Gigabytes | None = None
    """Memory of the host, decimal GB; absent: offload is not checked against it."""
    fabric: str | None = None
    """The fabric it is sold with; cluster.fabric overrides it."""
    source: str | None = None
    """Where the numbers are from."""


class FabricSpec(Strict):
    """The network between hosts."""

    base: str | None = None
    """Catalog name to start from; the other keys change it."""
    name: str | None = None
    """Name for reports."""
    kind: Literal["infiniband", "roce", "efa", "slingshot", "ethernet"] | None = None
    """Decides the NCCL environment."""
    latency: Seconds | None = None
    """One-way latency of a small message inside one leaf."""
    oversubscription: Real | None = None
    """Bandwidth below a leaf over bandwidth above it; 1 = full bisection."""
    rails: Degree | None = None
    """Rail-optimised: leaf switches of a rack that each of its hosts is on; absent: one."""
    source: str | None = None
    """Where the numbers are from."""


class RackSpec(Strict):
    """Hosts under one leaf switch."""

    name: str
    """Name of the rack."""
    nodes: str | tuple[str, ...]
    """Slurm host list, or a list of them: r01n[01-16]; zero padding is kept."""
    nvlink_domain: str | None = None
    """Name of the NVLink domain all of them share; absent: derived from the node type."""
    nvlink_domains: dict[str, str | tuple[str, ...]] | None = None
    """Where they share several: the name of each NVLink domain, and a host list of its hosts."""
    above: tuple[str, ...] | None = None
    """Switches above this leaf, nearest first: [pod1, core]; as many for every rack."""


class LevelSpec(Strict):
    """Tier of switches."""

    name: str
    """Name of the tier: leaf, pod, spine, core."""
    oversubscription: Real | None = None
    """Bandwidth that comes up into its switches over what leaves them upward; absent: 1."""
    latency: Seconds | None = None
    """One-way latency between hosts that meet here; absent: that of the fabric."""


class ClusterSpec(Strict):
    """Hardware and hosts that the job may use."""

    base: str | None = None
    """Catalog name of a whole cluster; the other keys change it."""
    gpu: str | GpuSpec | None = None
    """Catalog name, a mapping, or the path of a YAML file with the same keys; absent: the GPU that
    the node type is sold with."""
    node: str | NodeSpec | None = None
    """Catalog name of the node type, or a mapping."""
    fabric: str | FabricSpec | None = None
    """Catalog name, or a mapping; absent: the one the node type is sold with."""
    nodes: Degree | None = None
    """Number of hosts, when their names are not known yet. One of nodes, racks, topology."""
    nodes_per_rack: Degree | None = None
    """With nodes: hosts under one leaf; absent: all under one."""
    racks: tuple[RackSpec, ...] | None = None
    """Hosts by rack, in the order that matters for stability. One of nodes, racks, topology."""
    topology: str | None = None
    """File of another tool that says where hosts are: what `parc import` reads. One of three."""
    topology_format: TopologyFormat | None = None
    """What wrote the file of topology; absent: seen from its content."""
    levels: tuple[LevelSpec, ...] | None = None
    """Tiers of switches, the leaf first; absent: as many as the racks or the topology name."""
    spare: str | tuple[str, ...] = ()
    """Hosts kept idle for replacement: host lists."""
    unavailable: str | tuple[str, ...] = ()
    """Hosts that are drained or broken: host lists."""
    calibration: str | None = None
    """File that `parc calibrate` wrote: what this cluster was measured to do."""
    source: str | None = None
    """Where the numbers are from (catalog entries)."""
