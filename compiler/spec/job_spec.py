"""``job:`` and ``goals:``."""

from __future__ import annotations

from typing import Literal

from parc.compiler.spec.base import Strict
from parc.compiler.spec.limits_spec import LimitsSpec
from parc.compiler.spec.numbers import (
    Beta,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from parc.compiler.spec.units import Percent, Tokens


class BatchInTokens(Strict):
    """A global batch said in tokens."""

    tokens: Tokens
    """Tokens a step: 16M."""


class JobSpec(Strict):
    """One run."""

    kind: Literal["pretrain", "finetune", "serve"] = "pretrain"
    """pretrain and finetune train a model; serve answers requests and has other keys."""
    sequence_length: PositiveInt
    """Tokens a sequence."""
    global_batch: PositiveInt | BatchInTokens
    """Sequences a step, or {tokens: 16M}."""
    precision: Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"] = "bf16"
    """Number format of the matrix multiplications."""
    gradient_precision: Literal["fp32", "bf16"] = "fp32"
    """Format in which gradients are summed and reduced; bf16 halves their memory and traffic."""
    moe_dispatcher: Literal["auto", "alltoall", "deepep", "hybridep"] = "auto"
    """What carries tokens to their experts; deepep and hybridep are libraries to be installed."""
    moe_overlap: bool = False
    """Overlap the dispatch of tokens to experts with the computation of another micro-batch."""
    steps: PositiveInt = 1000
    """Optimizer steps."""
    learning_rate: PositiveFloat = 1.0e-4
    """Peak learning rate."""
    min_learning_rate: NonNegativeFloat | None = None
    """Learning rate at the end of its decay. Absent: a tenth of learning_rate."""
    warmup_steps: NonNegativeInt | Percent = 0.01
    """Steps in which the learning rate rises from 0, or their share of lr_decay_steps: 1%."""
    lr_decay: Literal["cosine", "linear", "constant", "inverse-square-root", "wsd"] = "cosine"
    """How the learning rate falls after the warm-up; wsd: it stays, then falls linearly."""
    lr_decay_steps: PositiveInt | None = None
    """Step at which the decay ends, counted from the first of all. Absent: job.steps."""
    wsd_decay_steps: PositiveInt | None = None
    """Steps before that end in which lr_decay wsd falls. Absent: a tenth of lr_decay_steps."""
    weight_decay: NonNegativeFloat = 0.1
    """Decoupled weight decay of AdamW."""
    adam_beta1: Beta = 0.9
    """Decay rate of Adam's mean of gradients."""
    adam_beta2: Beta = 0.95
    """Decay rate of Adam's mean of squared gradients."""
    adam_epsilon: PositiveFloat = 1.0e-8
    """What Adam adds to the root that it divides by."""
    gradient_clipping: NonNegativeFloat = 1.0
    """Largest norm of all gradients together, beyond which they are scaled down; 0: none."""
    seed: PositiveInt = 1234
    """Seed of the random numbers that weights, and data where they are made up, start from."""
    data: tuple[str, ...] = ()
    """Paths of the training data, as the framework takes them; empty: mock data."""
    tokenizer: str = "NullTokenizer"
    """Tokenizer type of the framework."""
    tokenizer_model: str | None = None
    """File or name of the tokenizer."""
    checkpoint_dir: str | None = None
    """Where to save; a path that every host sees. Absent: nothing is saved."""
    checkpoint_interval: PositiveInt = 500
    """Steps between two checkpoints."""
    load_dir: str | None = None
    """Where to load from; finetune needs it."""


class GoalsSpec(Strict):
    """What to maximise and what must hold."""

    maximize: Literal["throughput", "fewest-gpus", "latency"] = "throughput"
    """What decides between layouts that are legal and fit.

    The batch of a training step is given, so that throughput and latency both mean the shortest
    step there.
    """
    memory_headroom: Percent = 0.08
    """Device memory to keep free: 8%."""
    limits: LimitsSpec | None = None
    """Bounds and bans by axis: {tp: {max: 4}, pp: {ban: [3, 6]}}."""
