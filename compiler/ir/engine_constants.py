"""Constants that a serving engine declares so that the cost model can estimate it.

An engine backend declares all of them, usually in ``backends/<name>/constants.yaml``. There are no
defaults: values of one engine are wrong for another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MemoryBudget = Literal["total", "static", "free"]
ExtraLayers = Literal["first", "before_last"]


class UndeclaredConstantsError(ValueError):
    """An engine's table of constants lacks keys, or has values of another type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingConstants:
    """Host time per engine step, and the scheduler's default limits."""

    source: str
    """Origin of the values."""
    step_seconds: float
    """Host work per step during which the GPU waits."""
    sequence_seconds: float
    """Further host work per step and running request: sampling, detokenizing, bookkeeping."""
    routed_layer_seconds: float
    """Gaps between the small kernels of one routed layer, per step."""
    max_running: int
    """Default limit of requests that decode together in one engine."""
    max_batched_tokens: int
    """Default limit of tokens per step."""
    reserves_output: bool
    """True if a request is admitted only when the cache has space for its whole output, so that
    it is never evicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalConstants:
    """Delays between the arrival of a request and its first token, apart from computation."""

    source: str
    """Origin of the values."""
    later_share: float
    """Fraction of the other prompts of a round that delay a request's later tokens. The remaining
    prompts run before its first token."""
    wait_share: float
    """Fraction of the other prompts of a round that run before the request's own prompt."""
    poll_steps: float
    """Steps until a busy engine accepts new requests and returns a first token, in a closed loop.
    An idle engine does both at once."""
    front_seconds: float
    """Time from the network to the scheduler and back: HTTP and tokenization of the prompt."""
    admission_seconds: float
    """Mean delay that each further request adds if several requests arrive together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemoryConstants:
    """Device memory that an engine uses for itself and leaves for the key-value cache."""

    source: str
    """Origin of the values."""
    default_share: float | None
    """Default of ``ServingSetup.memory_share``; None: all memory except the reserve below."""
    budget: MemoryBudget
    """Quantity to which the share applies. ``total``: all device memory, activations included
    (vLLM); ``static``: all device memory, for weights and cache only (SGLang); ``free``: the memory
    left by weights and activations (TensorRT-LLM)."""
    reserve_bytes: float | None
    """Memory kept free if ``default_share`` is None; None otherwise."""
    reserve_device_share: float | None
    """Upper bound of the reserve as a fraction of device memory; None without a reserve."""
    context_bytes: float
    """CUDA context, NCCL buffers and CUDA graphs."""
    workspace_bytes_per_element: float
    """Bytes per element of the intermediate tensors of the largest step."""
    default_block_tokens: int
    """Tokens per block of the paged cache if nothing else is specified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingConstants:
    """Constants that describe how an engine shards and pads the weights of a model."""

    source: str
    """Origin of the values."""
    vocab_multiple: int
    """The vocabulary is padded to a multiple of this number of rows."""
    copies_shared_experts: bool
    """True if shared experts are repeated on every tensor rank when the tokens of a routed layer
    are split over the ranks of several tensor groups."""
    extra_layers: ExtraLayers
    """Pipeline stages that receive the remaining layers if the number of layers is not divisible by
    the number of stages. ``first``: one each from the first stage on; ``before_last``: one each
    from the last but one stage backwards."""
    full_vocabulary_families: tuple[str, ...]
    """Model families that build embedding and output projection on every pipeline stage."""
    full_embedding_families: tuple[str, ...]
    """Model families that build only the embedding on every pipeline stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePageConstants:
    """Policy of an engine that stores recurrent states in the blocks of its key-value cache.

    The tokens per block are raised until a state fits into one page (one layer's part of a block).
    """

    kernel_tokens: int
    """Tokens of the shortest block that the attention kernels support."""
    prefix_chunk_tokens: int
    """Block lengths are multiples of this for Gated DeltaNet, whose kernels return states for the
    prefix cache only at these positions."""
    blocks_per_request: int
    """Maximum number of blocks that one request occupies in a group of recurrent layers."""
    single_group_below: float
    """Ratio of the more frequent to the rarer layer type below which each type forms one group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateConstants:
    """Constants for the recurrent states of linear attention and Mamba layers in an engine."""

    source: str
    """Origin of the values."""
    bytes_per_element: float
    """Bytes per element of a recurrent state."""
    activation_width_families: tuple[str, ...]
    """Model families whose states are stored in 16 bit, like activations."""
    pages: StatePageConstants | None
    """Policy for states in cache blocks; None: states are stored outside of the paged cache, for
    which PARC cannot plan the cache of a model with recurrent layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConstants:
    """Constants of one serving engine."""

    name: str
    """Name of the engine."""
    scheduling: SchedulingConstants
    arrivals: ArrivalConstants
    memory: EngineMemoryConstants
    sharding: ShardingConstants
    states: StateConstants
