"""Models of section ``cluster``. Catalog files of GPUs, node types and fabrics use them too."""

from typing import Literal

from parc.compiler.spec.base import Count, CountOrZero, LoadFactor, PositiveFloat, StrictModel
from parc.compiler.spec.units import Duration, Gigabits, Gigabytes, Seconds, Share, Watts

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
"""Formats of `parc import` whose files list hosts and the switches above them."""


# All fields of hardware models are optional, because ``base`` or the catalog can supply them.
class GpuSpec(StrictModel):
    """GPU type. One GPU is what the framework counts as one device."""

    base: str | None = None
    """Name of a catalog entry to start from. Keys that are set here override the values of that
    entry."""
    name: str | None = None
    """Name to show in reports."""
    vendor: Literal["nvidia", "amd"] | None = None
    """Vendor of the GPU."""
    generation: str | None = None
    """Architecture of the GPU: a name that `parc catalog generations` lists, or the path of a YAML
    file (relative to the spec) with the keys of a catalog generation. It determines the supported
    precisions and the efficiency factors."""
    compute_capability: str | None = None
    """CUDA compute capability as quoted text, such as "9.0". Not set for AMD GPUs."""
    memory: Gigabytes | None = None
    """Usable device memory that the driver reports, in decimal GB."""
    memory_gb_per_s: PositiveFloat | None = None
    """Memory bandwidth, in decimal GB/s."""
    peak_tflops: dict[str, PositiveFloat] | None = None
    """Dense peak TFLOP/s per precision, for example {bf16: 989.4, fp8: 1978.9}."""
    watts: Watts | None = None
    """Power limit of one GPU (TDP). Only the energy of a run depends on it."""
    source: str | None = None
    """Source of the numbers: a document or a page."""


class NodeSpec(StrictModel):
    """Host type: number of GPUs, links between the GPUs, and NICs."""

    base: str | None = None
    """Name of a catalog entry to start from. Keys that are set here override the values of that
    entry."""
    name: str | None = None
    """Name to show in reports."""
    gpu: str | None = None
    """Catalog name of the GPU in this host type. If cluster.gpu is set, it is used instead."""
    gpus_per_node: Count | None = None
    """Number of GPUs per host."""
    nvlink_domain: Count | None = None
    """Number of GPUs that NVLink or xGMI connects: for example 8 on HGX, 72 on NVL72, 1 with PCIe
    only."""
    link_gb_per_s: PositiveFloat | None = None
    """Bandwidth per GPU inside the NVLink domain, one direction, in decimal GB/s. If there is no
    NVLink, the bandwidth of PCIe."""
    link_kind: Literal["nvlink", "xgmi", "pcie"] | None = None
    """Kind of the link between the GPUs of a host."""
    nics: CountOrZero | None = None
    """Number of NICs per host that connect to the compute network."""
    nic_speed: Gigabits | None = None
    """Speed of one NIC, one direction, in Gbit/s."""
    nic_names: tuple[str, ...] | None = None
    """Device names of the NICs for NCCL_IB_HCA, as ibstat prints them."""
    gpu_numa: tuple[CountOrZero, ...] | None = None
    """NUMA node of each GPU, in device order."""
    gpu_nics: tuple[str, ...] | None = None
    """Name of the NIC nearest to each GPU, in device order."""
    cpu_cores: Count | None = None
    """Number of physical CPU cores per host."""
    watts: Watts | None = None
    """Largest power of one host, GPUs included. If absent, 1.8 times the power limits of its GPUs,
    as in a DGX H100 (10.2 kW for 8 x 700 W). With base and another gpus_per_node, the power of the
    base is scaled to this number of GPUs."""
    host_memory: Gigabytes | None = None
    """Memory per host, in decimal GB. If absent, PARC does not check whether offloaded state fits
    in host memory."""
    fabric: str | None = None
    """Catalog name of the fabric of this host type. If cluster.fabric is set, it is used
    instead."""
    source: str | None = None
    """Source of the numbers: a document or a page."""


class FabricSpec(StrictModel):
    """Network between hosts: technology, latency and oversubscription."""

    base: str | None = None
    """Name of a catalog entry to start from. Keys that are set here override the values of that
    entry."""
    name: str | None = None
    """Name to show in reports."""
    kind: Literal["infiniband", "roce", "efa", "slingshot", "ethernet"] | None = None
    """Network technology. NCCL's environment variables depend on it."""
    latency: Seconds | None = None
    """One-way latency of a small message between two hosts below the same leaf switch."""
    oversubscription: PositiveFloat | None = None
    """Bandwidth below a leaf switch divided by the bandwidth above it. 1 means full bisection
    bandwidth."""
    rails: Count | None = None
    """Number of leaf switches to which each host of a rack connects its NICs in a rail-optimized
    network. If absent, all NICs of a host connect to one leaf switch."""
    rate_share: Share | None = None
    """Largest fraction of the NIC rate that NCCL reaches on this network, if its adapters leave
    transfers to the CPU. If absent, the network sets no limit of its own."""
    all_to_all_rate_share: Share | None = None
    """Largest fraction of the NIC rate that NCCL reaches in an all-to-all, which sends many small
    messages. If absent, it is the same as in other collectives."""
    source: str | None = None
    """Source of the numbers: a document or a page."""


