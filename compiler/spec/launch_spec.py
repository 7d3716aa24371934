"""Section ``launch``: program, environment, and settings of the schedulers."""

from __future__ import annotations

from pydantic import Field

from parc.compiler.spec.base import Port, PositiveInt, Strict
from parc.compiler.spec.units import Seconds


class SlurmSpec(Strict):
    """Directives of the batch script in addition to nodes and tasks."""

    partition: str | None = None
    """Value of --partition."""
    account: str | None = None
    """Value of --account."""
    qos: str | None = None
    """Value of --qos."""
    time_limit: str | None = None
    """Value of --time, in a format of Slurm: 1-00:00:00."""
    reservation: str | None = None
    """Value of --reservation."""
    container_image: str | None = None
    """Value of --container-image (pyxis). If absent, the program runs without a container."""
    container_mounts: tuple[str, ...] = ()
    """Values of --container-mounts (pyxis): src:dst."""
    requeue: bool = True
    """Let Slurm requeue the job after a node failure."""
    signal: Seconds = 300.0
    """Time before the time limit at which Slurm signals the job, so that it can save: 300s."""
    log_dir: str = "logs"
    """Folder of the logs, relative to the directory in which sbatch runs."""


class KubernetesSpec(Strict):
    """Settings of the Kubernetes objects in addition to the plan."""

    image: str | None = None
    """Container image with the framework. Required for emit: [kubernetes]."""
    namespace: str | None = None
    """Namespace of the objects. If absent, the namespace of the kubectl context is used."""
    queue: str | None = None
    """Kueue queue. If set, topology-aware scheduling of Kueue places the pods in racks."""
    rack_label: str = "network.topology.nvidia.com/leaf"
    """Node label whose value is the rack. The default is the label that topograph sets."""
    domain_label: str = "network.topology.nvidia.com/accelerator"
    """Node label whose value is the NVLink domain, for domains that span hosts. The default is the
    label that topograph sets."""
    gpu_resource: str | None = None
    """Resource name of a GPU. If absent, nvidia.com/gpu or amd.com/gpu, by the GPU's vendor."""
    resources: dict[str, str] = Field(default_factory=dict)
    """Additional resources per pod: {rdma/hca: "8", memory: 1Ti}."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have."""
    claims: dict[str, str] = Field(default_factory=dict)
    """PersistentVolumeClaim -> path at which it is mounted."""
    host_network: bool = False
    """Use the network of the host instead of a pod network."""
    shared_memory: str = "64Gi"
    """Size of /dev/shm, as a Kubernetes quantity."""
    max_restarts: PositiveInt = 3
    """Number of times that all pods are restarted after a failure."""


class LaunchSpec(Strict):
    """Start of the program: script, arguments, environment and schedulers."""

    program: str | None = None
    """Script that runs on each rank. If absent, the framework's script (pretrain_gpt.py or
    pretrain_hybrid.py of Megatron-LM), or the script that PARC emits."""
    args: tuple[str, ...] = ()
    """Extra arguments for the framework. Arguments that the plan determines are an error."""
    env: dict[str, str] = Field(default_factory=dict)
    """Extra environment variables. They override variables that PARC sets."""
    master_port: Port = 29500
    """Rendezvous port of torchrun. Slurm jobs derive the port from the job id instead."""
    network_interface: str | None = None
    """Network interface for the bootstrap of NCCL and Gloo, with the same name on all hosts. If
    absent, NCCL and Gloo choose one."""
    slurm: SlurmSpec = SlurmSpec()
    """Settings of the Slurm batch script."""
    kubernetes: KubernetesSpec = KubernetesSpec()
    """Settings of the Kubernetes objects."""
