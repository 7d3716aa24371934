"""Facts of a GPU generation: precisions, overheads, and measured shares of data-sheet rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Step-level factors of one kernel stack on one GPU generation, on top of kernel timings.

    Kernels and collectives have fits from timings of single kernels. These factors carry the
    difference between such a timing and a whole step: casts and gaps between kernels, overlap,
    shared NICs. Factors on kernel times are 1 if a step equals the single kernel. The defaults are
    the centres of the priors that fits start from; a parameter that no published run shows keeps
    its default.
    """

    gemm: float = 1.10
    """16-bit matrix multiplications of a step over those of single kernels: gaps, clocks."""
    gemm_low: float = 1.15
    """The same in 8 and 4 bit, with the casts."""
    attention: float = 1.2
    """Attention core of a step over the fitted forward kernel."""
    stream: float = 1.3
    """Memory traffic of norms, activations and residuals over its bytes at data-sheet rate."""
    layer_seconds: float = 6e-4
    """Host launch of one layer's forward; a floor under its time."""
    tp: float = 0.8
    """Tensor-parallel collectives that are exposed, over their time alone."""
    network: float = 0.75
    """Share of the NIC rate that large messages between hosts get."""
    hop_seconds: float = 3e-5
    """Latency of one hop between hosts, launch included."""
    dp_overlap: float = 0.7
    """Share of a micro-batch that gradient and parameter traffic can hide behind."""
    pp: float = 0.6
    """Pipeline messages that are exposed, over their time alone."""
    ep: float = 1.0
    """Expert all-to-all that is exposed, over its time alone."""
    step_seconds: float = 0.02
    """Once a step: optimizer launch, logging, data."""
    straggler: float = 0.003
    """Growth of the step with every doubling of hosts."""
    accumulate: float = 1.0
    """Memory traffic of adding up gradients over its bytes at data-sheet rate."""
    experts: float = 1.3
    """Multiplications of routed experts in a step over one kernel of all their rows."""
    routed_seconds: float = 2e-3
    """Host launch of one routed layer's forward in 16 bit; a floor under its time."""
    unfused: bool = False
    """Attention scores go through memory: frameworks from before FlashAttention."""
    fused_routing: bool = True
    """Permutation of routed tokens is one kernel (--moe-permute-fusion, without token dropping)."""
    fused_experts: bool = False
    """Both multiplications of the experts, activation and casts are one kernel."""


@dataclass(frozen=True, slots=True)
class ServingEfficiency:
    """Shares of data-sheet rates that serving kernels reach, and fixed costs in seconds."""

    memory: float
    """Weight and cache streaming over memory bandwidth."""
    memory_fp4: float
    """The same for 4-bit weights."""
    gemm: float
    """Large GEMMs over dense peak, 16 bit."""
    gemm_fp8: float
    """The same in 8 bit, activations cast on the way."""
    gemm_fp4: float
    """The same in 4 bit."""
    attention: float
    """Prefill attention over dense 16-bit peak."""
    kernel_seconds: float
    """One kernel of a captured graph, beside its traffic."""
    collective_seconds: float
    """One all-reduce of a few KB inside a domain."""
    link: float
    """Large collectives over the one-way link rate."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Facts that all GPUs of one architecture share; one file of ``catalog/generations``."""

    name: str
    vendor: str
    compute_capabilities: tuple[str, ...]
    """CUDA compute capabilities of its GPUs ("9.0"); empty for AMD."""
    precisions: tuple[str, ...]
    """Formats that its matrix units multiply, in the order in which they are suggested."""
    kernels_like: str
    """GPU whose kernel timings, scaled by data sheet, price a GPU without an entry in
    ``catalog/kernels``."""
    driver_context_mb: float
    """Driver context and loaded modules on each GPU, outside of any allocator, decimal MB."""
    host_link_gb_per_s: float
    """Rate between one GPU and the memory of its host while all GPUs of the host transfer, decimal
    GB/s, one direction."""
    matmul_workspace_kib: float
    """Workspace that torch gives cuBLAS or hipBLASLt for each thread, unless
    CUBLAS_WORKSPACE_CONFIG changes it."""
    transformer_engine_workspace_kib: float
    """Workspace of TransformerEngine for each stream of matrix products."""
    fp8_cast_bytes: float
    """Bytes per weight of the per-tensor fp8 copies that TransformerEngine keeps: 2 if the matrix
    units multiply 8-bit operands in one memory layout only, so that a transposed copy is kept."""
    source: str
    serving: ServingEfficiency
    efficiency: Mapping[str, Efficiency] = field(hash=False)
    """Rows by stack, a class of training kernels and overlap that several frameworks share."""
    file: str = ""
    """Path of the user's file, as the spec names it; empty for a generation of the catalog."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Class of kernels and overlap of a training framework, under which runs are fitted."""

    name: str
    """Key of ``efficiency`` in the files of ``catalog/generations``: ``transformer-engine``
    (fused kernels, gradients overlapped with the backward pass) or ``torch-native`` (kernels of
    torch, sharded data parallelism); another name for a stack that the backend itself measured."""
    rows: Mapping[str, Efficiency] = field(default_factory=dict, hash=False)
    """The backend's own rows by name of the GPU generation; they win over the catalog's."""

    def row(self, generation: Generation) -> Efficiency | None:
        """Return the row that prices ``generation``; None if neither side has one."""
        return self.rows.get(generation.name) or generation.efficiency.get(self.name)
