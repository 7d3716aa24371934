"""``job:`` and ``goals:``."""

from __future__ import annotations

from typing import Literal

from parc.compiler.spec.base import Strict
from parc.compiler.spec.limits_spec import LimitsSpec
from parc.compiler.spec.numbers import Real, Size
from parc.compiler.spec.units import Percent, Tokens


class BatchInTokens(Strict):
    """A global batch said in tokens."""

    tokens: Tokens
    """Tokens a step: 16M."""


class JobSpec(Strict):
    """One run."""

    kind: Literal["pretrain", "finetune", "serve"] = "pretrain"
    """pretrain and finetune train a model; serve answers requests and has other keys."""
    sequence_length: Size
    """Tokens a sequence."""
    global_batch: Size | BatchInTokens
    """Sequences a step, or {tokens: 16M}."""
    precision: Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"] = "bf16"
    """Number format of the matrix multiplications."""
    gradient_precision: Literal["fp32", "bf16"] = "fp32"
    """Format in which gradients are summed and reduced; bf16 halves their memory and traffic."""
    moe_dispatcher: Literal["auto", "alltoall", "deepep", "hybridep"] = "auto"
    """What carries tokens to their experts; deepep and hybridep are libraries to be installed."""
    moe_overlap: bool = False
    """Overlap the dispatch of tokens to experts with the computation of another micro-batch."""
    steps: Size = 1000
    """Optimizer steps."""
    learning_rate: Real = 1.0e-4
    """Peak learning rate."""
    data: tuple[str, ...] = ()
    """Paths of the training data, as the framework takes them; empty: mock data."""
    tokenizer: str = "NullTokenizer"
    """Tokenizer type of the framework."""
    tokenizer_model: str | None = None
    """File or name of the tokenizer."""
    checkpoint_dir: str | None = None
    """Where to save; a path that every host sees. Absent: nothing is saved."""
    checkpoint_interval: Size = 500
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
