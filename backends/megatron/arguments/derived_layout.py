"""Functions that compute flag values from layout, job and GPU; ``flags.yaml`` names them.

A function that returns None or False omits the flag; True emits the flag without a value.
"""

from __future__ import annotations

from parc.backends.megatron.capabilities import core_version
from parc.backends.megatron.graphs import MODULES, captured_parts, captures_step
from parc.backends.megatron.memory import stores_low_precision_weights
from parc.backends.megatron.programs import has_grouped_gemm
from parc.backends.shared.expert_mesh import DEFAULT_ORDER
from parc.backends.shared.versions import parse_version
from parc.compiler.ir import Layout, Problem

OFFLOAD_MODULES = {
    "attention": ("qkv_linear", "core_attn", "attn_proj"),
    "norms": ("attn_norm", "mlp_norm"),
    "experts": ("expert_fc1", "moe_act"),
}
"""Value of ``layout.offload.activations`` -> values of ``--offload-modules``."""


def grouped_gemm(problem: Problem, layout: Layout) -> bool:
    """Return True if the GPU can compute all experts of a rank in one grouped GEMM kernel."""
    return problem.model.experts is not None and has_grouped_gemm(problem)


def permute_fusion(problem: Problem, layout: Layout) -> bool:
    """Return True to fuse the kernels that sort tokens by expert, which needs an NVIDIA GPU."""
    return grouped_gemm(problem, layout) and problem.cluster.gpu.vendor == "nvidia"


def forces_expert_balance(problem: Problem, layout: Layout) -> bool:
    """Return True to send the same number of tokens to each expert, because the data are random.

    An untrained router sends most random tokens to few experts. ``moe_imbalance`` above 1 describes
    the real routing, which is then kept.
    """
    balanced = problem.model.experts is not None and problem.job.moe_imbalance == 1
    return balanced and mock_data(problem, layout)


def shared_expert_overlap(problem: Problem, layout: Layout) -> bool:
    """Return True to compute shared experts while tokens are sent to the routed experts.

    TransformerConfig allows it with the all-to-all dispatcher, unless the dispatch overlaps with
    another micro-batch or the shared experts are recomputed. The recipes of Megatron-Bridge for
    DeepSeek-V3 with this dispatcher use it.
    """
    experts, modules = problem.model.experts, layout.recompute.modules
    if experts is None or not experts.shared_size or layout.ep == 1:
        return False
    own = not {"moe", "shared_experts"} & set(modules) and layout.recompute.granularity != "full"
    plain = not problem.job.deduplicates_dispatch and not dispatch_overlap(problem, layout)
    return own and plain


def dispatch_overlap(problem: Problem, layout: Layout) -> bool:
    """Return True if token dispatch overlaps with the computation of another micro-batch."""
    return problem.job.moe_overlap and layout.ep > 1


def padded_routing(problem: Problem, layout: Layout) -> bool:
    """Return True to pad the tokens per expert to the multiple that 8-bit and 4-bit GEMMs need."""
    low = problem.job.precision in ("fp8", "mxfp8", "nvfp4")
    return low and problem.model.experts is not None


def context_parallel_exchange(problem: Problem, layout: Layout) -> str | None:
    """Return Megatron's name of the context-parallel exchange (``cp_comm``); None if cp is 1."""
    # argparse does not check --cp-comm-type: a misspelled value fails only in TransformerEngine's
    # first forward pass.
    words = {"all_gather": "allgather"}
    return words.get(layout.cp_comm, layout.cp_comm) if layout.cp > 1 else None


def context_hierarchy(problem: Problem, layout: Layout) -> tuple[int, int] | None:
    """Return (ranks per all-to-all group, ranks per ring).

    None if context parallelism is not hierarchical.
    """
    return (layout.cp_a2a, layout.cp_p2p) if layout.cp_a2a > 1 else None


def weight_shards(problem: Problem, layout: Layout) -> int | None:
    """Return the ranks over which a dense weight is divided, tp x gtp; None if gtp is 1."""
    return layout.tp * layout.gtp if layout.gtp > 1 else None


def expert_weight_shards(problem: Problem, layout: Layout) -> int | None:
    """Return the ranks over which an expert is divided, etp x egtp; None if egtp is 1."""
    return layout.etp * layout.egtp if layout.egtp > 1 else None


def pp_before_dp(problem: Problem, layout: Layout) -> bool:
    """Return True for the rank order in which pp varies faster than dp."""
    return layout.order != DEFAULT_ORDER


