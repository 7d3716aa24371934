"""All resolved: what must be laid out, on what, under which limits. No defaults left."""

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
    """One run: batch in sequences, length in tokens."""

    kind: Literal["pretrain", "finetune"]
    sequence_length: int
    global_batch: int
    precision: Precision
    steps: int
    learning_rate: float
    data: tuple[str, ...]
    """Data paths for the framework; empty: mock data."""
    tokenizer_type: str
    tokenizer_model: str | None
    checkpoint_dir: str | None
    checkpoint_interval: int
    load_dir: str | None
    gradient_precision: Literal["fp32", "bf16"] = "fp32"
    """Format in which gradients are summed and reduced; fp16 runs have 16-bit ones anyway."""
    moe_dispatcher: Dispatcher = "auto"
    """What carries tokens to their experts and back; auto: all-to-all."""
    moe_overlap: bool = False
    """Dispatch and combine run beside the computation of another micro-batch."""
    min_learning_rate: float = 0.0
    """Learning rate at the end of its decay."""
    warmup_steps: int = 0
    """Steps in which the learning rate rises from 0, linearly."""
    warmup_fraction: float | None = None
    """Their share of ``lr_decay_steps``, where the user said that and no number of steps."""
    lr_decay: LrDecay = "cosine"
    lr_decay_steps: int = 1
    """Step at which the decay ends, counted from the first of all."""
    wsd_decay_steps: int = 0
    """Steps before that end in which the learning rate falls; 0 but for ``lr_decay`` wsd."""
    weight_decay: float = 0.1
    adam_beta1: float = 0.9
    adam_beta2: float = 0.95
    adam_epsilon: float = 1.0e-8
    gradient_clipping: float = 1.0
    """Norm of all gradients beyond which they are scaled down; 0: they never are."""
    seed: int = 1234

    @property
    def sends_once(self) -> bool:
        """A token crosses to an NVLink domain once, however many of its experts are there."""
        return self.moe_dispatcher in ("deepep", "hybridep")

    @property
    def low_precision(self) -> bool:
        """Matrix multiplications in 8 or 4 bit."""
        return self.precision not in ("bf16", "fp16")

    @property
    def gradient_bytes(self) -> float:
        """Bytes of one gradient, kept and on the wire."""
        return 2.0 if self.precision == "fp16" or self.gradient_precision == "bf16" else 4.0


@dataclass(frozen=True, slots=True)
class Limit:
    """What the search may choose on one axis."""

    axis: str
    """tp, cp, pp, vpp, dp, ep, etp or micro_batch."""
    smallest: int
    largest: int | None
    only: tuple[int, ...]
    """Empty: any."""
    banned: tuple[int, ...]

    def allows(self, degree: int) -> bool:
        """Whether ``degree`` keeps all of it."""
        if degree < self.smallest or (self.largest is not None and degree > self.largest):
            return False
        return degree not in self.banned and (not self.only or degree in self.only)


def allowed(limits: Iterable[Limit], axis: str, degree: int) -> bool:
    """Whether ``limits`` leave ``degree`` on ``axis``."""
    return all(limit.allows(degree) for limit in limits if limit.axis == axis)


@dataclass(frozen=True, slots=True)
class Goals:
    """What to maximise and what must hold."""

    maximize: Literal["throughput", "fewest-gpus", "latency"]
    memory_headroom: float
    """Share of device memory to keep free, 0.08 for 8 %."""
    limits: tuple[Limit, ...] = ()
    """At most one an axis; degrees that break one are not enumerated."""


@dataclass(frozen=True, slots=True)
class Pins:
    """The user's ``layout``: None means decide."""

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
    """What the batch script asks of Slurm beyond its shape; None: the directive is not written."""

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
    """What the objects for Kubernetes say beyond the plan; pairs are sorted."""

    image: str = ""
    """Empty: none is named."""
    namespace: str = ""
    queue: str = ""
    """Kueue queue; empty: none."""
    rack_label: str = ""
    domain_label: str = ""
    gpu_resource: str = ""
    """Empty: that of the GPU's vendor."""
    resources: tuple[tuple[str, str], ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    claims: tuple[tuple[str, str], ...] = ()
    """(PersistentVolumeClaim, path)."""
    host_network: bool = False
    shared_memory: str = ""
    max_restarts: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """How the program starts."""

    program: str
    """Empty: the one that the framework's backend emits."""
    args: tuple[str, ...]
    """Extra arguments for the framework, after those of the plan."""
    env: tuple[tuple[str, str], ...]
    master_port: int
    network_interface: str | None
    """NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME; None: not set."""
    slurm: SlurmJob
    kubernetes: KubernetesJob = KubernetesJob()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What training and serving have in common: a model, hosts for it, and targets."""

    name: str
    model: Model
    cluster: Cluster
    launch: Launch
    emit: tuple[str, ...]
    """Backends to emit, sorted, each once."""
    framework: str
    """The backend whose rank order and rules bind the layout (``megatron``, ``vllm``)."""
    versions: tuple[tuple[str, str], ...]
    """Version per backend, sorted by name."""
    digest: str
    """sha256 of the canonical spec, over what was written and what the names resolved to."""

    def version(self, backend: str) -> str:
        """The target version of ``backend``, as ``major.minor``."""
        return dict(self.versions)[backend]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Task):
    """A question of training, complete: passes after ``resolve`` read this and nothing else."""

    job: Job
    goals: Goals
    pins: Pins
    calibration: tuple[tuple[str, float], ...] = ()
    """Parameters of the cost model that the user measured (``parc calibrate``), sorted by name."""
