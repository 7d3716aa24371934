"""Training problem: the model, the hardware and all options of the job, fully resolved.

No field has a default: defaults are in the models of ``spec/`` only, and the passes of ``resolve/``
apply them. The fields of ``Pins`` are None if the user left the decision to the search.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from parc.compiler.ir.cluster import Cluster
from parc.compiler.ir.layout import ContextComm, Offload, Recompute, Schedule, ZeroPlus
from parc.compiler.ir.model import Model

Precision = Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"]
Dispatcher = Literal["auto", "alltoall", "deepep", "hybridep"]
LrDecay = Literal["cosine", "linear", "constant", "inverse-square-root", "wsd"]


@dataclass(frozen=True, slots=True)
class Job:
    """Training run: batch in sequences, length in tokens, hyperparameters, data, checkpoints."""

    kind: Literal["pretrain", "finetune"]
    sequence_length: int
    global_batch: int
    precision: Precision
    steps: int
    learning_rate: float
    data: tuple[str, ...]
    """Data paths for the framework; empty = mock data."""
    tokenizer_type: str
    tokenizer_model: str | None
    checkpoint_dir: str | None
    checkpoint_interval: int
    load_dir: str | None
    gradient_precision: Literal["fp32", "bf16"]
    """Format in which gradients are accumulated and reduced. With fp16 they are always 16-bit."""
    moe_dispatcher: Dispatcher
    """Library that sends tokens to their experts and back; auto = all-to-all."""
    moe_overlap: bool
    """Dispatch and combine overlap with the computation of another micro-batch."""
    min_learning_rate: float
    """Learning rate at the end of its decay."""
    warmup_steps: int
    """Steps in which the learning rate rises linearly from 0."""
    warmup_fraction: float | None
    """Warm-up as a fraction of ``lr_decay_steps``; None if the spec gives a number of steps."""
    lr_decay: LrDecay
    lr_decay_steps: int
    """Step at which the decay ends, counted from the first step of the run."""
    wsd_decay_steps: int
    """Length of the final decay of ``lr_decay`` wsd, in steps; 0 for any other ``lr_decay``."""
    weight_decay: float
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    gradient_clipping: float
    """Largest global gradient norm; gradients above it are scaled down. 0 = no clipping."""
    seed: int

    @property
    def deduplicates_dispatch(self) -> bool:
        """True if a token is sent only once to an NVLink domain with several of its experts."""
        return self.moe_dispatcher in ("deepep", "hybridep")

    @property
    def is_low_precision(self) -> bool:
        """True if matrix multiplications are in 8 or 4 bit."""
        return self.precision not in ("bf16", "fp16")

    @property
    def gradient_bytes(self) -> float:
        """Bytes per gradient, in memory and in communication."""
        return 2.0 if self.precision == "fp16" or self.gradient_precision == "bf16" else 4.0


@dataclass(frozen=True, slots=True)
class Limit:
    """Restriction of the degrees that the search can choose on one axis."""

    axis: str
    """tp, cp, pp, vpp, dp, ep, etp or micro_batch."""
    smallest: int
    largest: int | None
    only: tuple[int, ...]
    """Degrees that are allowed; empty = all."""
    banned: tuple[int, ...]

    def allows(self, degree: int) -> bool:
        """Return True if ``degree`` meets all conditions of the limit."""
        if degree < self.smallest or (self.largest is not None and degree > self.largest):
            return False
        return degree not in self.banned and (not self.only or degree in self.only)


def allowed(limits: Iterable[Limit], axis: str, degree: int) -> bool:
    """Return True if all of ``limits`` on ``axis`` allow ``degree``."""
    return all(limit.allows(degree) for limit in limits if limit.axis == axis)


@dataclass(frozen=True, slots=True)
class Goals:
    """Objective of the search, and constraints on its result."""

    maximize: Literal["throughput", "fewest-gpus", "latency"]
    memory_headroom: float
    """Share of device memory to keep free: 0.08 for 8 %."""
    limits: tuple[Limit, ...]
    """At most one per axis; layouts that exceed one are not enumerated."""


@dataclass(frozen=True, slots=True)
class Pins:
    """Section ``layout`` of the spec. None: the search decides."""

    tp: int | None = None
    cp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    dp: int | None = None
    ep: int | None = None
    etp: int | None = None
    micro_batch: int | None = None
    sequence_parallel: bool | None = None
    recompute: Recompute | None = None
    zero_stage: int | None = None
    dp_shard: int | None = None
    schedule: Schedule | None = None
    cp_comm: ContextComm | None = None
    cp_a2a: int | None = None
    offload: Offload | None = None
    zero_plus: ZeroPlus | None = None
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    pipeline_layout: str | None = None
    count_embedding: bool | None = None
    count_loss: bool | None = None
    order: str | None = None


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """Directives of the batch script in addition to nodes and tasks; None: no directive."""

    version: str
    partition: str | None
    account: str | None
    qos: str | None
    time_limit: str | None
    reservation: str | None
    container_image: str | None
    container_mounts: tuple[str, ...]
    requeue: bool
    signal_seconds: int
    log_dir: str


@dataclass(frozen=True, slots=True)
class KubernetesJob:
    """Settings of the Kubernetes objects in addition to the plan; pairs are sorted by name."""

    image: str
    """Container image; empty if the spec has none."""
    namespace: str
    queue: str
    """Kueue queue; empty = no queue."""
    rack_label: str
    domain_label: str
    gpu_resource: str
    """Resource name of a GPU; empty = the resource of the GPU's vendor."""
    resources: tuple[tuple[str, str], ...]
    node_selector: tuple[tuple[str, str], ...]
    claims: tuple[tuple[str, str], ...]
    """(PersistentVolumeClaim, mount path) pairs."""
    host_network: bool
    shared_memory: str
    max_restarts: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Start of the program: script, arguments, environment, and the schedulers' settings."""

    program: str
    """Script to start; empty = the script that the framework's backend emits."""
    args: tuple[str, ...]
    """Extra arguments for the framework, which follow the arguments of the plan."""
    env: tuple[tuple[str, str], ...]
    master_port: int
    network_interface: str | None
    """Value of NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME; None = not set."""
    slurm: SlurmJob
    kubernetes: KubernetesJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Common part of training and serving problems: model, hosts and emitted targets."""

    name: str
    model: Model
    cluster: Cluster
    launch: Launch
    emit: tuple[str, ...]
    """Backends to emit, sorted, without duplicates."""
    framework: str
    """Backend whose rank order and rules apply to the layout (``megatron``, ``vllm``)."""
    versions: tuple[tuple[str, str], ...]
    """Version per backend, sorted by name."""
    digest: str
    """SHA-256 of the canonical spec: the written values, and the facts that its names refer to."""

    def version(self, backend: str) -> str:
        """Return the target version of ``backend``, as ``major.minor``."""
        return dict(self.versions)[backend]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Task):
    """Training problem; the only input of the passes after ``resolve``."""

    job: Job
    goals: Goals
    pins: Pins
    calibration: tuple[tuple[str, float], ...]
    """Cost-model parameters that the user measured (``parc calibrate``), sorted by name."""
