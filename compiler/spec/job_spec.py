"""Models of the sections ``job`` and ``goals`` of a training spec."""

from typing import Literal

from parc.compiler.ir.problem import Projection
from parc.compiler.spec.base import (
    Beta,
    Count,
    LearningRate,
    LoadFactor,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StrictModel,
)
from parc.compiler.spec.layout_spec import Auto, LimitsSpec
from parc.compiler.spec.units import Percent, Tokens

DEFAULT_STEPS = 1000
"""Steps of a run whose spec gives neither steps nor tokens."""


class BatchInTokens(StrictModel):
    """Global batch size, given in tokens instead of sequences."""

    tokens: Tokens
    """Tokens per optimizer step, such as 16M. The number must be a multiple of
    job.sequence_length."""


class LoraTrainingSpec(StrictModel):
    """LoRA: the job trains low-rank adapters of linear layers, and all other weights are frozen.

    An adapter adds alpha / rank x B A to the weight of a projection, where A has rank rows and B
    has rank columns (arXiv:2106.09685). Requires kind: finetune.
    """

    rank: Count
    """Rank of the adapters, PEFT's r."""
    alpha: PositiveInt | None = None
    """Scale of the adapters, PEFT's lora_alpha: their output is multiplied by alpha / rank. If
    absent, 2 x rank."""
    dropout: Beta = 0.0
    """Probability with which an element of the input of an adapter is dropped during training."""
    targets: Literal["attention", "all-linear"] | tuple[Projection, ...] = "all-linear"
    """Projections that get an adapter, PEFT's target_modules: those of attention, all linear layers
    except the output projection to the vocabulary, or a list: [q_proj, v_proj]."""


