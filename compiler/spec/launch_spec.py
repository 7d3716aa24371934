"""``launch:``: how the program starts."""

from __future__ import annotations

from pydantic import Field

from parc.compiler.spec.base import Strict
from parc.compiler.spec.numbers import Port, PositiveInt
from parc.compiler.spec.units import Seconds


class SlurmSpec(Strict):
    """What the batch script asks of Slurm beyond its shape."""

    partition: str | None = None
    """--partition"""
    account: str | None = None
    """--account"""
    qos: str | None = None
    """--qos"""
    time_limit: str | None = None
    """--time, as Slurm writes it: 1-00:00:00"""
    reservation: str | None = None
    """--reservation"""
    container_image: str | None = None
    """--container-image of pyxis"""
    container_mounts: tuple[str, ...] = ()
    """--container-mounts of pyxis: src:dst"""
    requeue: bool = True
    """Requeue after a node failure."""
    signal: Seconds = 300.0
    """Warning before the time limit: 300s."""
    log_dir: str = "logs"
    """Folder of the logs, relative to the submit directory."""


class KubernetesSpec(Strict):
    """What the objects for Kubernetes say beyond the plan."""

    image: str | None = None
    """Container image with the framework; needed."""
    namespace: str | None = None
    """Namespace of the objects; absent: that of whoever applies them."""
    queue: str | None = None
    """Kueue queue; with it, racks are asked for by topology-aware scheduling."""
    rack_label: str = "network.topology.nvidia.com/leaf"
    """Node label whose values are the racks, as topograph writes it."""
    domain_label: str = "network.topology.nvidia.com/accelerator"
    """Node label whose values are NVLink domains of several hosts, as topograph writes it."""
    gpu_resource: str | None = None
    """Resource of a GPU; absent: nvidia.com/gpu or amd.com/gpu."""
    resources: dict[str, str] = Field(default_factory=dict)
    """More resources of a pod: {rdma/hca: "8", memory: 1Ti}."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that the nodes must have."""
    claims: dict[str, str] = Field(default_factory=dict)
    """PersistentVolumeClaim -> path where it is mounted."""
    host_network: bool = False
    """Pods use the network of their host."""
    shared_memory: str = "64Gi"
    """Size of /dev/shm."""
    max_restarts: PositiveInt = 3
    """Times that all pods start anew after a failure."""


class LaunchSpec(Strict):
    """How the program starts."""

    program: str | None = None
    """Script that is started on every rank; absent: the framework's own, pretrain_gpt.py or
    pretrain_hybrid.py of Megatron-LM, or the one that is emitted."""
    args: tuple[str, ...] = ()
    """Extra framework arguments; one that is a matter of the plan is an error."""
    env: dict[str, str] = Field(default_factory=dict)
    """Extra environment variables; they win over PARC's own."""
    master_port: Port = 29500
    """Rendezvous port of torchrun without Slurm; under Slurm it comes from the job id."""
    network_interface: str | None = None
    """Interface for NCCL and Gloo bootstrap, the same on every host."""
    slurm: SlurmSpec = SlurmSpec()
    """Slurm directives."""
    kubernetes: KubernetesSpec = KubernetesSpec()
    """Kubernetes objects."""
