"""Functions that compute settings of torchtitan; fields.yaml refers to them by name."""

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


def hf_assets_path(problem: Problem, layout: Layout) -> str:
    """Return the folder of the Hugging Face tokenizer."""
    return problem.job.tokenizer_model or DEFAULT_ASSETS


def local_batch_size(problem: Problem, layout: Layout) -> int:
    """Return the number of sequences per call of the model on one data-parallel rank.

    With a pipeline, these are all sequences of a step, which the pipeline splits into
    micro-batches; without a pipeline, they are one micro-batch.
    """
    if layout.pp == 1:
        return layout.micro_batch
    return problem.job.global_batch // layout.dp


def pipeline_micro_batch_size(problem: Problem, layout: Layout) -> int | None:
    """Return the sequences per micro-batch of the pipeline; None without a pipeline."""
    return layout.micro_batch if layout.pp > 1 else None


def param_dtype(problem: Problem, layout: Layout) -> str:
    """Return the number format of weights and activations in forward and backward passes."""
    return DTYPES.get(problem.job.precision, problem.job.precision)


def reduce_dtype(problem: Problem, layout: Layout) -> str:
    """Return the number format in which gradients are reduced."""
    return DTYPES[problem.job.gradient_precision]


def disable_cuda_graphs(problem: Problem, layout: Layout) -> bool:
    """Return True if pp or ep is above 1, because CUDA graphs must then be disabled.

    CUDA graphs support neither pipelines nor the all-to-all of experts.
    """
    return layout.pp > 1 or layout.ep > 1


def max_norm(problem: Problem, layout: Layout) -> float:
    """Return the maximum gradient norm; infinity disables clipping.

    The value 0 would not disable clipping: torchtitan would scale all gradients to 0.
    """
    return problem.job.gradient_clipping or float("inf")


def adam_betas(problem: Problem, layout: Layout) -> tuple[float, float]:
    """Return (beta1, beta2) of Adam."""
    return (problem.job.adam_beta1, problem.job.adam_beta2)


def decay_ratio(problem: Problem, layout: Layout) -> float | None:
    """Return the fraction of the run's steps in which the learning rate decays.

    None means all steps after the warm-up.
    """
    job = problem.job
    if job.lr_decay == "constant":
        return 0.0
    return job.wsd_decay_steps / job.lr_decay_steps if job.lr_decay == "wsd" else None


def decay_type(problem: Problem, layout: Layout) -> str:
    """Return "cosine" or "linear", the shape of the learning-rate decay."""
    return "cosine" if problem.job.lr_decay == "cosine" else "linear"


def min_lr_factor(problem: Problem, layout: Layout) -> float:
    """Return the final learning rate as a fraction of the peak."""
    # Rounded to 12 digits, so that the emitted value is 0.1 rather than 0.09999999999999999.
    return float(f"{problem.job.min_learning_rate / problem.job.learning_rate:.12g}")


def dataset_path(problem: Problem, layout: Layout) -> str | None:
    """Return the first path of training data; None if torchtitan downloads its data set."""
    return problem.job.data[0] if problem.job.data else None


def saves_checkpoints(problem: Problem, layout: Layout) -> bool:
    """Return True if the run saves or loads checkpoints."""
    return bool(problem.job.checkpoint_dir or problem.job.load_dir)


def checkpoint_folder(problem: Problem, layout: Layout) -> str | None:
    """Return the folder for checkpoints; None for torchtitan's default folder."""
    return problem.job.checkpoint_dir


def reshard_after_forward(problem: Problem, layout: Layout) -> str:
    """Return "always" or "never", the time at which torchtitan frees gathered weights.

    "always" is after each forward pass (ZeRO-3); with "never", the weights stay gathered (ZeRO-2).
    """
    return "always" if layout.zero_stage == 3 else "never"


def pipeline_schedule_name(problem: Problem, layout: Layout) -> str | None:
    """Return the name that torch uses for the pipeline schedule; None without a pipeline."""
    return SCHEDULES[layout.schedule] if layout.pp > 1 else None


def rope_max_positions(problem: Problem, layout: Layout) -> int:
    """Return the number of rotary positions, which limits torchtitan's sequence length."""
    return max(problem.model.position.max_positions, problem.job.sequence_length)


def rope_scaling(problem: Problem, layout: Layout) -> str:
    """Return torchtitan's name for the type of rotary scaling, such as "llama" for Llama 3."""
    kind = problem.model.position.scaling
    return "llama" if kind == "llama3" else kind


def rope_factor(problem: Problem, layout: Layout) -> float | None:
    """Return the factor by which Llama 3's scaling stretches long wavelengths, else None."""
    position = problem.model.position
    return position.scaling_factor if position.scaling == "llama3" else None


def rope_original_positions(problem: Problem, layout: Layout) -> int | None:
    """Return the context length before Llama 3's scaling, in tokens; None without scaling."""
    position = problem.model.position
    return position.original_max_positions if position.scaling == "llama3" else None
