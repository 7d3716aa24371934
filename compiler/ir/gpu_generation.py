"""Facts of a GPU generation: precisions, fixed overheads, and efficiency factors.

An efficiency factor is a measured rate relative to the data sheet or to a single kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Literal

from parc.compiler.ir.frozen import frozen


@frozen
class Efficiency:
    """Factors that convert timings of single kernels to the time of a whole training step.

    The times of kernels and collectives are fitted to benchmarks of single kernels. In a step they
    take longer, because of casts, gaps between kernels, overlap and shared NICs. The factors are
    fitted for each combination of kernel stack and GPU generation; 1 means that a kernel is as fast
    in a step as in its benchmark. The defaults are the prior means of the fit. A combination has
    another value only if this makes predictions of other sources better.
    """

    # Relative times, fitted for each kernel stack and generation (docs/cost-model/step-time.md).
    gemm: float = 1.10
    """Time of 16-bit matrix multiplications in a step on several GPUs, relative to the same kernels
    in a benchmark."""
    gemm_low: float = 1.05
    """Time of 8-bit and 4-bit matrix multiplications in a step on several GPUs, relative to the
    same kernels in a benchmark. The casts of operands are not included."""
    attention: float = 1.2
    """Time of the attention core in a step, relative to its time fitted to kernel benchmarks."""
    stream: float = 1.3
    """Time of norms, activations and residuals, relative to their memory traffic at the bandwidth
    of the data sheet."""
    launch_seconds: float = 13.5e-6
    """Host time of one operator that Python launches, in seconds (``counts/launches.py``); a layer
    cannot be faster than its launches."""
    tp: float = 0.8
    """Time of tensor-parallel collectives that computation does not hide, relative to the time of
    the same collectives in a benchmark."""
    network: float = 0.75
    """Fraction of the NIC rate that large messages between hosts achieve."""
    hop_seconds: float = 3e-5
    """Latency of one message between hosts including its launch, in seconds."""
    dp_overlap: float = 0.7
    """Fraction of the time of a micro-batch that can hide data-parallel communication of gradients
    and parameters."""
    pp: float = 0.6
    """Time of pipeline messages that computation does not hide, relative to the time of the same
    messages in a benchmark."""
    ep: float = 1.0
    """Time of expert all-to-alls that computation does not hide, relative to the time of the same
    all-to-alls in a benchmark."""
    step_seconds: float = 0.02
    """Fixed time per step in seconds: optimizer launch, logging and data loading."""
    straggler: float = 0.003
    """Relative increase of the step time each time the number of hosts doubles."""
    accumulate: float = 1.3
    """Time of separate kernels that accumulate gradients, relative to their memory traffic at the
    bandwidth of the data sheet. Stacks whose GEMMs accumulate gradients have no such kernels. The
    value is that of ``stream``, because both are element-wise kernels."""
    # Properties of the stack, not fitted.
    gpu_sources: tuple[tuple[str, int], ...] = ()
    """Number of sources of published runs of this stack, by catalog name of the GPU."""
    measured_launches: bool = False
    """True if ``launch_seconds`` was fitted with these runs, of at least two sources, too."""
    unfused: bool = False
    """True if attention scores are written to memory, as in frameworks that predate
    FlashAttention."""
    flash_attention_2: bool = False
    """True if the attention core is FlashAttention-2 on a GPU whose kernel benchmarks used newer
    kernels, such as cuDNN or FlashAttention-3 on Hopper."""
    overlaps_tp: bool = True
    """True if weight gradients overlap with tensor-parallel collectives of the backward pass. False
    for programs that let DTensor insert the collectives, for example."""
    overlaps_gradients: bool = True
    """True if gradients are reduced during the backward pass. False if the reduction starts after
    it, so that no computation hides it."""
    separate_sums: bool = False
    """True if a separate kernel adds the gradients of a micro-batch to the sum of the step. False
    if the GEMM that computes a gradient also adds it."""
    shares_first_nic: bool = False
    """True if collectives run on NCCL before 2.12, whose rings of GPUs on different sockets all
    take the first NIC of the host (``setup/links.py``)."""
    fused_routing: bool = True
    """True if one kernel permutes the routed tokens (Megatron's --moe-permute-fusion, which
    excludes token dropping)."""
    fused_experts: bool = False
    """True if one kernel computes both matrix multiplications of the experts, the activation and
    the casts."""

    blocking_launches: bool = False
    """True if the host waits for every kernel before it launches the next one
    (CUDA_LAUNCH_BLOCKING=1)."""
    blocking_hops: bool = False
    """True if a pipeline rank sends and receives one message after the other, and computes nothing
    meanwhile (DeepSpeed, runtime/pipe/schedule.py, TrainSchedule)."""
    whole_gradients: bool = False
    """True if ranks reduce and clip whole gradients although ZeRO stage 1 needs only their
    shards."""

    def sources_of_gpu(self, name: str) -> int:
        """Return the number of sources of published runs of this stack on the GPU ``name``."""
        return dict(self.gpu_sources).get(name, 0)

    @property
    def on_one_gpu(self) -> Efficiency:
        """Factors of a job on one GPU, whose kernels run as fast as in a benchmark.

        On several GPUs, collectives use a part of each GPU at the same time, and the slowest GPU
        sets the pace. Kernel times of 101 runs on one GPU show neither
        (``benchmarks/accuracy/published/emitted.jsonl`` and ``one_gpu.jsonl``).
        """
        return replace(
            self,
            gemm=1.0,
            gemm_low=1.0,
            attention=min(self.attention, 1.0),
            stream=min(self.stream, Efficiency().stream),
        )


@frozen
class ServingEfficiency:
    """Fractions of data-sheet rates that serving kernels achieve, and fixed times in seconds."""

    memory: float
    """Fraction of the memory bandwidth at which weights and the KV cache are read."""
    memory_fp4: float
    """Fraction of the memory bandwidth at which 4-bit weights are read."""
    gemm: float
    """Fraction of the dense 16-bit peak that large matrix multiplications achieve."""
    gemm_fp8: float
    """Fraction of the dense 8-bit peak that large matrix multiplications achieve, including the
    casts of activations."""
    gemm_fp4: float
    """Fraction of the dense 4-bit peak that large matrix multiplications achieve, including the
    casts of activations."""
    attention: float
    """Fraction of the dense 16-bit peak that prefill attention achieves."""
    kernel_seconds: float
    """Fixed time of one kernel of a CUDA graph in seconds, in addition to its memory traffic."""
    collective_seconds: float
    """Time of one all-reduce of a few KB inside an NVLink domain, in seconds."""
    link: float
    """Fraction of the one-way link rate that large collectives achieve."""


@frozen
class Generation:
    """Facts that all GPUs of one architecture share, as in one file of ``catalog/generations``."""

    name: str
    vendor: str
    compute_capabilities: tuple[str, ...]
    """CUDA compute capabilities of the architecture as text, such as 9.0; empty for AMD."""
    precisions: tuple[str, ...]
    """Number formats that the matrix units multiply, in the order in which PARC suggests them."""
    kernels_like: str
    """Name of the GPU whose kernel timings replace those of a GPU without an entry in
    ``catalog/kernels``; they are scaled by the data sheets of the two GPUs."""
    driver_context_mb: float
    """Memory per GPU that the driver context and loaded modules occupy outside of torch's
    allocator, in decimal MB."""
    host_link_gb_per_s: float
    """Bandwidth between one GPU and the host memory while all GPUs of the host transfer data, one
    direction, in decimal GB/s."""
    matmul_workspace_kib: float
    """Workspace in KiB that torch gives cuBLAS or hipBLASLt per thread, unless
    CUBLAS_WORKSPACE_CONFIG sets another size."""
    transformer_engine_workspace_kib: float
    """Workspace in KiB that TransformerEngine allocates per stream of matrix multiplications."""
    fp8_cast_bytes: float
    """Bytes per weight of the copies that TransformerEngine keeps with per-tensor fp8 scaling: 2 if
    the matrix units read 8-bit operands in only one memory layout, so that a transposed copy is
    needed too; otherwise 1."""
    source: str
    serving: ServingEfficiency
    # hash=False, because a mapping is not hashable; the name identifies a generation.
    efficiency: Mapping[str, Efficiency] = field(hash=False)
    """Efficiency factors per kernel stack. A kernel stack is a class of training kernels that
    several frameworks share."""
    file: str = ""
    """Path of the user's file, as written in the spec; empty for a generation of the catalog."""


