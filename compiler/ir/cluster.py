"""Hardware of a job: GPUs, hosts, racks and the network between them, in the order of the spec."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from parc.compiler.ir.generation import Generation
from parc.compiler.ir.serialize import NOT_SERIALIZED

CHANGED_SUFFIX = " (changed)"
"""Suffix of the name of a catalog entry if the spec overrides some of its fields."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """GPU as the framework sees it: one device (on MI250X, one GCD)."""

    name: str
    vendor: Literal["nvidia", "amd"]
    generation: str
    """Name of the architecture: hopper, blackwell, cdna3."""
    compute_capability: tuple[int, int]
    """CUDA compute capability; (0, 0) on AMD."""
    memory_bytes: int
    """Usable memory as the driver reports it, which is less than the marketing figure."""
    memory_gb_per_s: float
    peak_tflops: tuple[tuple[str, float], ...]
    """Dense peak per precision: (("bf16", 989.4), ("fp8", 1978.9), ...), sorted by name."""
    source: str

    @property
    def catalog_name(self) -> str:
        """Name of the catalog entry, also if the spec changed some of its values."""
        return self.name.removesuffix(CHANGED_SUFFIX)

    def peak(self, precision: str) -> float | None:
        """Return the dense TFLOP/s at ``precision``, or None if the GPU does not support it."""
        return dict(self.peak_tflops).get(precision)


@dataclass(frozen=True, slots=True)
class Fabric:
    """Network between hosts."""

    name: str
    kind: Literal["infiniband", "roce", "efa", "slingshot", "ethernet"]
    latency_seconds: float
    """One-way latency of a small message between two hosts under the same leaf switch."""
    oversubscription: float
    """Bandwidth below a leaf switch divided by the bandwidth above it; 1.0 = full bisection."""
    source: str
    rails: int
    """Leaf switches to which each host connects its NICs (rail-optimized); 0 = one leaf."""


@dataclass(frozen=True, slots=True)
class Level:
    """Tier of switches; ``Host.path[i]`` is the name of a switch of ``Cluster.levels[i]``."""

    name: str
    """Name of the tier: leaf, pod, spine, core, or a name that the site uses."""
    oversubscription: float
    """Bandwidth below a switch of this tier divided by the bandwidth above it."""
    latency_seconds: float
    """One-way latency of a small message between two hosts whose path turns at this tier."""


@dataclass(frozen=True, slots=True)
class NodeType:
    """Host type: its GPUs, their links and its NICs."""

    name: str
    gpus: int
    nvlink_domain: int
    """GPUs connected by NVLink or xGMI (8 on HGX, 72 on NVL72, 1 on PCIe)."""
    link_gb_per_s: float
    """GB/s per GPU, one direction, in the NVLink domain; over PCIe if there is no NVLink."""
    link_kind: Literal["nvlink", "xgmi", "pcie"]
    nics: int
    nic_gbps: float
    """Gbit/s of one NIC, one direction."""
    nic_names: tuple[str, ...]
    """Device names for NCCL_IB_HCA; empty if they differ between sites."""
    cpu_cores: int
    source: str
    host_memory_bytes: int | None
    """Memory of the host; None if the catalog does not list it."""
    gpu_numa: tuple[int, ...]
    """NUMA node of each GPU, in device order; empty if unknown."""
    gpu_nics: tuple[str, ...]
    """Nearest NIC of each GPU, in device order; empty if unknown."""

    @property
    def network_gb_per_s_per_gpu(self) -> float:
        """Decimal GB/s, one direction, of the host's NICs divided by its GPUs."""
        return self.nics * self.nic_gbps / 8 / self.gpus

    @property
    def near_gpus(self) -> int:
        """GPUs that communicate without the network: the NVLink domain, or else the host."""
        return self.nvlink_domain if self.nvlink_domain > 1 else self.gpus


@dataclass(frozen=True, slots=True)
class Host:
    """Machine on which ranks can be placed."""

    name: str
    rack: str
    nvlink_domain: str
    """Name of the NVLink domain; the host's name if the domain does not extend beyond the host."""
    above: tuple[str, ...]
    """Switches above the leaf, nearest first; equally many for all hosts of a cluster."""

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the switches above the host, the leaf first, one per level."""
        return (self.rack, *self.above)


@dataclass(frozen=True, slots=True)
class Rack:
    """Hosts under one leaf switch, in the order of the spec."""

    name: str
    hosts: tuple[Host, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Hosts that a job can use; spare and unavailable hosts are listed separately."""

    gpu: Gpu
    node: NodeType
    fabric: Fabric
    racks: tuple[Rack, ...]
    """Racks with their usable hosts only. Empty racks are dropped."""
    spare: tuple[Host, ...]
    unavailable: tuple[str, ...]
    named: bool
    """False if the spec gives a number of hosts; their names are placeholders then."""
    generation: Generation = field(metadata=NOT_SERIALIZED)
    """Facts of the GPU's generation."""
    upper: tuple[Level, ...]
    """Levels above the leaf, nearest first; empty if the spec describes nothing above racks."""

    @property
    def levels(self) -> tuple[Level, ...]:
        """Tiers of switches, the leaf first: one per entry of ``Host.path``.

        Hosts that share no switch of the last level are connected by a core that has no name.
        """
        leaf = Level("leaf", self.fabric.oversubscription, self.fabric.latency_seconds)
        return (leaf, *self.upper)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Usable hosts, rack by rack."""
        return tuple(host for rack in self.racks for host in rack.hosts)

    @property
    def nodes(self) -> int:
        """Number of usable hosts."""
        return sum(len(rack.hosts) for rack in self.racks)

    @property
    def gpus(self) -> int:
        """Number of usable GPUs."""
        return self.nodes * self.node.gpus
