"""The cluster: GPUs, hosts, switches and NVLink domains, in the order of the spec."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from parc.compiler.ir.generation import Generation
from parc.compiler.ir.serialize import NOT_SERIALIZED

CHANGED = " (changed)"
"""Suffix of the name of a catalog entry if the spec overrides some of its fields."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device as frameworks see it (on MI250X a GCD, half of the package)."""

    name: str
    vendor: Literal["nvidia", "amd"]
    generation: str
    """Name of the architecture: hopper, blackwell, cdna3."""
    compute_capability: tuple[int, int]
    """CUDA compute capability; (0, 0) for AMD."""
    memory_bytes: int
    """Memory that the driver reports as usable, which is less than the marketing figure."""
    memory_gb_per_s: float
    peak_tflops: tuple[tuple[str, float], ...]
    """Dense peak per precision: (("bf16", 989.4), ("fp8", 1978.9), ...), sorted by name."""
    source: str

    @property
    def catalog_name(self) -> str:
        """Name of the catalog entry, without the suffix for overridden fields."""
        return self.name.removesuffix(CHANGED)

    def peak(self, precision: str) -> float | None:
        """Return the dense TFLOP/s at ``precision``; None if the hardware does not support it."""
        return dict(self.peak_tflops).get(precision)


@dataclass(frozen=True, slots=True)
class Fabric:
    """The network between hosts."""

    name: str
    kind: Literal["infiniband", "roce", "efa", "slingshot", "ethernet"]
    latency_seconds: float
    """One-way latency of a small message between two hosts of one leaf."""
    oversubscription: float
    """Bandwidth below a leaf divided by bandwidth above it; 1.0 is full bisection bandwidth."""
    source: str
    rails: int = 0
    """Leaf switches to which the NICs of each host are connected in turn; 0 for a single leaf."""


@dataclass(frozen=True, slots=True)
class Level:
    """A tier of switches. ``Host.path[i]`` is the switch of a host at ``Cluster.levels[i]``."""

    name: str
    """leaf, pod, spine, core, or a name from the spec."""
    oversubscription: float
    """Bandwidth below a switch of this level divided by the bandwidth of its uplinks."""
    latency_seconds: float
    """One-way latency of a small message between two hosts whose nearest common switch is here."""


@dataclass(frozen=True, slots=True)
class NodeType:
    """A type of host: its GPUs, their links and its NICs."""

    name: str
    gpus: int
    nvlink_domain: int
    """GPUs connected by NVLink or xGMI (8 on HGX, 72 on NVL72); 1 if only PCIe connects them."""
    link_gb_per_s: float
    """Decimal GB/s per GPU, one direction, within the NVLink domain; over PCIe if there is none."""
    link_kind: Literal["nvlink", "xgmi", "pcie"]
    nics: int
    nic_gbps: float
    """Gigabits per second of one NIC, one direction."""
    nic_names: tuple[str, ...]
    """Device names for NCCL_IB_HCA; empty if they differ between sites."""
    cpu_cores: int
    source: str
    host_memory_bytes: int | None = None
    """Memory of the host; None if the catalog has no figure."""
    gpu_numa: tuple[int, ...] = ()
    """NUMA node of every GPU, in device order; empty if unknown."""
    gpu_nics: tuple[str, ...] = ()
    """Nearest NIC of every GPU, in device order; empty if unknown."""

    @property
    def network_gb_per_s_per_gpu(self) -> float:
        """Share of one GPU in the host's NICs: decimal GB/s, one direction."""
        return self.nics * self.nic_gbps / 8 / self.gpus

    @property
    def near_gpus(self) -> int:
        """GPUs that communicate without the network: the NVLink domain, or the host on PCIe."""
        return self.nvlink_domain if self.nvlink_domain > 1 else self.gpus


@dataclass(frozen=True, slots=True)
class Host:
    """A machine that may get ranks."""

    name: str
    rack: str
    nvlink_domain: str
    """Name of the NVLink domain; the name of the host if domains end at the host."""
    above: tuple[str, ...] = ()
    """Switches above the leaf, the nearest first; equally many for every host of a cluster."""

    @property
    def path(self) -> tuple[str, ...]:
        """Switch of the host at every level, the leaf first."""
        return (self.rack, *self.above)


@dataclass(frozen=True, slots=True)
class Rack:
    """Hosts below one leaf switch, in the order of the spec."""

    name: str
    hosts: tuple[Host, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Hosts that a job may use. Spare and unavailable hosts are listed separately."""

    gpu: Gpu
    node: NodeType
    fabric: Fabric
    racks: tuple[Rack, ...]
    """Usable hosts only. Empty racks are dropped."""
    spare: tuple[Host, ...]
    unavailable: tuple[str, ...]
    named: bool
    """False if the spec gives only a node count; the host names are then placeholders."""
    generation: Generation = field(metadata=NOT_SERIALIZED)
    """Facts of the GPU's generation."""
    upper: tuple[Level, ...] = ()
    """Levels above the leaf, the nearest first; empty if the spec describes only racks."""

    @property
    def levels(self) -> tuple[Level, ...]:
        """Tiers of switches, the leaf first: one per entry of ``Host.path``.

        Hosts that share no switch of the last level meet above it, in an unnamed core.
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