class RackSpec(StrictModel):
    """Rack: the hosts below one leaf switch."""

    name: str
    """Name of the rack."""
    nodes: str | tuple[str, ...]
    """Hosts of the rack, as a Slurm host list (r01n[01-16]) or a list of host lists. Leading zeros
    are part of the names."""
    nvlink_domain: str | None = None
    """Name of the NVLink domain that all hosts of the rack belong to. If absent, PARC derives the
    domains from the node type."""
    nvlink_domains: dict[str, str | tuple[str, ...]] | None = None
    """Mapping from the name of each NVLink domain to the host list of its hosts. For a rack with
    several NVLink domains."""
    above: tuple[str, ...] | None = None
    """Names of the switches above the leaf switch, nearest first: [pod1, core]. The number of names
    must be equal for all racks."""


class LevelSpec(StrictModel):
    """Tier of switches, such as leaf or spine."""

    name: str
    """Name of the tier: leaf, pod, spine, core, or any other name."""
    oversubscription: PositiveFloat | None = None
    """Bandwidth below a switch of this tier divided by the bandwidth above it. If absent, the
    fabric's value for the leaf tier, and 1 for any other tier."""
    latency: Seconds | None = None
    """One-way latency between two hosts whose lowest common switch is in this tier. If absent, the
    latency of the fabric."""


class FailuresSpec(StrictModel):
    """Failures that stop a job, and the times that pass until it continues."""

    gpu_mtbf: Duration = 180_000_000.0
    """Mean time between failures of one GPU, with its share of the host and the network. A job on N
    GPUs is stopped N times as often. The default, 50,000 h, is that of Llama 3: 419 unexpected
    interruptions of 16,384 H100 in 54 days (arXiv:2407.21783, section 3.3.4)."""
    detection: Duration = 600.0
    """Time from a failure until the job is stopped. The default, 10 minutes, is the timeout of
    NCCL's watchdog in torch."""
    restart: Duration = 300.0
    """Time from the stop until processes train again, without reading the checkpoint."""
    repair: Duration = 86_400.0
    """Time until a failed host can be used again."""
    host_share: Share = 0.78
    """Share of the failures after which the job needs another host. The default is the share of
    hardware problems among the interruptions of Llama 3."""


class StorageSpec(StrictModel):
    """File system for checkpoints, as one job can use it."""

    write_gb_per_s: PositiveFloat | None = None
    """Bandwidth for writing, for all hosts of the job together, in decimal GB/s. If absent, 1 GB/s
    per host, as Llama 3 had (2 TB/s for 2,048 hosts)."""
    read_gb_per_s: PositiveFloat | None = None
    """Bandwidth for reading, for all hosts of the job together, in decimal GB/s. If absent, 1 GB/s
    per host."""


class ClusterSpec(StrictModel):
    """Hosts that the job can run on, and the network between them."""

    base: str | None = None
    """Name of a cluster in the catalog to start from. Keys that are set here override the values of
    that cluster."""
    gpu: str | GpuSpec | None = None
    """GPU type: a catalog name, a mapping, or the path of a YAML file with the keys of such a
    mapping. If absent, the GPU of the node type."""
    node: str | NodeSpec | None = None
    """Node type: a catalog name, a mapping, or the path of a YAML file with the keys of such a
    mapping."""
    fabric: str | FabricSpec | None = None
    """Fabric: a catalog name, a mapping, or the path of a YAML file with the keys of such a
    mapping. If absent, the fabric of the node type."""
    nodes: Count | None = None
    """Number of hosts, for a cluster whose host names are not known yet. Set exactly one of nodes,
    racks and topology."""
    nodes_per_rack: Count | None = None
    """Number of hosts per leaf switch, if nodes is set. If absent, all hosts are below one leaf
    switch."""
    racks: tuple[RackSpec, ...] | None = None
    """Racks with their hosts. Their order does not affect the placement. Set exactly one of nodes,
    racks and topology."""
    topology: str | None = None
    """Path of a file that another tool wrote and that lists hosts and switches, in a format of
    `parc import`. Set exactly one of nodes, racks and topology."""
    topology_format: TopologyFormat | None = None
    """Format of the topology file. If absent, PARC detects the format from the content."""
    levels: tuple[LevelSpec, ...] | None = None
    """Tiers of switches, the leaf tier first. If absent, PARC derives the tiers from racks or
    topology."""
    spare: str | tuple[str, ...] = ()
    """Host lists of the hosts that stay idle as replacements for failed hosts."""
    unavailable: str | tuple[str, ...] = ()
    """Host lists of the hosts that are drained or broken."""
    price_per_gpu_hour: PositiveFloat | None = None
    """Price of one GPU for one hour, in any currency. If set, PARC prints the cost of the plan."""
    pue: LoadFactor = 1.0
    """Power of the data center divided by the power of its hosts (power usage effectiveness). Only
    the energy of a run depends on it. With 1, cooling is not counted."""
    failures: FailuresSpec = FailuresSpec.with_defaults()
    """Failures of the cluster. The best checkpoint interval and the expected length of a run depend
    on them."""
    storage: StorageSpec = StorageSpec.with_defaults()
    """File system for checkpoints."""
    calibration: str | None = None
    """Path of a file that `parc calibrate` wrote, with cost-model parameters that were fitted to
    training runs, or to benchmarks of a service, on this cluster. If absent, PARC uses the
    parameters of its catalog."""
    source: str | None = None
    """Source of the numbers of a catalog entry: a document or a page."""