def bf16(problem: Problem, layout: Layout) -> bool:
    """Return True unless the job trains in fp16.

    The format bf16 is also the base of 8-bit and 4-bit training.
    """
    # fp8 and fp4 are formats of GEMM inputs; weights, activations and communication stay bf16.
    return problem.job.precision != "fp16"


def fp16(problem: Problem, layout: Layout) -> bool:
    """Return True if the job trains in fp16, for which Megatron scales the loss dynamically."""
    return problem.job.precision == "fp16"


def bf16_gradients(problem: Problem, layout: Layout) -> bool:
    """Return True to accumulate and reduce gradients in bf16.

    With bf16 weights, Megatron's default is fp32.
    """
    return problem.job.gradient_precision == "bf16" and problem.job.precision != "fp16"


def bf16_moments(problem: Problem, layout: Layout) -> bool:
    """Return True to store both moments of Adam in bf16, with TransformerEngine's FusedAdam."""
    return problem.job.moment_precision == "bf16"


def moment_format(problem: Problem, layout: Layout) -> str | None:
    """Return "bf16", the format of Adam's moments; None for fp32, which is Megatron's default."""
    return "bf16" if bf16_moments(problem, layout) else None


def fp8_format(problem: Problem, layout: Layout) -> str | None:
    """Return "hybrid" (E4M3 forward, E5M2 backward) for fp8, "e4m3" for MXFP8, else None.

    E4M3 has enough range for the gradients of MXFP8, because each block has a scale.
    """
    return {"fp8": "hybrid", "mxfp8": "e4m3"}.get(problem.job.precision)


def fp8_recipe(problem: Problem, layout: Layout) -> str | None:
    """Return the scaling recipe: the recipe of the job for fp8, "mxfp8" for MXFP8, else None.

    MXFP8 has one factor per 32 values.
    """
    return {"fp8": problem.job.fp8_recipe, "mxfp8": "mxfp8"}.get(problem.job.precision)


def fp8_parameters(problem: Problem, layout: Layout) -> bool:
    """Return True to store weights in fp8 or mxfp8, which needs a sharded optimizer."""
    stored = stores_low_precision_weights(problem.job) and problem.job.precision != "nvfp4"
    return stored and layout.zero_stage > 0


def fp4_parameters(problem: Problem, layout: Layout) -> bool:
    """Return True to store weights in nvfp4, which needs the distributed optimizer.

    The buffers of Megatron-FSDP have no format for them.
    """
    stored = stores_low_precision_weights(problem.job) and problem.job.precision == "nvfp4"
    return stored and layout.zero_stage == 1


def reused_gradient_buffer(problem: Problem, layout: Layout) -> bool:
    """Return True to gather weights through the gradient buffer, which mxfp8 weights need.

    Weights in mxfp8 cannot be views of a buffer (param_and_grad_buffer.py), so their 16-bit values
    are gathered; optimizer_config.py recommends this buffer. Megatron-FSDP gathers mxfp8 itself.
    """
    return problem.job.precision == "mxfp8" and layout.zero_stage == 1


def amax_history(problem: Problem, layout: Layout) -> int | None:
    """Return the number of steps whose largest values set a delayed scale; None for other recipes.

    Megatron's default is 1. Its scripts and Megatron-Bridge use 1024.
    """
    return 1024 if fp8_recipe(problem, layout) == "delayed" else None


def amax_algorithm(problem: Problem, layout: Layout) -> str | None:
    """Return "max": a delayed scale uses the maximum of all these steps; None for other recipes."""
    return "max" if fp8_recipe(problem, layout) == "delayed" else None


def tensor_overlap(problem: Problem, layout: Layout) -> bool:
    """Return True to overlap tensor-parallel collectives, if the layout has any."""
    return problem.job.tp_overlap and layout.tp > 1


def fp4_format(problem: Problem, layout: Layout) -> str | None:
    """Return "e2m1", the number format of NVFP4; None for other precisions."""
    return "e2m1" if problem.job.precision == "nvfp4" else None


def fp4_recipe(problem: Problem, layout: Layout) -> str | None:
    """Return "nvfp4", the scaling recipe of NVFP4; None for other precisions."""
    return "nvfp4" if problem.job.precision == "nvfp4" else None


def graph_implementation(problem: Problem, layout: Layout) -> str | None:
    """Return how kernels are captured; None without CUDA graphs.

    Megatron 0.17 captures a step with "local" and a scope.
    """
    if captures_step(layout):
        old = parse_version(core_version(problem)) < (0, 18)
        return "local" if old else "full_iteration"
    return "transformer_engine" if layout.cuda_graphs else None


