"""Models of section ``launch``: program, environment, and settings of the schedulers."""

from __future__ import annotations

from pydantic import Field

from parc.compiler.spec.base import Port, PositiveInt, StrictModel
from parc.compiler.spec.units import Seconds


class SlurmSpec(StrictModel):
    """Directives of the Slurm batch script in addition to hosts and tasks."""

    partition: str | None = None
    """Value of Slurm's option --partition."""
    account: str | None = None
    """Value of Slurm's option --account."""
    qos: str | None = None
    """Value of Slurm's option --qos."""
    time_limit: str | None = None
    """Value of Slurm's option --time, in one of Slurm's formats: 1-00:00:00."""
    reservation: str | None = None
    """Value of Slurm's option --reservation."""
    container_image: str | None = None
    """Value of pyxis's option --container-image. If absent, the program runs without a
    container."""
    container_mounts: tuple[str, ...] = ()
    """Values of pyxis's option --container-mounts, each as source:destination."""
    requeue: bool = True
    """Put the job into the Slurm queue again after a host failure."""
    signal: Seconds = 300.0
    """Warning time: Slurm signals the job this long before the time limit, so that the job can save
    a checkpoint. Example: 300s."""
    log_dir: str = "logs"
    """Folder of the log files, relative to the directory in which sbatch runs."""


class KubernetesSpec(StrictModel):
    """Settings of the Kubernetes objects that do not follow from the plan."""

    image: str | None = None
    """Name of the container image with the framework. Required if emit contains kubernetes."""
    namespace: str | None = None
    """Namespace of the objects. If absent, kubectl uses the namespace of its current context."""
    queue: str | None = None
    """Name of a Kueue queue. If set, Kueue's topology-aware scheduling chooses the racks of the
    pods."""
    rack_label: str = "network.topology.nvidia.com/leaf"
    """Node label whose value is the name of the rack. The default is the label that topograph
    sets."""
    domain_label: str = "network.topology.nvidia.com/accelerator"
    """Node label whose value is the name of the NVLink domain, for domains with several hosts. The
    default is the label that topograph sets."""
    gpu_resource: str | None = None
    """Kubernetes resource name of a GPU. If absent, nvidia.com/gpu or amd.com/gpu, depending on the
    vendor of the GPU."""
    resources: dict[str, str] = Field(default_factory=dict)
    """Additional resources that each pod requests: {rdma/hca: "8", memory: 1Ti}."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a Kubernetes node must have to run a pod of the job."""
    claims: dict[str, str] = Field(default_factory=dict)
    """Mapping from the name of a PersistentVolumeClaim to the path at which it is mounted."""
    host_network: bool = False
    """Use the network of the host instead of the pod network."""
    shared_memory: str = "64Gi"
    """Size of /dev/shm in each pod, as a Kubernetes quantity."""
    max_restarts: PositiveInt = 3
    """Maximum number of times that Kubernetes restarts all pods after a failure."""


class LaunchSpec(StrictModel):
    """Program to start, its arguments and environment, and settings of the schedulers."""

    program: str | None = None
    """Script that runs on each rank. If absent, the framework's own script (pretrain_gpt.py or
    pretrain_hybrid.py of Megatron-LM), or a script that PARC emits."""
    args: tuple[str, ...] = ()
    """Extra arguments for the framework. An argument that the plan determines is an error."""
    env: dict[str, str] = Field(default_factory=dict)
    """Extra environment variables. They override the variables that PARC sets."""
    master_port: Port = 29500
    """Rendezvous port of torchrun. In Slurm jobs, the emitted script derives the port from the job
    id instead."""
    network_interface: str | None = None
    """Network interface over which NCCL and Gloo connect at startup. It must have the same name on
    all hosts. If absent, NCCL and Gloo choose an interface."""
    slurm: SlurmSpec = SlurmSpec()
    """Settings of the Slurm batch script."""
    kubernetes: KubernetesSpec = KubernetesSpec()
    """Settings of the Kubernetes objects."""
