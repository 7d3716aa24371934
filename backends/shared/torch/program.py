"""Functions that compute settings shared by fsdp, torchtitan and accelerate.

Each ``fields.yaml`` refers to them by name.
"""

from __future__ import annotations

from typing import Any

from parc.backends.shared.torch.emitted_program import transformers_family, transformers_source
from parc.backends.shared.torch.mesh import replicate_and_shard_sizes
from parc.compiler.ir import Layout, Problem


def dp_replicate(problem: Problem, layout: Layout) -> int:
    """Return the number of replicas of the model; each is sharded over ``dp_shard`` ranks."""
    return replicate_and_shard_sizes(layout)[0]


def dp_shard(problem: Problem, layout: Layout) -> int:
    """Return the number of data-parallel ranks that share one replica of the model."""
    return replicate_and_shard_sizes(layout)[1]


def gradient_accumulation_steps(problem: Problem, layout: Layout) -> int:
    """Return the number of micro-batches that each data-parallel rank processes per step."""
    return layout.micro_batches(problem.job.global_batch)


def data_files(problem: Problem, layout: Layout) -> list[str]:
    """Return the paths of the files with the token ids of the training data.

    If the list is empty, the program trains on random tokens.
    """
    return list(problem.job.data)


def checkpoint_dir(problem: Problem, layout: Layout) -> str:
    """Return the folder in which the program saves checkpoints; "" if it saves none."""
    return problem.job.checkpoint_dir or ""


def load_dir(problem: Problem, layout: Layout) -> str:
    """Return the folder of the checkpoint that training starts from; "" to start from scratch."""
    return problem.job.load_dir or ""


def lora(problem: Problem, layout: Layout) -> dict[str, Any] | None:
    """Return the LoRA adapters that the program trains; None if it trains all weights."""
    adapters = problem.job.lora
    if adapters is None:
        return None
    return {
        "rank": adapters.rank,
        "alpha": adapters.alpha,
        "dropout": adapters.dropout,
        "targets": list(adapters.targets),
    }


def hf_source(problem: Problem, layout: Layout) -> str | None:
    """Return the hub repository or the path of the config.json that the program reads.

    None if the model has neither.
    """
    return transformers_source(problem.model) or None


def hf_family(problem: Problem, layout: Layout) -> str | None:
    """Return the family of the class that builds the model; None if the config names it."""
    return transformers_family(problem.model)


def tokenizer(problem: Problem, layout: Layout) -> str:
    """Return the folder or hub repository of the tokenizer for text files; "" if there is none."""
    return problem.job.tokenizer_model or ""
