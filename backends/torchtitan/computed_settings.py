"""Functions that compute settings of torchtitan; fields.yaml refers to them by name."""

from __future__ import annotations

from parc.backends.torchtitan.python_code import PythonCode, python_literal
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
    """Return the folder that contains the Hugging Face tokenizer."""
    return problem.job.tokenizer_model or DEFAULT_ASSETS


def local_batch_size(problem: Problem, layout: Layout) -> int:
    """Return the number of sequences that a data-parallel rank loads at a time.

    Without a pipeline, this is one micro-batch. With a pipeline, this is the rank's part of the
    global batch, which torch then splits into micro-batches.
    """
    if layout.pp == 1:
        return layout.micro_batch
    return problem.job.global_batch // layout.dp


def pipeline_micro_batch_size(problem: Problem, layout: Layout) -> int | None:
    """Return the number of sequences per micro-batch if there is a pipeline, else None."""
    return layout.micro_batch if layout.pp > 1 else None


def param_dtype(problem: Problem, layout: Layout) -> str:
    """Return the number format of the weights and activations in the forward and backward pass."""
    return DTYPES.get(problem.job.precision, problem.job.precision)


def reduce_dtype(problem: Problem, layout: Layout) -> str:
    """Return the number format in which gradients are reduced over data-parallel ranks."""
    return DTYPES[problem.job.gradient_precision]


def disable_cuda_graphs(problem: Problem, layout: Layout) -> bool:
    """Return True if the layout uses pipeline or expert parallelism.

    CUDA graphs support neither pipelines nor the all-to-all of experts, so they must be disabled.
    """
    return layout.pp > 1 or layout.ep > 1


def max_norm(problem: Problem, layout: Layout) -> float:
    """Return the gradient norm above which gradients are clipped; infinity if clipping is off.

    The value 0 would not turn clipping off: torchtitan would scale all gradients to 0.
    """
    return problem.job.gradient_clipping or float("inf")


def adam_betas(problem: Problem, layout: Layout) -> tuple[float, float]:
    """Return Adam's decay rates (beta1, beta2) of the first and the second moment."""
    return (problem.job.adam_beta1, problem.job.adam_beta2)


def decay_ratio(problem: Problem, layout: Layout) -> float | None:
    """Return the fraction of all steps in which the learning rate decays.

    None means that the learning rate decays in all steps after the warm-up.
    """
    job = problem.job
    if job.lr_decay == "constant":
        return 0.0
    return job.wsd_decay_steps / job.lr_decay_steps if job.lr_decay == "wsd" else None


def decay_type(problem: Problem, layout: Layout) -> str:
    """Return the shape of the learning-rate decay, "cosine" or "linear".

    The value is "linear" for constant rates too, because their decay has no steps.
    """
    return "cosine" if problem.job.lr_decay == "cosine" else "linear"


def min_lr_factor(problem: Problem, layout: Layout) -> float:
    """Return the lowest learning rate as a fraction of the highest one."""
    # Rounded to 12 digits, so that the emitted value is 0.1 rather than 0.09999999999999999.
    return float(f"{problem.job.min_learning_rate / problem.job.learning_rate:.12g}")


def dataset_path(problem: Problem, layout: Layout) -> str | None:
    """Return the path of the training data; None if torchtitan downloads its own data set."""
    return problem.job.data[0] if problem.job.data else None


def saves_checkpoints(problem: Problem, layout: Layout) -> bool:
    """Return True if checkpointing must be enabled, that is, to save or to load a checkpoint."""
    return bool(problem.job.checkpoint_dir or problem.job.load_dir)


def loads_model_only(problem: Problem, layout: Layout) -> bool | PythonCode | None:
    """Return True if the run starts at step 0 with a new optimizer; None without ``load_dir``.

    A pretraining run continues a checkpoint with its optimizer; weights in the format of Hugging
    Face have none.
    """
    found = loads_hugging_face(problem, layout)
    return True if found is not None and problem.job.kind == "finetune" else found


def loads_hugging_face(problem: Problem, layout: Layout) -> PythonCode | None:
    """Return the call that detects the format of the files in ``load_dir``; None without it."""
    if problem.job.load_dir is None:
        return None
    return PythonCode(f"in_hugging_face_format({python_literal(problem.job.load_dir)})")


def reshard_after_forward(problem: Problem, layout: Layout) -> str:
    """Return "always" if FSDP2 frees gathered weights after each forward pass (ZeRO-3).

    Return "never" if the weights stay gathered until the backward pass (ZeRO-2).
    """
    return "always" if layout.zero_stage == 3 else "never"


def pipeline_schedule_name(problem: Problem, layout: Layout) -> str | None:
    """Return torch's name of the pipeline schedule, such as "1F1B"; None without a pipeline."""
    return SCHEDULES[layout.schedule] if layout.pp > 1 else None


def rope_max_positions(problem: Problem, layout: Layout) -> int:
    """Return the number of rotary positions, which is torchtitan's longest sequence in tokens."""
    return max(problem.model.position.max_positions, problem.job.sequence_length)


def rope_scaling(problem: Problem, layout: Layout) -> str:
    """Return torchtitan's name of the rotary scaling, such as "llama" for that of Llama 3."""
    kind = problem.model.position.scaling
    return "llama" if kind == "llama3" else kind


def rope_factor(problem: Problem, layout: Layout) -> float | None:
    """Return the factor by which Llama 3's rotary scaling stretches long wavelengths.

    Return None for models with another scaling.
    """
    position = problem.model.position
    return position.scaling_factor if position.scaling == "llama3" else None


def rope_original_positions(problem: Problem, layout: Layout) -> int | None:
    """Return the context length, in tokens, before Llama 3's rotary scaling extends it.

    Return None for models with another scaling.
    """
    position = problem.model.position
    return position.original_max_positions if position.scaling == "llama3" else None
