"""Sections ``job`` and ``goals`` of a training job."""

from __future__ import annotations

from typing import Literal

from parc.compiler.spec.base import (
    Beta,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Strict,
)
from parc.compiler.spec.layout_spec import LimitsSpec
from parc.compiler.spec.units import Percent, Tokens


class BatchInTokens(Strict):
    """Global batch in tokens."""

    tokens: Tokens
    """Tokens per step: 16M. Must be a multiple of job.sequence_length."""


class JobSpec(Strict):
    """Training run: batch, precision, hyperparameters, data and checkpoints."""

    kind: Literal["pretrain", "finetune", "serve"] = "pretrain"
    """Kind of the job. pretrain and finetune train a model; finetune starts from load_dir. serve
    answers requests and has other keys."""
    sequence_length: PositiveInt
    """Tokens per sequence."""
    global_batch: PositiveInt | BatchInTokens
    """Sequences per optimizer step, or {tokens: 16M}."""
    precision: Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"] = "bf16"
    """Number format of the matrix multiplications. The GPU must support it."""
    gradient_precision: Literal["fp32", "bf16"] = "fp32"
    """Format in which gradients are accumulated and reduced. bf16 halves their memory and
    traffic."""
    moe_dispatcher: Literal["auto", "alltoall", "deepep", "hybridep"] = "auto"
    """Library that sends tokens to their experts. auto is all-to-all; deepep and hybridep must be
    installed on the hosts."""
    moe_overlap: bool = False
    """Overlap the dispatch of tokens to experts with the computation of another micro-batch."""
    steps: PositiveInt = 1000
    """Optimizer steps of the run."""
    learning_rate: PositiveFloat = 1.0e-4
    """Peak learning rate, reached at the end of the warm-up."""
    min_learning_rate: NonNegativeFloat | None = None
    """Learning rate at the end of the decay. If absent, a tenth of learning_rate."""
    warmup_steps: NonNegativeInt | Percent = 0.01
    """Steps in which the learning rate rises linearly from 0, or their share of lr_decay_steps:
    1%."""
    lr_decay: Literal["cosine", "linear", "constant", "inverse-square-root", "wsd"] = "cosine"
    """Decay of the learning rate after the warm-up. wsd (warm-up, stable, decay) keeps the peak,
    then decays linearly in the last wsd_decay_steps steps."""
    lr_decay_steps: PositiveInt | None = None
    """Step at which the decay ends, counted from the start of the run. If absent, job.steps."""
    wsd_decay_steps: PositiveInt | None = None
    """Length of the final decay in steps, only for lr_decay: wsd. If absent, a tenth of
    lr_decay_steps."""
    weight_decay: NonNegativeFloat = 0.1
    """Decoupled weight decay of AdamW."""
    adam_beta1: Beta = 0.9
    """Decay rate of Adam's running mean of gradients."""
    adam_beta2: Beta = 0.95
    """Decay rate of Adam's running mean of squared gradients."""
    adam_epsilon: PositiveFloat = 1.0e-8
    """Adam epsilon, added to the denominator."""
    gradient_clipping: NonNegativeFloat = 1.0
    """Largest global gradient norm. Gradients above it are scaled down to it; 0 turns clipping
    off."""
    seed: PositiveInt = 1234
    """Random seed of the initial weights, and of the data if it is mock data."""
    data: tuple[str, ...] = ()
    """Paths of the training data, in the format of the framework. If empty, the framework trains
    on mock data."""
    tokenizer: str = "NullTokenizer"
    """Tokenizer type of the framework."""
    tokenizer_model: str | None = None
    """File or name of the tokenizer."""
    checkpoint_dir: str | None = None
    """Folder for checkpoints, on a file system that all hosts share. If absent, no checkpoint is
    saved."""
    checkpoint_interval: PositiveInt = 500
    """Steps between two checkpoints."""
    load_dir: str | None = None
    """Folder of the checkpoint to start from. Required for kind: finetune."""


class GoalsSpec(Strict):
    """Objective of the search, and constraints on its result."""

    maximize: Literal["throughput", "fewest-gpus", "latency"] = "throughput"
    """Objective that ranks the valid layouts that fit in memory.

    For training, throughput and latency both select the shortest step, because the batch is fixed.
    """
    memory_headroom: Percent = 0.08
    """Share of device memory to keep free: 8%. Layouts whose estimated peak exceeds the remaining
    memory are rejected."""
    limits: LimitsSpec | None = None
    """Limits on parallel sizes, by axis: {tp: {max: 4}, pp: {ban: [3, 6]}}."""
