"""Values of flags that are computed from layout, job and GPU. Each function: problem, layout."""

from __future__ import annotations

from parc.backends.megatron.programs import has_grouped_gemm
from parc.backends.shared.plain_mesh import DEFAULT_ORDER
from parc.compiler.ir import Layout, Problem


def grouped_gemm(problem: Problem, layout: Layout) -> bool:
    """All experts of a rank in one kernel."""
    return problem.model.experts is not None and has_grouped_gemm(problem)


def permute_fusion(problem: Problem, layout: Layout) -> bool:
    """TransformerEngine's fused token permutation."""
    return grouped_gemm(problem, layout) and problem.cluster.gpu.vendor == "nvidia"


def dispatch_overlap(problem: Problem, layout: Layout) -> bool:
    """Dispatch and combine beside the computation of another micro-batch."""
    return problem.job.moe_overlap and layout.ep > 1


def padded_routing(problem: Problem, layout: Layout) -> bool:
    """Tokens of an expert are padded to what the low-precision GEMM demands."""
    low = problem.job.precision in ("fp8", "mxfp8", "nvfp4")
    return low and problem.model.experts is not None


def context_transport(problem: Problem, layout: Layout) -> str | None:
    """How keys and values are exchanged, in Megatron's words."""
    words = {"all_gather": "allgather"}
    return words.get(layout.cp_comm, layout.cp_comm) if layout.cp > 1 else None


def context_hierarchy(problem: Problem, layout: Layout) -> tuple[int, int] | None:
    """Neighbours that exchange by all-to-all, and the ring over these."""
    return (layout.cp_a2a, layout.cp_p2p) if layout.cp_a2a > 1 else None


def pp_before_dp(problem: Problem, layout: Layout) -> bool:
    """The second rank order."""
    return layout.order != DEFAULT_ORDER


def distributed_optimizer(problem: Problem, layout: Layout) -> bool:
    """ZeRO-1."""
    return layout.zero_stage > 0


def optimizer_copies(problem: Problem, layout: Layout) -> int | None:
    """Replicas of the sharded optimizer state."""
    copies = layout.dp_replicate
    return copies if distributed_optimizer(problem, layout) and copies > 1 else None


def bf16(problem: Problem, layout: Layout) -> bool:
    """Also beneath 8-bit and 4-bit formats."""
    return problem.job.precision != "fp16"


def fp16(problem: Problem, layout: Layout) -> bool:
    """Half precision with dynamic loss scaling."""
    return problem.job.precision == "fp16"


def bf16_gradients(problem: Problem, layout: Layout) -> bool:
    """Sum and reduce gradients in bf16; Megatron takes fp32 by itself beneath bf16."""
    return problem.job.gradient_precision == "bf16" and problem.job.precision != "fp16"


def fp8_format(problem: Problem, layout: Layout) -> str | None:
    """E4M3 forward and E5M2 backward; MXFP8 needs E4M3 alone (its blocks have their own scale)."""
    return {"fp8": "hybrid", "mxfp8": "e4m3"}.get(problem.job.precision)


def fp8_recipe(problem: Problem, layout: Layout) -> str | None:
    """Current scaling, one factor a tensor; or one factor for 32 values."""
    return {"fp8": "tensorwise", "mxfp8": "mxfp8"}.get(problem.job.precision)


def fp8_parameters(problem: Problem, layout: Layout) -> bool:
    """Keep the weights in fp8 and gather them so, which the distributed optimizer can."""
    return problem.job.precision == "fp8" and distributed_optimizer(problem, layout)


def fp4_format(problem: Problem, layout: Layout) -> str | None:
    """NVFP4 values."""
    return "e2m1" if problem.job.precision == "nvfp4" else None


def fp4_recipe(problem: Problem, layout: Layout) -> str | None:
    """NVFP4 scaling."""
    return "nvfp4" if problem.job.precision == "nvfp4" else None


def recompute_granularity(problem: Problem, layout: Layout) -> str | None:
    """Selective or full."""
    granularity = layout.recompute.granularity
    return None if granularity == "none" else granularity


def recompute_modules(problem: Problem, layout: Layout) -> tuple[str, ...] | None:
    """Modules of selective recompute."""
    return layout.recompute.modules or None


def data_path(problem: Problem, layout: Layout) -> tuple[str, ...] | None:
    """Blend of data sets."""
    return problem.job.data or None


def data_split(problem: Problem, layout: Layout) -> str | None:
    """All of the data is for training: nothing is evaluated."""
    return "100,0,0" if problem.job.data else None


def mock_data(problem: Problem, layout: Layout) -> bool:
    """Random tokens, for a run without data."""
    return not problem.job.data


def save_interval(problem: Problem, layout: Layout) -> int | None:
    """Steps between checkpoints."""
    return problem.job.checkpoint_interval if problem.job.checkpoint_dir else None


def load_path(problem: Problem, layout: Layout) -> str | None:
    """Where to load from; a pretraining run resumes from where it saves."""
    return problem.job.load_dir or problem.job.checkpoint_dir


def finetune(problem: Problem, layout: Layout) -> bool:
    """Load the weights only; steps and optimizer start anew."""
    return problem.job.kind == "finetune"
