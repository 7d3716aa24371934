"""Table of the cost-model constants that have no table of their own, with their sources."""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name

from benchmarks.accuracy.pages.page_tables import markdown
from parc.compiler.ir import PassBytes


@dataclass(frozen=True, slots=True)
class Constant:
    """Meaning and source of ``package.module.NAME`` in ``parc``; the value is read from the
    module."""

    where: str
    meaning: str
    source: str


FLASH = "FlashAttention-2, arXiv:2307.08691, section 4.1; assumed, no backward timing was fitted"

CONSTANTS = (
    Constant(
        "compiler.cost.counts.flops.CAUSAL",
        "share of the score matrix that a causal mask keeps",
        "Megatron-LM",
    ),
    Constant(
        "compiler.cost.kernels.attention.BACKWARD_FACTOR",
        "backward over forward time of attention",
        FLASH,
    ),
    Constant(
        "compiler.cost.kernels.attention.FLASH_ATTENTION_2",
        "time of FlashAttention-2 on Hopper over that of cuDNN, by head dim",
        "FlashAttention-3, arXiv:2407.08608, figures 5 and 6, forward and backward at 4,096 tokens",
    ),
    Constant(
        "compiler.cost.kernels.attention.FLASH_ATTENTION_2_ON_B200",
        "the same on data-center GPUs of Blackwell",
        "sgl-project/sglang, pull request 33655; Dao-AILab/flash-attention, issue 1589",
    ),
    Constant(
        "backends.megatron.traffic.FUSED_SOFTMAX.moved",
        "traffic per score with a fused softmax but without fused attention, bytes",
        "counted: writes and reads of the products, softmax, dropout with its mask",
    ),
    Constant(
        "compiler.ir.program_traffic.SEPARATE_SCORES",
        "traffic per score if no kernel fuses the softmax, bytes",
        "counted: also copies to fp32 and to 16 bit, scale and mask",
    ),
    Constant(
        "compiler.cost.kernels.layer_kernels.STREAM_SHARE",
        "share of the memory bandwidth that traffic of scores reaches",
        "assumed",
    ),
    Constant(
        "compiler.cost.kernels.layer_kernels.MISALIGNED_HEAD",
        "slow-down if the head dim is not a multiple of 8",
        "cuBLAS documentation describes the effect; its size is assumed",
    ),
    Constant(
        "compiler.cost.kernels.layer_kernels.MISALIGNED_WEIGHT",
        "slow-down if a side of a weight on one rank is not a multiple of 64",
        "arXiv:2401.14489 and a guide of NVIDIA describe the effect; its size is assumed",
    ),
    Constant(
        "compiler.cost.kernels.layer_kernels.ROW_TILE",
        "multiple to which the rows of an expert are padded",
        "assumed",
    ),
    Constant(
        "compiler.cost.kernels.scaling.ROWWISE_CAST_BYTES",
        "bytes moved per operand element that is quantized with scales per row and column",
        "measured on one H100 with torchtitan 0.2.2; torchtitan, commit 7a04053, agrees",
    ),
    Constant(
        "compiler.cost.kernels.scaling.MXFP8_GEMM",
        "time of mxfp8 GEMMs over that of fp8 with scales per tensor",
        "fitted to four pairs of published runs that differ only in the recipe",
    ),
    Constant(
        "compiler.cost.kernels.scaling.FOUR_BIT",
        "additional factor on `gemm_low` for 4-bit matrix multiplications",
        "fitted to 8 published runs of dense models",
    ),
    Constant(
        "compiler.cost.kernels.recurrence.SCAN_BACKWARD",
        "backward over forward time of a recurrence",
        "assumed, after a count: two products for each, and recomputed states",
    ),
    Constant(
        "compiler.cost.step.routed_experts.CAST_BYTES",
        "traffic per element of the experts' inputs and gradients in 8 or 4 bit, bytes",
        "counted: padding, and quantizing by row and by column",
    ),
    Constant(
        "compiler.cost.step.routed_experts.UNFUSED_TRAFFIC",
        "traffic of unfused over fused permutation of tokens",
        "fitted to published runs with and without token dropping",
    ),
    Constant(
        "compiler.cost.step.routed_experts.GROUPED_GEMMS",
        "time of a grouped GEMM over that of the same tiles in one GEMM",
        "kernel timings of fused experts: 1.0 for bf16 on H100, 1.15 for fp8 on B200",
    ),
    Constant(
        "compiler.cost.step.routed_experts.SCATTERED",
        "time per byte of kernels of routed rows over that of other element-wise kernels",
        "fitted to the published runs of all GPUs together",
    ),
    Constant(
        "compiler.cost.step.routed_experts.BIAS_BYTES",
        "traffic per output element of experts with biases in the forward pass, bytes",
        "counted: PyTorch kernels of Megatron-LM that add the bias",
    ),
    Constant(
        "compiler.cost.step.routed_experts.BIAS_GRADIENT_BYTES",
        "the same in the backward pass, bytes",
        "counted: gradients of the same kernels",
    ),
    Constant(
        "compiler.cost.step.routed_experts.FUSED_GEMMS",
        "time of a fused grouped MLP over that of separate kernels",
        "fitted to published runs of both",
    ),
    Constant(
        "compiler.cost.step.routed_experts.MAX_HIDDEN_SHARE",
        "largest share of dispatch and combine that moe_overlap hides",
        "traces published by Megatron-Bridge (37 %), and step times with and without overlap",
    ),
    Constant(
        "compiler.cost.step.routed_experts.HIDING_COMPUTE_SHARE",
        "share of a layer's computation behind which dispatch and combine can be hidden",
        "assumed",
    ),
    Constant(
        "compiler.cost.step.layer_time.TP_BACKWARD",
        "exposed share of the backward collectives of sequence parallelism",
        "assumed, after the collectives that Megatron-LM overlaps with GEMMs",
    ),
    Constant(
        "compiler.cost.step.layer_time.WEIGHT_GRADIENTS",
        "share of a layer's backward GEMMs that overlaps with such collectives",
        "about half of the backward pass of the first projections of attention and MLP",
    ),
    Constant(
        "compiler.cost.step.gradients.OVERLAP_NORM",
        "norm that combines gradient traffic and computation (1: sum, 8: about the maximum)",
        "chosen from 1.5, 2, 3, 4 and none on published runs, few of which distinguish them",
    ),
    Constant(
        "compiler.cost.step.pass_time.LAUNCH_NORM",
        "norm that combines host launch time and device time (1: sum, 8: about the maximum)",
        "assumed",
    ),
    Constant(
        "compiler.cost.step.step_time.OPTIMIZER_BYTES",
        "memory traffic of Adam per parameter, bytes",
        "counted: three fp32 states read and written, gradient read, 16-bit copies",
    ),
    Constant(
        "compiler.cost.step.step_time.BF16_MOMENT_BYTES",
        "the same with bf16 moments",
        "counted: two moments and the rest of the master weight read and written in 16 bit",
    ),
    Constant(
        "compiler.cost.kernels.gemm.SUSTAINED_SECONDS",
        "kernel time from which a GPU runs at its sustained clock, seconds",
        "chosen for the fits of docs/kernel-fits.md, not fitted",
    ),
    Constant(
        "compiler.cost.kernels.collective_time.MEASURED_RANKS",
        "largest number of ranks in one domain with measured latency",
        "docs/kernel-fits.md",
    ),
    Constant(
        "compiler.cost.memory.workspaces.COMMUNICATOR_BYTES",
        "memory per NCCL communicator in use, bytes",
        "measured on A100: 544 to 688 MB (NVIDIA/nccl, issue 964)",
    ),
    Constant(
        "compiler.cost.memory.workspaces.PCIE_COMMUNICATOR_BYTES",
        "the same without NVLink",
        "assumed: NCCL uses fewer channels (NVIDIA/nccl, issue 986)",
    ),
    Constant(
        "compiler.cost.memory.workspaces.COMMUNICATORS_PER_AXIS",
        "NCCL communicators per mesh axis in use",
        "counted in Megatron-LM, parallel_state.py",
    ),
    Constant(
        "compiler.cost.memory.workspaces.PEER_BYTES",
        "memory of NCCL per NVLink peer of an all-to-all between experts, bytes",
        "counted on H100: 32 channels of 10 + 2 x 2 MiB (NVIDIA/nccl, issue 1685)",
    ),
    Constant(
        "backends.megatron.memory.SAVED_BYTES",
        "bytes per element that a linear layer saves, by precision; 2 in 16 bit",
        "widths of the formats and their block scales",
    ),
    Constant(
        "compiler.ir.program_memory.FRAGMENTATION",
        "memory lost in the caching allocator, as a share of activations and logits",
        "fitted to 85 readings of reserved and device memory of three programs",
    ),
    Constant(
        "backends.shared.torch.memory.FRAGMENTATION",
        "the same for FSDP2, besides the memory of its streams",
        "52 readings of torchtitan: bias of 1 %",
    ),
    Constant(
        "backends.shared.torch.memory.EAGER_FRAGMENTATION",
        "the same for the decoders that PARC emits under FSDP2",
        "fitted to 46 runs on one H200",
    ),
    Constant(
        "backends.megatron.memory.FRAGMENTATION",
        "the same for Megatron, as a share of weights, gradients and optimizer state too",
        "eleven readings of Megatron-Bridge: reserved is 2 to 7 % above allocated in eight, 11 to "
        "21 % in three",
    ),
    Constant(
        "compiler.ir.estimate.DYNAMIC_SPREAD",
        "half width of the memory interval, relative to all memory except parameters, their state "
        "and fragmentation",
        "at least the 80th percentile of the errors of published readings, each source counted "
        "once; not reduced when formulas improve, because new documents have larger errors",
    ),
    Constant(
        "compiler.ir.estimate.STATIC_SPREAD",
        "half width of the memory interval, relative to parameters, gradients and optimizer state",
        "80th percentile of the errors of readings between two steps, each source counted once",
    ),
    Constant(
        "compiler.ir.estimate.FRAGMENTATION_SPREAD",
        "fragmentation at the high end of the interval, relative to the expected fragmentation",
        "about four of five readings of reserved memory lie within the interval",
    ),
    Constant(
        "compiler.spec.job_spec.DEFAULT_TIE",
        "relative difference below which predictions are ties",
        "the regret of published sweeps doubles at 3 %, and is constant up to 2 %",
    ),
    Constant(
        "compiler.search.enumerate_layouts.MAX_VPP",
        "largest number of virtual stages that the search tries",
        "no model has been published with more; more saves at most 0.3 % in 23 searches",
    ),
    Constant(
        "compiler.search.enumerate_layouts.MAX_MICRO_BATCH",
        "largest micro-batch size that the search tries",
        "GEMMs are already large at this size; a larger one only increases the bubble",
    ),
    Constant(
        "compiler.search.enumerate_layouts.MIN_CP_TOKENS",
        "smallest number of tokens per rank with context parallelism",
        "fewer save at most 0.7 % in 33 searches, and the search takes up to 3.5 times as long",
    ),
)


def constants_table() -> str:
    """Return the Markdown table of all constants: name, value, meaning, source."""
    rows = [
        (
            f"`{one.where}`",
            _format_constant(resolve_name(f"parc.{one.where}")),
            one.meaning,
            one.source,
        )
        for one in CONSTANTS
    ]
    return markdown(("constant", "value", "meaning", "source"), rows, words=4)


def _format_constant(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_format_constant(one)}" for key, one in value.items())
    if isinstance(value, PassBytes):
        return f"forward {value.forward:g}, backward {value.backward:g}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