@frozen
class KernelStack:
    """Kernel stack: the class of kernels and overlap to which a training framework belongs.

    Efficiency factors are fitted for each stack separately.
    """

    name: str
    """Key of ``efficiency`` in the files of ``catalog/generations``: ``transformer-engine`` (fused
    kernels, gradient communication overlapped with the backward pass) or ``torch-native`` (kernels
    of torch, sharded data parallelism). A backend that measured its own factors uses another
    name."""
    like: str = ""
    """Stack whose factors replace those of a generation without a row for ``name``; empty: none."""
    properties: Mapping[str, bool] = field(default_factory=dict, hash=False)
    """Properties of the framework that hold on every GPU generation, by field of ``Efficiency``."""
    rows: Mapping[str, Efficiency] = field(default_factory=dict, hash=False)
    """Factors that the backend measured itself, by name of the GPU generation; they take precedence
    over the catalog."""

    def efficiency_for(self, generation: Generation) -> Efficiency | None:
        """Return the efficiency factors of this kernel stack on GPUs of ``generation``.

        None if neither the backend nor the catalog has factors for this combination.
        """
        # The backend's own measurements are more specific than the catalog's.
        own = self.rows.get(generation.name) or generation.efficiency.get(self.name)
        if own is not None:
            return replace(own, **dict[str, Any](self.properties))
        borrowed = generation.efficiency.get(self.like)
        if borrowed is None:
            return None
        # Runs of another stack say nothing about the errors of this one.
        changes: dict[str, Any] = {**self.properties, "measured_launches": False}
        return replace(borrowed, **changes, gpu_sources=())

    def origin(self, generation: Generation) -> Literal["plugin", "runs", "borrowed"]:
        """Return where the factors come from: own rows, the row of this stack, or of ``like``."""
        if generation.name in self.rows:
            return "plugin"
        return "runs" if self.name in generation.efficiency else "borrowed"
