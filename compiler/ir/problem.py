"""Training problem: model, hardware and all options of a training job, after resolution.

Except in ``Pins``, no field has a default: defaults are defined in the models of ``spec/``, and the
passes of ``resolve/`` apply them. A field of ``Pins`` is None if the search decides the value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Literal

from parc.compiler.ir.cluster import Cluster, Reserved
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.layout import (
    ContextComm,
    CudaGraphs,
    Offload,
    Recompute,
    Schedule,
    ZeroPlus,
)
from parc.compiler.ir.model import Model
from parc.compiler.ir.placement import PlacementPolicy
from parc.compiler.ir.serialize import NOT_SERIALIZED

Precision = Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"]
Dispatcher = Literal["auto", "alltoall", "deepep", "hybridep"]
LrDecay = Literal["cosine", "linear", "constant", "inverse-square-root", "wsd"]


Projection = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
"""Linear layers of a decoder layer, under their names in the library transformers."""


@frozen
class LoraAdapters:
    """LoRA adapters that a job trains; all other weights of the model are frozen."""

    rank: int
    alpha: int
    """The output of an adapter is multiplied by ``alpha / rank``."""
    dropout: float
    """Probability with which an element of the input of an adapter is dropped."""
    targets: tuple[Projection, ...]
    """Projections with an adapter, in the order of ``Projection``."""


@frozen
class Job:
    """Training run: batch, precision, hyperparameters, data and checkpoints.

    ``global_batch`` is in sequences, ``sequence_length`` in tokens.
    """

    kind: Literal["pretrain", "finetune"]
    sequence_length: int
    global_batch: int
    precision: Precision
    steps: int
    learning_rate: float
    data: tuple[str, ...]
    """Paths of the training data, in the notation of the framework; empty = mock data."""
    tokenizer_type: str | None
    """None: the framework chooses the type."""
    tokenizer_model: str | None
    checkpoint_dir: str | None
    checkpoint_interval: int | None
    """Number of steps between two checkpoints; None until a plan determines the best number."""
    load_dir: str | None
    lora: LoraAdapters | None
    """None if the job trains all weights."""
    gradient_precision: Literal["fp32", "bf16"]
    """Number format in which gradients are accumulated and reduced; ignored if ``precision`` is
    fp16, because gradients are 16-bit then."""
    moment_precision: Literal["fp32", "bf16"]
    """Number format of Adam's two moments."""
    fp8_recipe: Literal["tensorwise", "delayed", "blockwise"]
    """Scaling of 8-bit operands; only relevant if ``precision`` is fp8."""
    fused_loss: bool
    """True if fused kernels compute the loss."""
    tp_overlap: bool
    """True if tensor-parallel collectives overlap with matrix multiplications."""
    async_checkpoint: bool
    """True if a background process writes checkpoints."""
    moe_dispatcher: Dispatcher
    """Library that sends tokens to their experts and back; ``auto`` is a plain all-to-all."""
    moe_overlap: bool
    """True if sending tokens to experts and back overlaps with the computation of another
    micro-batch."""
    moe_imbalance: float
    """Tokens of the busiest rank of an expert-parallel group, divided by the mean over the group; 1
    if balanced."""
    min_learning_rate: float
    """Learning rate after the decay."""
    warmup_steps: int
    """Number of steps during which the learning rate rises linearly from 0."""
    warmup_fraction: float | None
    """Warm-up as a fraction of ``lr_decay_steps``; None if the spec gives the number of steps."""
    lr_decay: LrDecay
    lr_decay_steps: int
    """Step at which the decay ends, counted from the first step of the run."""
    wsd_decay_steps: int
    """Number of steps of the final decay if ``lr_decay`` is wsd (warm-up, stable, decay); otherwise
    0."""
    weight_decay: float
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    gradient_clipping: float
    """Largest global gradient norm; gradients with a larger norm are scaled down. 0 = no
    clipping."""
    seed: int

    @property
    def deduplicates_dispatch(self) -> bool:
        """True if a token is sent only once to each NVLink domain that contains its experts.

        Otherwise a token is sent several times to a domain that contains several of its experts.
        """
        # DeepEP and HybridEP forward a token inside the NVLink domain instead of sending it again.
        return self.moe_dispatcher in ("deepep", "hybridep")

    def busiest_rank_load(self, ep: int) -> float:
        """Return the tokens of the busiest of ``ep`` expert-parallel ranks, divided by the mean.

        A single rank computes all tokens of its group, so that its load is the mean.
        """
        return self.moe_imbalance if ep > 1 else 1.0

    @property
    def is_low_precision(self) -> bool:
        """True if the inputs of matrix multiplications have 8 or 4 bits."""
        return self.precision not in ("bf16", "fp16")

    @property
    def gradient_bytes(self) -> float:
        """Bytes per gradient value, both in memory and in communication."""
        # fp16 ignores gradient_precision: its gradients are always 16-bit.
        return 2.0 if self.precision == "fp16" or self.gradient_precision == "bf16" else 4.0