class JobSpec(StrictModel):
    """Training run: batch, precision, hyperparameters, data and checkpoints."""

    kind: Literal["pretrain", "finetune", "serve"] = "pretrain"
    """Kind of the job. pretrain and finetune train a model; finetune starts from the checkpoint in
    load_dir. A job of kind serve answers requests and has other keys."""
    sequence_length: PositiveInt
    """Number of tokens per sequence."""
    global_batch: PositiveInt | BatchInTokens
    """Number of sequences per optimizer step, or a mapping that gives it in tokens: {tokens:
    16M}."""
    precision: Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"] = "bf16"
    """Number format of the matrix multiplications. The GPU must support it."""
    gradient_precision: Literal["fp32", "bf16"] = "fp32"
    """Number format in which gradients are accumulated and reduced. bf16 halves the memory and the
    communication of gradients."""
    moment_precision: Literal["fp32", "bf16"] = "fp32"
    """Number format of Adam's two moments. With bf16, Megatron also stores only the 16 bits of a
    master weight that the bf16 weight lacks: 6 bytes per parameter instead of 12."""
    fp8_recipe: Literal["tensorwise", "delayed", "blockwise"] = "tensorwise"
    """Scaling of the operands of matrix multiplications with precision: fp8. tensorwise has one
    scale per tensor from its present values, delayed one from earlier steps, and blockwise one per
    block of 128 x 128 weights or 128 activations."""
    fused_loss: bool = False
    """Compute the cross-entropy loss with fused kernels. They need 10 instead of 6 bytes per
    logit."""
    tp_overlap: bool = False
    """Overlap the gathers and scatters of tensor parallelism with matrix multiplications, through
    user buffers of Transformer Engine. Requires sequence parallelism."""
    moe_dispatcher: Literal["auto", "alltoall", "deepep", "hybridep"] = "auto"
    """Library that sends tokens to their experts. auto uses a plain all-to-all; deepep and hybridep
    must be installed on the hosts."""
    moe_overlap: bool = False
    """Send tokens to experts while another micro-batch is computed."""
    moe_imbalance: LoadFactor = 1.0
    """Tokens that the busiest rank of an expert-parallel group receives, divided by the mean over
    the group, and averaged over layers. Only estimates depend on it: all ranks wait for the busiest
    one. 1 means balanced, as with forced balance or with token dropping at capacity 1."""
    steps: PositiveInt | None = None
    """Number of optimizer steps of the run. If absent, the steps that job.tokens needs, or 1,000 if
    job.tokens is absent too."""
    tokens: Tokens | None = None
    """Number of tokens of the run, such as 15T, instead of job.steps. The last step is a whole
    one, so the run processes at least this many tokens."""
    learning_rate: LearningRate = 1.0e-4
    """Peak learning rate, reached at the end of the warm-up."""
    min_learning_rate: NonNegativeFloat | None = None
    """Learning rate at the end of the decay. If absent, a tenth of job.learning_rate."""
    # An integer is a number of steps; a float or a percentage is a fraction.
    warmup_steps: NonNegativeInt | Percent = 0.01
    """Number of steps during which the learning rate rises linearly from 0, or a percentage of
    job.lr_decay_steps, such as `1%`."""
    lr_decay: Literal["cosine", "linear", "constant", "inverse-square-root", "wsd"] = "cosine"
    """Decay of the learning rate after the warm-up. wsd (warm-up, stable, decay) keeps the peak
    learning rate, then decays it linearly during the last wsd_decay_steps steps."""
    lr_decay_steps: PositiveInt | None = None
    """Step at which the decay ends, counted from the start of the run. If absent, the value of
    job.steps."""
    wsd_decay_steps: PositiveInt | None = None
    """Number of steps of the final decay. Only valid with lr_decay: wsd. If absent, a tenth of
    job.lr_decay_steps."""
    weight_decay: NonNegativeFloat = 0.1
    """Decoupled weight decay of AdamW."""
    adam_beta1: Beta = 0.9
    """Decay rate of Adam's moving average of gradients."""
    adam_beta2: Beta = 0.95
    """Decay rate of Adam's moving average of squared gradients."""
    adam_epsilon: PositiveFloat = 1.0e-8
    """Epsilon of Adam, which is added to the denominator."""
    gradient_clipping: NonNegativeFloat = 1.0
    """Largest global gradient norm. Gradients with a larger norm are scaled down to it. 0 turns
    clipping off."""
    seed: PositiveInt = 1234
    """Random seed of the initial weights, and of the data if it is mock data."""
    data: tuple[str, ...] = ()
    """Paths of the training data, in the notation of the framework. A weight may precede each path.
    torchtitan takes one path. If empty, the framework trains on mock data."""
    tokenizer: str | None = None
    """Tokenizer type, under the framework's name for it. If absent, the framework's type for
    Hugging Face tokenizers if job.tokenizer_model is set, otherwise its type for data that are
    token ids."""
    tokenizer_model: str | None = None
    """Path or name of the tokenizer model."""
    checkpoint_dir: str | None = None
    """Folder for checkpoints, on a file system that all hosts share. If absent, no checkpoints are
    saved."""
    checkpoint_interval: PositiveInt | Auto = "auto"
    """Number of steps between two checkpoints. auto uses the number that makes the run shortest,
    given cluster.failures and the time that a checkpoint takes. The last step is saved too."""
    async_checkpoint: bool = False
    """Write checkpoints in a background process while training continues."""
    load_dir: str | None = None
    """Folder of the checkpoint that the run starts from if checkpoint_dir has none yet. With
    pretrain, the run continues it with its optimizer state and step number; with finetune, only
    its weights are loaded, and the run starts at step 0. Programs with transformers, torchtitan
    and Megatron-Bridge also load weights in the format of Hugging Face. Required if kind is
    finetune."""
    lora: LoraTrainingSpec | None = None
    """LoRA adapters that the job trains instead of the weights of the model. If absent, finetune
    trains all weights. Only valid if kind is finetune."""


DEFAULT_TIE = 0.01
"""Default of ``goals.tie``. In published sweeps of layouts, the chosen layout is on average 1.9 %
slower than the fastest with any tie up to 2 %, and 3.7 % slower with a tie of 3 %."""


class GoalsSpec(StrictModel):
    """Objective by which the search ranks layouts, and constraints on the chosen layout."""

    maximize: Literal["throughput", "fewest-gpus", "latency"] = "throughput"
    """Objective by which PARC ranks the valid layouts that fit in memory.

    For training, throughput and latency both select the shortest step, because the batch size is
    fixed.
    """
    memory_headroom: Percent = 0.02
    """Percentage of device memory that must stay free, such as `8%`. A layout fits if the high end
    of its memory interval is at most the device memory minus this headroom. The default, 2 %,
    covers the memory that the driver reserves (torch reports 79.1 of 80 GiB)."""
    tie: Percent = DEFAULT_TIE
    """Difference between predicted step times up to which layouts count as equally fast, 1 % by
    default. Of the layouts that tie with the fastest one, PARC chooses the simplest. `0%` chooses
    the fastest."""
    idle_hosts: Literal["allow", "forbid"] = "allow"
    """Use of fewer hosts than the cluster has. allow uses fewer hosts if this makes a step at least
    5 % shorter, or if no layout on all hosts is valid and fits into memory; forbid uses all hosts.
    Ignored if maximize is fewest-gpus, or if layout.dp is set."""
    limits: LimitsSpec | None = None
    """Limits on the parallel sizes, by axis: {tp: {max: 4}, pp: {ban: [3, 6]}}."""