def graph_modules(problem: Problem, layout: Layout) -> tuple[str, ...] | None:
    """Return the modules that the CUDA graph of a layer contains; None without such graphs."""
    if not layout.cuda_graphs or captures_step(layout):
        return None
    parts = captured_parts(problem, layout)
    return tuple(module for part, module in MODULES.items() if part in parts)


def graph_scope(problem: Problem, layout: Layout) -> tuple[str, ...] | None:
    """Return what Megatron 0.17 captures: the modules of a layer, or a whole step.

    Megatron 0.18 renamed the flag and accepts the old name only for compatibility.
    """
    if parse_version(core_version(problem)) >= (0, 18):
        return None
    return ("full_iteration",) if captures_step(layout) else graph_modules(problem, layout)


def uses_graph_random_numbers(problem: Problem, layout: Layout) -> bool:
    """Return True if random states must be of the kind that CUDA graphs can replay."""
    return bool(layout.cuda_graphs)


def omits_nan_check(problem: Problem, layout: Layout) -> bool:
    """Return True if losses and gradients are not checked for NaN, for which the host waits."""
    return captures_step(layout)


def recompute_granularity(problem: Problem, layout: Layout) -> str | None:
    """Return "selective" or "full"; None without recompute."""
    granularity = layout.recompute.granularity
    return None if granularity == "none" else granularity


def recompute_modules(problem: Problem, layout: Layout) -> tuple[str, ...] | None:
    """Return the modules that selective recompute covers; None if there are none."""
    return layout.recompute.modules or None


def offloads_activations(problem: Problem, layout: Layout) -> bool:
    """Return True if saved activations wait in host memory."""
    return bool(layout.offload.activations)


def offload_modules(problem: Problem, layout: Layout) -> tuple[str, ...] | None:
    """Return the modules whose saved activations Megatron copies to the host, or None.

    Megatron copies what the operators between the start and the end of a module save
    (fine_grained_activation_offload.py).
    """
    parts = layout.offload.activations
    return tuple(name for part in parts for name in OFFLOAD_MODULES[part]) or None


def data_path(problem: Problem, layout: Layout) -> tuple[str, ...] | None:
    """Return ``job.data``, the paths of the data sets; None for a job without data.

    A weight can precede each path, as in Megatron's ``--data-path``.
    """
    return problem.job.data or None


def data_split(problem: Problem, layout: Layout) -> str | None:
    """Return "100,0,0", a split with all data for training; None for a job without data.

    PARC disables evaluation, so no other data is needed.
    """
    # Megatron's default, 969,30,1, would use 3 % of the data for validation and test.
    return "100,0,0" if problem.job.data else None


def mock_data(problem: Problem, layout: Layout) -> bool:
    """Return True to train on random tokens, because the job has no data."""
    return not problem.job.data


def save_interval(problem: Problem, layout: Layout) -> int | None:
    """Return the number of steps between checkpoints; None if no checkpoints are saved."""
    return problem.job.checkpoint_interval if problem.job.checkpoint_dir else None


def load_path(problem: Problem, layout: Layout) -> str | None:
    """Return the folder whose newest checkpoint the run continues.

    This is the run's own folder if the spec sets no other one, and if the run fine-tunes the
    weights in the other one.
    """
    base = None if problem.job.kind == "finetune" else problem.job.load_dir
    return base or problem.job.checkpoint_dir


def pretrained_path(problem: Problem, layout: Layout) -> str | None:
    """Return the checkpoint whose weights a fine-tuning job starts from; None for other jobs.

    Megatron reads it only as long as the folder of ``--load`` has no checkpoint. It then sets
    ``--finetune`` itself: the run starts at step 0 with a new optimizer. If neither folder has a
    checkpoint, it raises FileNotFoundError (checkpointing.py, load_checkpoint).
    """
    return problem.job.load_dir if problem.job.kind == "finetune" else None


def finetune(problem: Problem, layout: Layout) -> bool:
    """Return True for a fine-tuning job without the path of a pretrained checkpoint.

    Megatron then loads only the weights of the checkpoint of ``--load``. A job that is started
    again would load them again, so PARC requires ``load_dir`` (X19).
    """
    return problem.job.kind == "finetune" and problem.job.load_dir is None


def requires_checkpoint(problem: Problem, layout: Layout) -> bool:
    """Return True to stop if ``load_dir`` has no checkpoint, instead of training random weights.

    The run's own folder has none before the first start.
    """
    job = problem.job
    return job.kind == "pretrain" and job.load_dir not in (None, job.checkpoint_dir)
