"""What it runs on: GPUs, hosts and the domains that they share, in the user's order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from parc.compiler.ir.generation import Generation
from parc.compiler.ir.serialize import NOT_SERIALIZED

CHANGED = " (changed)"
"""Ends the name of a catalog entry that a spec changed."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device as the framework sees it (a GCD on MI250X)."""

    name: str
    vendor: Literal["nvidia", "amd"]
    generation: str
    """Name of the architecture: hopper, blackwell, cdna3."""
    compute_capability: tuple[int, int]
    """CUDA compute capability; (0, 0) where there is none."""
    memory_bytes: int
    """What the driver reports as usable, not the marketing figure."""
    memory_gb_per_s: float
    peak_tflops: tuple[tuple[str, float], ...]
    """Dense peak per precision: (("bf16", 989.4), ("fp8", 1978.9), ...), sorted by name."""
    source: str

    @property
    def catalog_name(self) -> str:
        """Name of the catalog entry that it is, or was before the spec changed facts of it."""
        return self.name.removesuffix(CHANGED)

    def peak(self, precision: str) -> float | None:
        """Dense TFLOP/s at ``precision``; None where the hardware lacks it."""
        return dict(self.peak_tflops).get(precision)


@dataclass(frozen=True, slots=True)
class Fabric:
    """The network between hosts."""

    name: str
    kind: Literal["infiniband", "roce", "efa", "slingshot", "ethernet"]
    latency_seconds: float
    """One-way latency of a small message between two hosts of one leaf."""
    oversubscription: float
    """Bandwidth under a leaf over bandwidth above it; 1.0 = full bisection."""
    source: str
    rails: int = 0
    """Leaf switches that every host is on, its NICs dealt to them; 0 where it is on one."""


@dataclass(frozen=True, slots=True)
class Level:
    """One tier of switches; ``Host.path[i]`` names the switch of ``Cluster.levels[i]``."""

    name: str
    """leaf, pod, spine, core, or what the site calls it."""
    oversubscription: float
    """Bandwidth that comes up into a switch of this level over what leaves it upward."""
    latency_seconds: float
    """One-way latency of a small message between two hosts that meet at this level."""


@dataclass(frozen=True, slots=True)
class NodeType:
    """One host: its GPUs, their links and its NICs."""

    name: str
    gpus: int
    nvlink_domain: int
    """GPUs that reach one another over NVLink or xGMI (8 on HGX, 72 on NVL72, 1 on PCIe)."""
    link_gb_per_s: float
    """One direction, per GPU, in the NVLink domain; over PCIe in the host where there is none."""
    link_kind: Literal["nvlink", "xgmi", "pcie"]
    nics: int
    nic_gbps: float
    """Gigabits a second, one direction, of one NIC."""
    nic_names: tuple[str, ...]
    """Device names for NCCL_IB_HCA; empty where they differ from site to site."""
    cpu_cores: int
    source: str
    host_memory_bytes: int | None = None
    """Memory of the host; None where the catalog does not know it."""
    gpu_numa: tuple[int, ...] = ()
    """NUMA node of every GPU, in device order; empty where nobody said."""
    gpu_nics: tuple[str, ...] = ()
    """The nearest NIC of every GPU, in device order; empty where nobody said."""

    @property
    def network_gb_per_s_per_gpu(self) -> float:
        """One direction, decimal GB/s, of a GPU's fair share of the host's NICs."""
        return self.nics * self.nic_gbps / 8 / self.gpus

    @property
    def near_gpus(self) -> int:
        """GPUs that talk without the network: the NVLink domain, the host where there is none."""
        return self.nvlink_domain if self.nvlink_domain > 1 else self.gpus


@dataclass(frozen=True, slots=True)
class Host:
    """One machine that may get ranks."""

    name: str
    rack: str
    nvlink_domain: str
    """Name of the NVLink domain; the host's own name where domains end at the host."""
    above: tuple[str, ...] = ()
    """Switches above the leaf, nearest first; the same number for every host of a cluster."""

    @property
    def path(self) -> tuple[str, ...]:
        """The switch of every level, the leaf first."""
        return (self.rack, *self.above)


@dataclass(frozen=True, slots=True)
class Rack:
    """Hosts under one leaf switch, in the order of the spec."""

    name: str
    hosts: tuple[Host, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The hosts that a job may use; spare and unavailable ones are kept apart."""

    gpu: Gpu
    node: NodeType
    fabric: Fabric
    racks: tuple[Rack, ...]
    """Usable hosts only. Empty racks are dropped."""
    spare: tuple[Host, ...]
    unavailable: tuple[str, ...]
    named: bool
    """False where the spec gave a node count and host names are placeholders."""
    generation: Generation = field(metadata=NOT_SERIALIZED)
    """Facts of the GPU's generation."""
    upper: tuple[Level, ...] = ()
    """Levels above the leaf, nearest first; empty where the spec says nothing above racks."""

    @property
    def levels(self) -> tuple[Level, ...]:
        """Tiers of switches, the leaf first: one for each entry of ``Host.path``.

        Hosts that share no switch of the last level meet above it, in a core that is not named.
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