@frozen
class SizeLimit:
    """Limit on the sizes that the search may choose on one axis."""

    axis: str
    """Axis that the limit applies to: tp, cp, pp, vpp, dp, ep, etp or micro_batch."""
    smallest: int
    largest: int | None
    only: tuple[int, ...]
    """Allowed sizes; empty if all sizes between ``smallest`` and ``largest`` are allowed."""
    banned: tuple[int, ...]
    """Sizes that are not allowed."""

    def allows_size(self, degree: int) -> bool:
        """Return True if the limit allows an axis with ``degree`` ranks."""
        if degree < self.smallest or (self.largest is not None and degree > self.largest):
            return False
        return degree not in self.banned and (not self.only or degree in self.only)


def is_size_allowed(limits: Iterable[SizeLimit], axis: str, degree: int) -> bool:
    """Return True if all of ``limits`` on ``axis`` allow the size ``degree``."""
    return all(limit.allows_size(degree) for limit in limits if limit.axis == axis)


@frozen
class Goals:
    """Objective by which the search ranks layouts, and constraints on the chosen layout."""

    maximize: Literal["throughput", "fewest-gpus", "latency"]
    memory_headroom: float
    """Fraction of device memory that must stay free, for example 0.08 for 8 %."""
    tie: float
    """Relative difference between step times up to which layouts count as equally fast."""
    idle_hosts: Literal["allow", "forbid"]
    """``allow`` if the search may leave hosts idle to make the step shorter."""
    limits: tuple[SizeLimit, ...]
    """At most one limit per axis; layouts that violate a limit are not enumerated."""


@frozen
class Pins:
    """Values that section ``layout`` of the spec sets; None if the search decides the value."""

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
    cuda_graphs: CudaGraphs | None = None
    gtp: int | None = 1
    egtp: int | None = 1
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    pipeline_layout: str | None = None
    count_embedding: bool | None = None
    count_loss: bool | None = None
    order: str | None = None
    placement: PlacementPolicy | None = None


@frozen
class SlurmJob:
    """Directives of the Slurm batch script in addition to hosts and tasks.

    None means that the script does not contain the directive.
    """

    version: str
    partition: str | None
    account: str | None
    qos: str | None
    time_limit: str | None
    reservation: str | None
    constraint: str | None
    exclude: str | None
    nodelist: str | None
    """Hosts that the job must get, if the cluster has no host names."""
    array: str | None
    comment: str | None
    mail_user: str | None
    mail_type: str | None
    extra: tuple[str, ...]
    """Further directives: ``--option`` or ``--option=value``."""
    container_image: str | None
    container_mounts: tuple[str, ...]
    container_runtime: str | None
    """Program that starts the container: ``pyxis``, ``apptainer``, or None without a container."""
    requeue: bool
    signal_seconds: int
    log_dir: str


