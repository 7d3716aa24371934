"""Section ``cluster``; catalog files of GPUs, node types and fabrics use the same models."""

from __future__ import annotations

from typing import Literal

from parc.compiler.spec.base import Count, CountOrZero, PositiveFloat, Strict
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
"""Kinds of `parc import` that list hosts and their switches."""


class GpuSpec(Strict):
    """GPU as the framework sees it: one device."""

    base: str | None = None
    """Catalog name to start from. The other keys override its values."""
    name: str | None = None
    """Name in reports."""
    vendor: Literal["nvidia", "amd"] | None = None
    """Vendor of the GPU."""
    generation: str | None = None
    """Architecture: catalog name (`parc catalog generations`), or the path of a YAML file with the
    same keys, relative to the spec. Determines the supported precisions and the efficiency."""
    compute_capability: str | None = None
    """CUDA compute capability, in quotes: "9.0". Absent for AMD."""
    memory: Gigabytes | None = None
    """Usable device memory as the driver reports it, in decimal GB."""
    memory_gb_per_s: PositiveFloat | None = None
    """Memory bandwidth, in decimal GB/s."""
    peak_tflops: dict[str, PositiveFloat] | None = None
    """Dense peak TFLOP/s per precision: {bf16: 989.4, fp8: 1978.9}."""
    source: str | None = None
    """Origin of the numbers."""


class NodeSpec(Strict):
    """Host type: its GPUs, their links and its NICs."""

    base: str | None = None
    """Catalog name to start from. The other keys override its values."""
    name: str | None = None
    """Name in reports."""
    gpu: str | None = None
    """Catalog name of the GPU in this host type. cluster.gpu overrides it."""
    gpus_per_node: Count | None = None
    """GPUs per host."""
    nvlink_domain: Count | None = None
    """GPUs connected by NVLink or xGMI: 8 on HGX, 72 on NVL72, 1 on PCIe."""
    link_gb_per_s: PositiveFloat | None = None
    """Bandwidth per GPU inside the NVLink domain (of PCIe if there is no NVLink), one direction, in
    decimal GB/s."""
    link_kind: Literal["nvlink", "xgmi", "pcie"] | None = None
    """Kind of the link between GPUs of a host."""
    nics: CountOrZero | None = None
    """NICs per host for the compute network."""
    nic_speed: Gigabits | None = None
    """Speed of one NIC, in Gbit/s."""
    nic_names: tuple[str, ...] | None = None
    """Device names for NCCL_IB_HCA, as ibstat prints them."""
    gpu_numa: tuple[CountOrZero, ...] | None = None
    """NUMA node of each GPU, in device order."""
    gpu_nics: tuple[str, ...] | None = None
    """Nearest NIC of each GPU, in device order."""
    cpu_cores: Count | None = None
    """Physical CPU cores per host."""
    host_memory: Gigabytes | None = None
    """Memory per host, in decimal GB. If absent, offload is not checked against it."""
    fabric: str | None = None
    """Catalog name of the fabric of this host type. cluster.fabric overrides it."""
    source: str | None = None
    """Origin of the numbers."""


class FabricSpec(Strict):
    """Network between hosts."""

    base: str | None = None
    """Catalog name to start from. The other keys override its values."""
    name: str | None = None
    """Name in reports."""
    kind: Literal["infiniband", "roce", "efa", "slingshot", "ethernet"] | None = None
    """Network technology. It determines the environment variables of NCCL."""
    latency: Seconds | None = None
    """One-way latency of a small message between hosts under one leaf switch."""
    oversubscription: PositiveFloat | None = None
    """Bandwidth below a leaf switch divided by the bandwidth above it. 1 is full bisection."""
    rails: Count | None = None
    """Leaf switches to which each host of a rack connects its NICs, in rail-optimized networks. If
    absent, all NICs of a host connect to one leaf."""
    source: str | None = None
    """Origin of the numbers."""


class RackSpec(Strict):
    """Hosts under one leaf switch."""

    name: str
    """Name of the rack."""
    nodes: str | tuple[str, ...]
    """Slurm host list, or a list of host lists: r01n[01-16]. Zero padding is kept."""
    nvlink_domain: str | None = None
    """Name of the NVLink domain that all hosts of the rack share. If absent, the domains follow
    from the node type."""
    nvlink_domains: dict[str, str | tuple[str, ...]] | None = None
    """NVLink domains of a rack that has several: name of the domain -> host list."""
    above: tuple[str, ...] | None = None
    """Switches above the leaf, nearest first: [pod1, core]. All racks must list equally many."""


class LevelSpec(Strict):
    """Tier of switches."""

    name: str
    """Name of the tier: leaf, pod, spine, core."""
    oversubscription: PositiveFloat | None = None
    """Bandwidth below a switch of the tier divided by the bandwidth above it. If absent, 1, or for
    the leaf tier the value of the fabric."""
    latency: Seconds | None = None
    """One-way latency between hosts that communicate through this tier. If absent, the latency of
    the fabric."""


class ClusterSpec(Strict):
    """Hosts on which the job can run, and their network."""

    base: str | None = None
    """Catalog name of a cluster to start from. The other keys override its values."""
    gpu: str | GpuSpec | None = None
    """Catalog name, a mapping, or the path of a YAML file with the same keys; absent: the GPU that
    the node type is sold with."""
    node: str | NodeSpec | None = None
    """Catalog name of the node type, or a mapping."""
    fabric: str | FabricSpec | None = None
    """Catalog name of the fabric, or a mapping. If absent, the fabric of the node type."""
    nodes: Count | None = None
    """Number of hosts, for clusters whose host names are not known yet. Set exactly one of nodes,
    racks and topology."""
    nodes_per_rack: Count | None = None
    """With nodes: hosts per leaf switch. If absent, all hosts are under one leaf."""
    racks: tuple[RackSpec, ...] | None = None
    """Hosts by rack. Their order breaks ties in the placement, so keep it to get stable results.
    Set exactly one of nodes, racks and topology."""
    topology: str | None = None
    """File of another tool that lists hosts and switches, in a format of `parc import`. Set exactly
    one of nodes, racks and topology."""
    topology_format: TopologyFormat | None = None
    """Format of the topology file. If absent, it is auto-detected from the content."""
    levels: tuple[LevelSpec, ...] | None = None
    """Tiers of switches, the leaf first. If absent, the tiers follow from racks or topology."""
    spare: str | tuple[str, ...] = ()
    """Host lists of hosts that stay idle as replacements."""
    unavailable: str | tuple[str, ...] = ()
    """Host lists of hosts that are drained or broken."""
    calibration: str | None = None
    """File written by `parc calibrate`, with cost-model parameters measured on this cluster. If
    absent, the shipped parameters are used."""
    source: str | None = None
    """Origin of the numbers, in catalog entries."""
