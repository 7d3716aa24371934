"""Settings of torchtitan alone that are computed; one function a name of fields.yaml."""

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
"""Schedule of the plan -> name that ``get_schedule_class`` of torch knows."""
DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
DEFAULT_ASSETS = "./assets/hf"
"""Where torchtitan's own download script puts tokenizers."""


def assets(problem: Problem, layout: Layout) -> str:
    """Folder of the tokenizer."""
    return problem.job.tokenizer_model or DEFAULT_ASSETS


def local_batch(problem: Problem, layout: Layout) -> int:
    """Sequences of a replica in a pipeline's step; without a pipeline, those of a micro-batch."""
    if layout.pp == 1:
        return layout.micro_batch
    return problem.job.global_batch // layout.dp


def pipeline_size(problem: Problem, layout: Layout) -> int | None:
    """Sequences of a micro-batch of the pipeline."""
    return layout.micro_batch if layout.pp > 1 else None


def param_dtype(problem: Problem, layout: Layout) -> str:
    """Format of weights and activations in forward and backward."""
    return DTYPES.get(problem.job.precision, problem.job.precision)


def reduce_dtype(problem: Problem, layout: Layout) -> str:
    """Format in which gradients are reduced."""
    return DTYPES[problem.job.gradient_precision]


def without_graphs(problem: Problem, layout: Layout) -> bool:
    """CUDA graphs go with neither pipelines nor the all-to-all of experts."""
    return layout.pp > 1 or layout.ep > 1


def max_norm(problem: Problem, layout: Layout) -> float:
    """Norm beyond which gradients are scaled down; torchtitan would scale to 0 with 0."""
    return problem.job.gradient_clipping or float("inf")


def betas(problem: Problem, layout: Layout) -> tuple[float, float]:
    """Both decay rates of Adam."""
    return (problem.job.adam_beta1, problem.job.adam_beta2)


def decay_ratio(problem: Problem, layout: Layout) -> float | None:
    """Share of the steps in which the rate falls; None: all after the warm-up."""
    job = problem.job
    if job.lr_decay == "constant":
        return 0.0
    return job.wsd_decay_steps / job.lr_decay_steps if job.lr_decay == "wsd" else None


def decay_type(problem: Problem, layout: Layout) -> str:
    """The form of the fall."""
    return "cosine" if problem.job.lr_decay == "cosine" else "linear"


def least_factor(problem: Problem, layout: Layout) -> float:
    """Rate at the end, as a share of the peak."""
    return float(f"{problem.job.min_learning_rate / problem.job.learning_rate:.12g}")


def dataset_path(problem: Problem, layout: Layout) -> str | None:
    """Where the data are, if not at Hugging Face."""
    return problem.job.data[0] if problem.job.data else None


def saves(problem: Problem, layout: Layout) -> bool:
    """Whether there are checkpoints at all."""
    return bool(problem.job.checkpoint_dir or problem.job.load_dir)


def folder(problem: Problem, layout: Layout) -> str | None:
    """Folder of checkpoints; None: torchtitan's own."""
    return problem.job.checkpoint_dir


def reshard(problem: Problem, layout: Layout) -> str:
    """always: ZeRO-3; never: weights stay gathered after the forward pass."""
    return "always" if layout.zero_stage == 3 else "never"


def schedule(problem: Problem, layout: Layout) -> str | None:
    """Pipeline schedule."""
    return SCHEDULES[layout.schedule] if layout.pp > 1 else None


def rope_positions(problem: Problem, layout: Layout) -> int:
    """Rows of the rotary cache, which torchtitan holds the length of sequences to."""
    return max(problem.model.position.max_positions, problem.job.sequence_length)


def rope_scaling(problem: Problem, layout: Layout) -> str:
    """Torchtitan's word for Llama 3's scaling."""
    kind = problem.model.position.scaling
    return "llama" if kind == "llama3" else kind


def rope_factor(problem: Problem, layout: Layout) -> float | None:
    """Stretch of long waves."""
    position = problem.model.position
    return position.scaling_factor if position.scaling == "llama3" else None


def rope_original(problem: Problem, layout: Layout) -> int | None:
    """Context that the waves were trained on."""
    position = problem.model.position
    return position.original_max_positions if position.scaling == "llama3" else None
