"""Constants of the cost model that belong to no table of their own, with where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from benchmarks.accuracy.page_tables import markdown


@dataclass(frozen=True, slots=True)
class Constant:
    """``module.NAME`` of ``parc.compiler``; the value is read from there."""

    where: str
    meaning: str
    source: str


FLASH = "FlashAttention-2, arXiv:2307.08691, section 4.1; assumed, no backward timing was fitted"

CONSTANTS = (
    Constant(
        "cost.counts.flops.CAUSAL", "share of the score matrix under a causal mask", "Megatron-LM"
    ),
    Constant("cost.kernels.attention.BACKWARD_FACTOR", "backward over forward attention", FLASH),
    Constant(
        "cost.kernels.layer_kernels.SCORE_BYTES",
        "traffic of one score without a fused kernel, bytes",
        "counted: written, softmax, dropout with its mask, read",
    ),
    Constant(
        "cost.kernels.layer_kernels.SCORE_GRADIENT_BYTES",
        "the same of its gradient, bytes",
        "counted: written, dropout, softmax with its output, read by three products",
    ),
    Constant(
        "cost.kernels.layer_kernels.STREAM_SHARE",
        "of the memory bandwidth, for those scores",
        "an assumption",
    ),
    Constant(
        "cost.kernels.layer_kernels.MISALIGNED",
        "slow-down where a head dim is no multiple of 8",
        "cuBLAS documentation names the effect; its size is an assumption",
    ),
    Constant(
        "cost.kernels.layer_kernels.UNEVEN",
        "slow-down where a weight on a rank has sides that are no multiple of 64",
        "arXiv:2401.14489 and a guide of NVIDIA name the effect; its size is an assumption",
    ),
    Constant(
        "cost.kernels.layer_kernels.ROW_TILE",
        "rows of an expert are padded to this many",
        "an assumption",
    ),
    Constant(
        "cost.setup.pricing.FOUR_BIT",
        "what 4-bit multiplications lose between a kernel and a step, over 8-bit ones",
        "fitted to 8 published runs of dense models",
    ),
    Constant(
        "cost.kernels.recurrence.MATRIX_SHARE",
        "of the 16-bit matrix peak, for products inside a chunk of a recurrence",
        "an assumption",
    ),
    Constant(
        "cost.kernels.recurrence.MAMBA_PASSES",
        "times that a channel of a Mamba layer passes through memory, forward",
        "fitted to 12 published runs of Nemotron-H and Nemotron 3 Nano",
    ),
    Constant(
        "cost.kernels.recurrence.BACKWARD",
        "backward over forward of a recurrence",
        "counted: two products for each, states again; an assumption",
    ),
    Constant(
        "cost.step.routed_kernels.CAST_BYTES",
        "traffic of one element of the experts' inputs and gradients in 8 or 4 bit, bytes",
        "counted: padding, and quantising by row and by column",
    ),
    Constant(
        "cost.step.routed_kernels.UNFUSED",
        "traffic of permutation by single kernels over a fused one",
        "fitted to published runs with and without token dropping",
    ),
    Constant(
        "cost.step.routed_kernels.FUSED_GEMMS",
        "time of a fused grouped MLP over that of its kernels",
        "fitted to published runs of both",
    ),
    Constant(
        "cost.step.routed_kernels.LOW_LAUNCH",
        "host launch of a routed layer in 8 or 4 bit over that in 16",
        "fitted to published runs of both",
    ),
    Constant(
        "cost.collectives.dispatch.HIDDEN",
        "most of dispatch and combine that moe_overlap hides",
        "traces published by Megatron-Bridge (37 %) and step times with and without",
    ),
    Constant(
        "cost.collectives.dispatch.BESIDE",
        "share of a layer's computation that it can hide behind",
        "an assumption",
    ),
    Constant(
        "cost.step.layer_time.TP_BACKWARD",
        "share of backward collectives of sequence parallelism left exposed",
        "an assumption, after what Megatron-LM overlaps with GEMMs",
    ),
    Constant(
        "cost.step.layer_time.WEIGHT_GRADIENTS",
        "of a layer's backward GEMMs, what such collectives run beside",
        "half of the backward of the first projections of attention and MLP, about",
    ),
    Constant(
        "cost.step.gradients.OVERLAP_NORM",
        "how sharply gradient traffic hides behind computation (1 adds, 8 takes the longer)",
        "chosen among 1.5, 2, 3, 4 and none on published runs, few of which tell them apart",
    ),
    Constant(
        "cost.step.layer_time.LAUNCH_NORM",
        "how sharply host launches bound device time (1 adds, 8 takes the longer)",
        "an assumption",
    ),
    Constant(
        "cost.step.step_time.OPTIMIZER_BYTES",
        "Adam's traffic a parameter, bytes",
        "three fp32 states read and written, gradient read, 16-bit copies",
    ),
    Constant(
        "cost.kernels.gemm.SUSTAINED_SECONDS",
        "kernel time from which the sustained clock rules, seconds",
        "chosen for the fits of docs/kernel-fits.md, not fitted",
    ),
    Constant(
        "cost.kernels.collective_time.MEASURED_RANKS",
        "ranks of one domain up to which latency was measured",
        "docs/kernel-fits.md",
    ),
    Constant(
        "cost.memory.peak.COMMUNICATOR_BYTES",
        "one NCCL communicator in use, bytes",
        "published breakdowns: 0.3 to 0.5 GB for two or three",
    ),
    Constant(
        "cost.memory.runtime.SAVED_BYTES",
        "an element that a linear layer saves; 16 bit: 2",
        "widths of the formats and their block scales",
    ),
    Constant(
        "cost.memory.runtime.DEEPSPEED_REST_BYTES",
        "DeepSpeed beside states and buckets, bytes",
        "64 readings of nvidia-smi in BigScience's tr11-176B log",
    ),
    Constant(
        "cost.memory.runtime.FRAGMENTATION",
        "share of activations and logits that the caching allocator loses",
        "85 readings of reserved and device memory of three programs",
    ),
    Constant(
        "cost.memory.runtime.EXPANDING_FRAGMENTATION",
        "the same of Megatron, started with expandable segments",
        "an assumption: no reading tells it apart",
    ),
    Constant(
        "ir.estimate.DYNAMIC_BAND",
        "half width of the memory band, of all that is not parameters or their state",
        "120 published readings: about eight of ten lie within it",
    ),
    Constant(
        "search.rank_layouts.TIE",
        "predictions this close are ties",
        "run-to-run noise of published sweeps",
    ),
    Constant(
        "search.enumerate_layouts.MAX_VPP",
        "most virtual stages that are tried",
        "more have not been published for any model",
    ),
    Constant(
        "search.enumerate_layouts.MAX_MICRO_BATCH",
        "largest micro-batch that is tried",
        "GEMMs are large by then; only the bubble grows",
    ),
    Constant(
        "search.enumerate_layouts.MIN_CP_TOKENS",
        "fewest tokens that context parallelism leaves a rank",
        "an assumption",
    ),
)


def constants_table() -> str:
    """Every constant: where it stands, its value, what it is, and its source."""
    rows = [
        (f"`{one.where}`", _shown(_value(one.where)), one.meaning, one.source) for one in CONSTANTS
    ]
    return markdown(("constant", "value", "meaning", "source"), rows, words=4)


def _value(where: str) -> object:
    module, _, name = where.rpartition(".")
    return getattr(import_module(f"parc.compiler.{module}"), name)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(one)}" for key, one in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
