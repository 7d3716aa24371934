"""Flag values that depend on layout, job and GPU; ``flags.yaml`` names the functions.

None and False omit the flag; True emits the flag without a value.
"""

from __future__ import annotations

from parc.backends.megatron.programs import has_grouped_gemm
from parc.backends.shared.plain_mesh import DEFAULT_ORDER
from parc.compiler.ir import Layout, Problem


def grouped_gemm(problem: Problem, layout: Layout) -> bool:
    """Compute all experts of a rank in one kernel, if the GPU supports it."""
    return problem.model.experts is not None and has_grouped_gemm(problem)


def permute_fusion(problem: Problem, layout: Layout) -> bool:
    """Use Transformer Engine's fused token permutation, which requires an NVIDIA GPU."""
    return grouped_gemm(problem, layout) and problem.cluster.gpu.vendor == "nvidia"


def dispatch_overlap(problem: Problem, layout: Layout) -> bool:
    """Overlap dispatch and combine with the computation of another micro-batch."""
    return problem.job.moe_overlap and layout.ep > 1


def padded_routing(problem: Problem, layout: Layout) -> bool:
    """Pad the tokens per expert to the multiple that low-precision GEMMs require."""
    low = problem.job.precision in ("fp8", "mxfp8", "nvfp4")
    return low and problem.model.experts is not None


def context_transport(problem: Problem, layout: Layout) -> str | None:
    """Return Megatron's name of the exchange of keys and values between context ranks."""
    words = {"all_gather": "allgather"}
    return words.get(layout.cp_comm, layout.cp_comm) if layout.cp > 1 else None


def context_hierarchy(problem: Problem, layout: Layout) -> tuple[int, int] | None:
    """Return (ranks per all-to-all group, ranks per ring) of a hierarchical exchange."""
    return (layout.cp_a2a, layout.cp_p2p) if layout.cp_a2a > 1 else None


def pp_before_dp(problem: Problem, layout: Layout) -> bool:
    """Select the second rank order."""
    return layout.order != DEFAULT_ORDER


def distributed_optimizer(problem: Problem, layout: Layout) -> bool:
    """Use the distributed optimizer, Megatron's ZeRO-1."""
    return layout.zero_stage > 0


def optimizer_copies(problem: Problem, layout: Layout) -> int | None:
    """Return the number of replicas of the sharded optimizer state; None if it is 1."""
    copies = layout.dp_replicate
    return copies if distributed_optimizer(problem, layout) and copies > 1 else None


def bf16(problem: Problem, layout: Layout) -> bool:
    """Use bf16, which is also the base format of 8-bit and 4-bit training."""
    return problem.job.precision != "fp16"


def fp16(problem: Problem, layout: Layout) -> bool:
    """Use fp16 with dynamic loss scaling."""
    return problem.job.precision == "fp16"


def bf16_gradients(problem: Problem, layout: Layout) -> bool:
    """Accumulate and reduce gradients in bf16; with bf16 weights Megatron defaults to fp32."""
    return problem.job.gradient_precision == "bf16" and problem.job.precision != "fp16"


def fp8_format(problem: Problem, layout: Layout) -> str | None:
    """Return hybrid (E4M3 forward, E5M2 backward) for fp8, and E4M3 for MXFP8.

    E4M3 has enough range for the gradients of MXFP8, because each block has a scale.
    """
    return {"fp8": "hybrid", "mxfp8": "e4m3"}.get(problem.job.precision)


def fp8_recipe(problem: Problem, layout: Layout) -> str | None:
    """Return current scaling with one factor per tensor, or MXFP8 with one per 32 values."""
    return {"fp8": "tensorwise", "mxfp8": "mxfp8"}.get(problem.job.precision)


def fp8_parameters(problem: Problem, layout: Layout) -> bool:
    """Store and gather weights in fp8, which requires the distributed optimizer."""
    return problem.job.precision == "fp8" and distributed_optimizer(problem, layout)


def fp4_format(problem: Problem, layout: Layout) -> str | None:
    """Return the format of NVFP4 values."""
    return "e2m1" if problem.job.precision == "nvfp4" else None


def fp4_recipe(problem: Problem, layout: Layout) -> str | None:
    """Return the scaling recipe of NVFP4."""
    return "nvfp4" if problem.job.precision == "nvfp4" else None


def recompute_granularity(problem: Problem, layout: Layout) -> str | None:
    """Return selective or full; None without recompute."""
    granularity = layout.recompute.granularity
    return None if granularity == "none" else granularity


def recompute_modules(problem: Problem, layout: Layout) -> tuple[str, ...] | None:
    """Return the modules of selective recompute."""
    return layout.recompute.modules or None


def data_path(problem: Problem, layout: Layout) -> tuple[str, ...] | None:
    """Return the blend of data sets."""
    return problem.job.data or None


def data_split(problem: Problem, layout: Layout) -> str | None:
    """Return a split that uses all data for training, because PARC disables evaluation."""
    return "100,0,0" if problem.job.data else None


def mock_data(problem: Problem, layout: Layout) -> bool:
    """Train on random tokens if the job has no data."""
    return not problem.job.data


def save_interval(problem: Problem, layout: Layout) -> int | None:
    """Return the steps between checkpoints; None if no checkpoints are saved."""
    return problem.job.checkpoint_interval if problem.job.checkpoint_dir else None


def load_path(problem: Problem, layout: Layout) -> str | None:
    """Return the folder to load from; by default a run resumes from its own checkpoints."""
    return problem.job.load_dir or problem.job.checkpoint_dir


def finetune(problem: Problem, layout: Layout) -> bool:
    """Load only the weights, and reset steps and optimizer."""
    return problem.job.kind == "finetune"
