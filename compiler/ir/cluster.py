"""Hardware of a job: GPUs, hosts, racks and the network that connects them.

Hosts and racks keep the order in which the spec lists them.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.gpu_generation import Generation
from parc.compiler.ir.serialize import NOT_SERIALIZED

CHANGED_SUFFIX = " (changed)"
"""Suffix of the name of a catalog entry if the spec overrides some of its fields."""
HOST_POWER = 1.8
"""Largest power of a host divided by the power limits of its GPUs, for host types without a value:
10.2 kW / (8 x 700 W) for a DGX H100."""
Reserved = Literal["gpus", "hosts"] | None
"""What a launcher reserves for a job: the GPUs of its ranks, all GPUs of its hosts, or nothing."""


@frozen
class Reliability:
    """Failures of a cluster, and the times that pass until a job continues after one.

    The defaults have their sources in the spec (``FailuresSpec``).
    """

    gpu_mtbf_seconds: float = 1.8e8
    """Mean time between failures that stop a job, of one GPU with its share of host and network."""
    detection_seconds: float = 600.0
    """Time from a failure until the job is stopped."""
    restart_seconds: float = 300.0
    """Time from the stop until processes train again, without reading the checkpoint."""
    repair_seconds: float = 86_400.0
    """Time until a failed host can be used again."""
    host_share: float = 0.78
    """Share of the failures after which the job needs another host."""


@frozen
class Storage:
    """Bandwidth of the file system for checkpoints, for a whole job, in decimal GB/s.

    None stands for the bandwidth that is assumed per host.
    """

    write_gb_per_s: float | None = None
    read_gb_per_s: float | None = None


@frozen
class Gpu:
    """GPU type of a cluster. One GPU is what the framework counts as one device.

    An MI250X card counts as two devices, one per die (GCD).
    """

    name: str
    vendor: Literal["nvidia", "amd"]
    generation: str
    """Name of the architecture: hopper, blackwell, cdna3."""
    compute_capability: tuple[int, int]
    """CUDA compute capability; (0, 0) on AMD."""
    memory_bytes: int
    """Usable device memory in bytes, as the driver reports it; less than the advertised size."""
    memory_gb_per_s: float
    """Peak memory bandwidth of the data sheet, in decimal GB/s."""
    peak_tflops: tuple[tuple[str, float], ...]
    """(precision, dense peak TFLOP/s) pairs, sorted by precision: (("bf16", 989.4), ("fp8",
    1978.9))."""
    source: str
    """Source of the numbers: a document or a page."""
    watts: float | None = None
    """Power limit of the GPU; None if unknown."""

    @property
    def catalog_name(self) -> str:
        """Catalog name of the GPU, without the suffix that marks values changed by the spec."""
        return self.name.removesuffix(CHANGED_SUFFIX)

    def has_compute_capability(self, least: tuple[int, int]) -> bool:
        """Return True if the CUDA compute capability is at least ``least``; True for AMD GPUs."""
        return self.vendor == "amd" or self.compute_capability >= least

    def peak_rate(self, precision: str) -> float | None:
        """Return the dense peak TFLOP/s at ``precision``; None if the GPU lacks this precision."""
        # A tuple of pairs instead of a dict keeps the dataclass hashable.
        return dict(self.peak_tflops).get(precision)


@frozen
class Fabric:
    """Network technology between hosts, with latency and oversubscription of a leaf switch."""

    name: str
    kind: Literal["infiniband", "roce", "efa", "slingshot", "ethernet"]
    latency_seconds: float
    """One-way latency of a small message between two hosts under the same leaf switch."""
    oversubscription: float
    """Bandwidth below a leaf switch divided by the bandwidth above it; 1.0 = full bisection."""
    source: str
    rails: int
    """Number of leaf switches that each host connects its NICs to in a rail-optimized network; 0
    if all NICs of a host connect to one leaf switch."""
    rate_share: float = 0.0
    """Largest fraction of the NIC rate that NCCL reaches; 0 if the network sets no limit."""
    all_to_all_rate_share: float = 0.0
    """Largest fraction of the NIC rate in an all-to-all; 0 if it is that of other collectives."""


@frozen
class SwitchTier:
    """Tier of switches, such as leaf or spine.

    ``Host.switch_path[i]`` names the switch of tier ``Cluster.switch_tiers[i]`` above a host.
    """

    name: str
    """Name of the tier: leaf, pod, spine, core, or any other name that the spec uses."""
    oversubscription: float
    """Bandwidth below a switch of this tier divided by the bandwidth above it."""
    latency_seconds: float
    """One-way latency of a small message between two hosts whose lowest common switch is in this
    tier."""


@frozen
class NodeType:
    """Host type: number of GPUs, links between the GPUs, and NICs."""

    name: str
    gpus: int
    nvlink_domain: int
    """Number of GPUs that NVLink or xGMI connects (8 on HGX, 72 on NVL72); 1 if GPUs are connected
    by PCIe only."""
    link_gb_per_s: float
    """Bandwidth per GPU inside the NVLink domain, one direction, in decimal GB/s; bandwidth of PCIe
    if there is no NVLink."""
    link_kind: Literal["nvlink", "xgmi", "pcie"]
    nics: int
    nic_gbps: float
    """Gbit/s of one NIC, one direction."""
    nic_names: tuple[str, ...]
    """Device names for NCCL_IB_HCA; empty if the names differ between sites."""
    cpu_cores: int
    source: str
    host_memory_bytes: int | None
    """Memory of the host; None if the catalog does not list it."""
    gpu_numa: tuple[int, ...]
    """NUMA node of each GPU, in device order; empty if unknown."""
    gpu_nics: tuple[str, ...]
    """Nearest NIC of each GPU, in device order; empty if unknown."""
    watts: float | None = None
    """Largest power of the host, GPUs included; None if unknown."""

    @property
    def network_gb_per_s_per_gpu(self) -> float:
        """Network bandwidth of a host in one direction, per GPU of the host, in decimal GB/s."""
        return self.nics * self.nic_gbps / 8 / self.gpus  # 8 bits per byte

    @property
    def nvlink_spans_hosts(self) -> bool:
        """True if an NVLink domain contains several hosts, as in NVL72 systems."""
        return self.link_kind == "nvlink" and self.nvlink_domain > self.gpus

    @property
    def nvlink_or_host_gpus(self) -> int:
        """Number of GPUs that communicate without NICs.

        These are the GPUs of one NVLink domain, or of one host if there is no NVLink.
        """
        # Without NVLink, the GPUs of a host still communicate over PCIe.
        return self.nvlink_domain if self.nvlink_domain > 1 else self.gpus


@frozen
class Host:
    """Machine that ranks can be placed on."""

    name: str
    rack: str
    nvlink_domain: str
    """Name of the NVLink domain; equal to the host name if the domain contains only this host."""
    above: tuple[str, ...]
    """Names of the switches above the leaf switch, nearest first. The number of names is equal for
    all hosts of a cluster."""

    @property
    def switch_path(self) -> tuple[str, ...]:
        """Names of all switches above the host, one per tier, from the leaf switch upwards."""
        return (self.rack, *self.above)


@frozen
class Rack:
    """Hosts under one leaf switch, in the order of the spec."""

    name: str
    hosts: tuple[Host, ...]


@frozen
class Cluster:
    """Hosts that a job can run on, and separately its spare and unavailable hosts."""

    gpu: Gpu
    node: NodeType
    fabric: Fabric
    racks: tuple[Rack, ...]
    """Racks that have usable hosts, each with its usable hosts only."""
    spare: tuple[Host, ...]
    """Hosts that stay idle as replacements for failed hosts."""
    unavailable: tuple[str, ...]
    """Names of the hosts that are drained or broken."""
    named: bool
    """True if the spec names the hosts; False if it gives only their number, so that host names are
    placeholders."""
    generation: Generation = field(metadata=NOT_SERIALIZED)
    """Facts about the architecture of the GPU."""
    upper: tuple[SwitchTier, ...]
    """Tiers of switches above the leaf tier, nearest first; empty if the spec describes only
    racks."""
    price_per_gpu_hour: float | None = None
    """Price of one GPU for one hour, in the currency of the user; None if unknown."""
    pue: float = 1.0
    """Power of the data center divided by the power of its hosts."""
    reliability: Reliability = Reliability()
    """Failures, and the times until a job continues after one."""
    storage: Storage = Storage()
    """Bandwidth of the file system for checkpoints."""
    wired_hosts: tuple[tuple[tuple[str, ...], int], ...] = field(
        default=(), metadata=NOT_SERIALIZED
    )
    """(``Host.switch_path``, number of hosts) per leaf switch. All connected hosts count, usable or
    not, because draining a host does not narrow the uplinks of the switch."""

    @property
    def switch_tiers(self) -> tuple[SwitchTier, ...]:
        """Tiers of switches, from the leaf tier upwards.

        ``Host.switch_path`` contains the name of one switch per tier. If two hosts have no common
        switch in the last tier, an unnamed core network connects them.
        """
        # The leaf tier has no entry of its own, because the fabric gives its values.
        leaf = SwitchTier("leaf", self.fabric.oversubscription, self.fabric.latency_seconds)
        return (leaf, *self.upper)

    @property
    def precisions(self) -> tuple[str, ...]:
        """Precisions of the GPU generation that this GPU supports.

        A GPU can lack a precision of its generation, such as mxfp8 on compute capability 12.0. The
        16-bit precisions are always included, even if the GPU states a rate for only one of them.
        """
        return tuple(
            name
            for name in self.generation.precisions
            if name in ("bf16", "fp16") or self.gpu.peak_rate(name) is not None
        )

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Usable hosts, grouped by rack in the order of ``racks``."""
        return tuple(host for rack in self.racks for host in rack.hosts)

    @property
    def nodes(self) -> int:
        """Number of usable hosts in the cluster."""
        return sum(len(rack.hosts) for rack in self.racks)

    @property
    def host_watts(self) -> float | None:
        """Largest power of one host, GPUs included; None if that of its GPUs is unknown."""
        if self.node.watts is not None or self.gpu.watts is None:
            return self.node.watts
        return HOST_POWER * self.gpu.watts * self.node.gpus

    def occupied_gpus(self, hosts: int, gpus: int, reserved: Reserved) -> int:
        """Return the number of GPUs that other jobs cannot use while a job of ``gpus`` GPUs runs.

        These are all GPUs of its ``hosts`` hosts, if its launcher reserves hosts. A launcher that
        reserves nothing leaves the other GPUs of the host to other jobs only if there is one host.
        """
        is_shared = reserved == "gpus" or (reserved is None and hosts == 1)
        return gpus if is_shared else hosts * self.node.gpus

    def price_of(self, gpu_hours: float) -> float | None:
        """Return the price of ``gpu_hours``; None if the spec states no price."""
        return None if self.price_per_gpu_hour is None else self.price_per_gpu_hour * gpu_hours

    @property
    def gpus(self) -> int:
        """Number of GPUs in all usable hosts of the cluster."""
        return self.nodes * self.node.gpus
