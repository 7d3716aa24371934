"""Computed settings of torchtitan; fields.yaml refers to the functions by name."""

from __future__ import annotations

from parc.compiler.ir import Layout, Problem

SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zb-h1": "InterleavedZeroBubble",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}
"""Schedule of the plan -> name for torch's ``get_schedule_class``."""
DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
DEFAULT_ASSETS = "./assets/hf"
"""Folder to which torchtitan's download script writes tokenizers."""


def assets(problem: Problem, layout: Layout) -> str:
    """Return the folder of the tokenizer."""
    return problem.job.tokenizer_model or DEFAULT_ASSETS


def local_batch(problem: Problem, layout: Layout) -> int:
    """Return the sequences per replica and step with a pipeline, per micro-batch without one."""
    if layout.pp == 1:
        return layout.micro_batch
    return problem.job.global_batch // layout.dp


def pipeline_size(problem: Problem, layout: Layout) -> int | None:
    """Return the sequences per micro-batch of the pipeline; None without a pipeline."""
    return layout.micro_batch if layout.pp > 1 else None


def param_dtype(problem: Problem, layout: Layout) -> str:
    """Return the format of weights and activations in the forward and backward pass."""
    return DTYPES.get(problem.job.precision, problem.job.precision)


def reduce_dtype(problem: Problem, layout: Layout) -> str:
    """Return the format in which gradients are reduced."""
    return DTYPES[problem.job.gradient_precision]


def without_graphs(problem: Problem, layout: Layout) -> bool:
    """Return True with pp or ep above 1: CUDA graphs support neither pipelines nor all-to-all."""
    return layout.pp > 1 or layout.ep > 1


def max_norm(problem: Problem, layout: Layout) -> float:
    """Return the largest gradient norm; infinity to disable clipping.

    torchtitan would scale gradients to 0 if the norm were 0.
    """
    return problem.job.gradient_clipping or float("inf")


def betas(problem: Problem, layout: Layout) -> tuple[float, float]:
    """Return beta1 and beta2 of Adam."""
    return (problem.job.adam_beta1, problem.job.adam_beta2)


def decay_ratio(problem: Problem, layout: Layout) -> float | None:
    """Return the fraction of steps in which the rate decays; None for all after the warm-up."""
    job = problem.job
    if job.lr_decay == "constant":
        return 0.0
    return job.wsd_decay_steps / job.lr_decay_steps if job.lr_decay == "wsd" else None


def decay_type(problem: Problem, layout: Layout) -> str:
    """Return the shape of the decay."""
    return "cosine" if problem.job.lr_decay == "cosine" else "linear"


def min_factor(problem: Problem, layout: Layout) -> float:
    """Return the final learning rate as a fraction of the peak."""
    return float(f"{problem.job.min_learning_rate / problem.job.learning_rate:.12g}")


def dataset_path(problem: Problem, layout: Layout) -> str | None:
    """Return the first data path; None for the data set on Hugging Face."""
    return problem.job.data[0] if problem.job.data else None


def saves_checkpoints(problem: Problem, layout: Layout) -> bool:
    """Return True if the run saves or loads checkpoints."""
    return bool(problem.job.checkpoint_dir or problem.job.load_dir)


def folder(problem: Problem, layout: Layout) -> str | None:
    """Return the checkpoint folder; None for torchtitan's default."""
    return problem.job.checkpoint_dir


def reshard(problem: Problem, layout: Layout) -> str:
    """Return always for ZeRO-3, never for ZeRO-2, which keeps weights after the forward pass."""
    return "always" if layout.zero_stage == 3 else "never"


def schedule(problem: Problem, layout: Layout) -> str | None:
    """Return torch's name of the pipeline schedule; None without a pipeline."""
    return SCHEDULES[layout.schedule] if layout.pp > 1 else None


def rope_positions(problem: Problem, layout: Layout) -> int:
    """Return the rows of the rotary cache, which limit torchtitan's sequence length."""
    return max(problem.model.position.max_positions, problem.job.sequence_length)


def rope_scaling(problem: Problem, layout: Layout) -> str:
    """Return the scaling type; torchtitan calls Llama 3's scaling "llama"."""
    kind = problem.model.position.scaling
    return "llama" if kind == "llama3" else kind


def rope_factor(problem: Problem, layout: Layout) -> float | None:
    """Return the factor by which Llama 3's scaling stretches long wavelengths."""
    position = problem.model.position
    return position.scaling_factor if position.scaling == "llama3" else None


def rope_original(problem: Problem, layout: Layout) -> int | None:
    """Return the context length before Llama 3's scaling, in tokens."""
    position = problem.model.position
    return position.original_max_positions if position.scaling == "llama3" else None