@frozen
class KubernetesJob:
    """Settings that the Kubernetes objects need in addition to the plan.

    Fields that contain pairs are sorted by name.
    """

    image: str
    """Name of the container image; empty if the spec sets none."""
    namespace: str
    queue: str
    """Name of the Kueue queue; empty if the spec sets none."""
    rack_label: str
    domain_label: str
    gpu_resource: str
    """Kubernetes resource name of a GPU; empty = the resource name of the GPU's vendor."""
    resources: tuple[tuple[str, str], ...]
    """(name, quantity) pairs of resources that are requested and limited."""
    requests: tuple[tuple[str, str], ...]
    """(name, quantity) pairs of resources that are requested without a limit."""
    node_selector: tuple[tuple[str, str], ...]
    tolerations: tuple[str, ...]
    """Tolerated taints: ``KEY``, ``KEY:EFFECT``, ``KEY=VALUE`` or ``KEY=VALUE:EFFECT``."""
    pull_secrets: tuple[str, ...]
    """Names of the Secrets that nodes use to pull the image."""
    run_as_user: int | None
    """User ID of the processes; None for the user of the image."""
    run_as_group: int | None
    """Group ID of the processes and of the mounted claims; None for the group of the image."""
    claims: tuple[tuple[str, str], ...]
    """(name of a PersistentVolumeClaim, mount path) pairs."""
    host_paths: tuple[tuple[str, str], ...]
    """(folder of the node, path in the container)."""
    annotations: tuple[tuple[str, str], ...]
    """Annotations of the pods that the user sets."""
    compute_domain: bool
    """True if pods that share an NVLink domain claim the IMEX channels of a ComputeDomain."""
    host_network: bool
    privileged: bool
    shared_memory: str
    secret: str
    """Name of the Secret with the variables of ``Launch.env_inherited``; empty = the run name."""
    max_restarts: int
    startup_minutes: int
    """Maximum time that an engine of a service may need to start."""


@frozen
class ProfiledSteps:
    """Steps ``first_step`` to ``last_step`` - 1, counted from 1, on some ranks."""

    first_step: int
    last_step: int
    ranks: tuple[int, ...]


@frozen
class Launch:
    """Program to start, its arguments and environment, and settings of the schedulers."""

    program: str
    """Script to start on each rank; empty = the script that the framework's backend emits."""
    args: tuple[str, ...]
    """Extra arguments for the framework, appended to the arguments of the plan."""
    omit: tuple[str, ...]
    """Flags of the plan that are left out."""
    tensorboard_dir: str | None
    """Folder for TensorBoard; None = no such files."""
    wandb_project: str | None
    """Project of Weights & Biases; None = no run is created."""
    profile: ProfiledSteps | None
    """Steps that a CUDA profiler records; None = none."""
    env: tuple[tuple[str, str], ...]
    env_inherited: tuple[str, ...]
    """Names of variables whose values come from the environment of the launch; sorted. PARC never
    has these values."""
    setup: tuple[str, ...]
    """Shell commands that run first on each host."""
    master_port: int
    network_interface: str | None
    """Value of NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME; None if PARC does not set them."""
    slurm: SlurmJob
    kubernetes: KubernetesJob


@frozen(kw_only=True)
class Task:
    """Fields that training and serving problems share: model, cluster, launch and backends."""

    name: str
    model: Model
    cluster: Cluster
    launch: Launch
    emit: tuple[str, ...]
    """Names of the backends that write files, sorted and without duplicates."""
    framework: str
    """Name of the backend whose rank order and rules apply to the layout (``megatron``,
    ``vllm``)."""
    versions: tuple[tuple[str, str], ...]
    """Target version of each backend, as pairs sorted by name."""
    digest: str
    """SHA-256 of the spec in canonical form, including the catalog facts and files to which the
    spec refers."""
    spec_json: str = field(default="", metadata=NOT_SERIALIZED)
    """Keys that the spec sets, as JSON, from which plan.json gets its section ``spec``; empty if
    the problem was built without a spec."""

    reserved: Reserved = field(default=None, metadata=NOT_SERIALIZED)
    """What the launchers reserve for the job."""

    def occupied_gpus(self, hosts: int, gpus: int) -> int:
        """Return the number of GPUs that other jobs cannot use while the job runs.

        ``gpus`` is the number of GPUs of its ranks, which are on ``hosts`` hosts.
        """
        return self.cluster.occupied_gpus(hosts, gpus, self.reserved)

    def version(self, backend: str) -> str:
        """Return the target version of ``backend`` as ``major.minor``."""
        return dict(self.versions)[backend]


@frozen(kw_only=True)
class Problem(Task):
    """Training problem; the passes after ``resolve`` read only this object."""

    job: Job
    goals: Goals
    pins: Pins
    calibration: tuple[tuple[str, float], ...]
    """Parameters of the cost model that the user measured with ``parc calibrate``, sorted by
    name."""

    @property
    def trains_on_mock_data(self) -> bool:
        """True if the job has no data, so that the program of the framework generates some.

        A program of the user may load data that the spec does not mention.
        """
        return not self.job.data
