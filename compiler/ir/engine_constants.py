"""Constants that a serving engine declares so that the cost model can estimate its speed.

An engine backend declares all of them, usually in ``backends/<name>/constants.yaml``. There are no
defaults, because values measured on one engine are wrong for another.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, Literal

from parc.compiler.ir.frozen import frozen

# Engines apply their memory fraction to different quantities (see EngineMemoryConstants.budget).
MemoryBudget = Literal["total", "static", "free"]
# Choice of the data-parallel rank of an engine that processes a request.
RankBalancer = Literal["least_loaded", "round_robin", "random"]
# vLLM's distributed/utils.py (get_pp_indices) gives extra layers to the stages before the last.
ExtraLayers = Literal["first", "before_last"]


class UndeclaredConstantsError(ValueError):
    """Error: an engine's table of constants lacks keys, or has values of a wrong type."""


@frozen(kw_only=True)
class SchedulingConstants:
    """Host time per engine step, and default limits of the engine's scheduler."""

    source: str
    """Origin of the values."""
    step_seconds: float
    """Host work per step."""
    sequence_seconds: float
    """Additional host work per step for each running request: sampling, detokenizing and
    bookkeeping."""
    overlaps_host: bool
    """True if the host prepares a step while the GPU runs the step before, so that the GPU waits
    only if the host takes longer; False if the GPU waits during all host work."""
    # Separate from step_seconds, because it grows with the number of layers that have experts.
    routed_layer_seconds: float
    """Idle GPU time per step and layer with routed experts, in the gaps between its small
    kernels."""
    max_running: int
    """Default limit on the number of requests that decode together in one engine."""
    max_batched_tokens: int
    """Default limit on the number of tokens per step."""
    reserves_output: bool
    """True if a request is admitted only when the cache has space for its whole output, so that
    it is never evicted."""
    prefill_first: bool
    """True if steps run either prompts or decoding requests, prompts first; False if a step can
    contain both."""
    rank_balancer: RankBalancer
    """Choice of the data-parallel rank for a request. ``least_loaded``: the rank with the fewest
    requests; ``round_robin``: each rank in turn; ``random``: each rank with the same
    probability."""
    prefill_pool_balancer: RankBalancer
    """The same choice in the prefill pool of a disaggregated service."""


@frozen(kw_only=True)
class ArrivalConstants:
    """Delays between the arrival of a request and its first token, without GPU computation."""

    source: str
    """Origin of the values."""
    poll_steps: float
    """In a closed loop (each finished request is replaced by a new one), number of engine steps
    that pass until a busy engine accepts a new request and returns the first token. An idle engine
    does both at once."""
    front_seconds: float
    """Time from the network to the scheduler and back: HTTP and tokenization of the prompt."""
    admission_seconds: float
    """Mean delay that each additional request causes if several requests arrive together."""
    prompt_expert_seconds: float
    """Additional time to the first token per routed expert and layer that has it. The likely cause:
    a prompt uses almost all experts of a layer, each in a small matrix product of its own, and
    engines run such steps without CUDA graphs."""
    option_steps: float = 0.0
    """In a closed loop, number of additional steps until a busy engine accepts a new request, if an
    option of a benchmark delays it (SGLang: ``--scheduler-recv-interval``). PARC sets no such
    option, so that engines declare no value."""


@frozen(kw_only=True)
class EngineMemoryConstants:
    """Device memory that an engine itself needs, and its rule for the size of the KV cache."""

    source: str
    """Origin of the values."""
    default_share: float | None
    """Default of ``ServingSetup.memory_share``; None if the engine uses all memory except
    ``reserve_bytes``."""
    budget: MemoryBudget
    """Quantity to which the share applies. ``total``: all device memory, activations included
    (vLLM); ``static``: all device memory, for weights and cache only (SGLang); ``free``: the memory
    left by weights and activations (TensorRT-LLM)."""
    # Some engines define the memory that stays free instead of the fraction that may be used.
    reserve_bytes: float | None
    """Memory kept free if ``default_share`` is None; None otherwise."""
    reserve_device_share: float | None
    """Upper bound of the reserve as a fraction of device memory; None without a reserve."""
    context_bytes: float
    """Bytes of the CUDA context, NCCL buffers and CUDA graphs."""
    workspace_bytes_per_element: float
    """Bytes per element of the intermediate tensors in the step with the most tokens."""
    default_block_tokens: int
    """Tokens per block of the paged KV cache if the user sets no block size."""


@frozen(kw_only=True)
class ShardingConstants:
    """Constants that describe how an engine shards and pads the weights of a model."""

    source: str
    """Origin of the values."""
    vocab_multiple: int
    """The vocabulary is padded to a multiple of this number of rows."""
    copies_shared_experts: bool
    """True if every tensor-parallel rank stores all shared experts when the tokens of a routed
    layer are distributed over several tensor-parallel groups."""
    extra_layers: ExtraLayers
    """Pipeline stages that receive one additional layer each if the number of layers is not
    divisible by the number of stages. ``first``: the first stages; ``before_last``: the stages
    before the last one, counted backwards."""
    full_vocabulary_families: tuple[str, ...]
    """Model families that store the embedding and the output projection on every pipeline stage."""
    full_embedding_families: tuple[str, ...]
    """Model families that store the embedding, but not the output projection, on every pipeline
    stage."""


@frozen(kw_only=True)
class StatePageConstants:
    """Policy of an engine that stores recurrent states in the blocks of its KV cache.

    The engine raises the tokens per block until a state fits into one page. A page is the part of a
    block that belongs to one layer.
    """

    kernel_tokens: int
    """Tokens of the shortest block that the attention kernels support."""
    prefix_chunk_tokens: int
    """The block length of Gated DeltaNet is a multiple of this number of tokens, because the
    kernels return states for the prefix cache only at multiples of it."""
    blocks_per_request: int
    """Maximum number of blocks that one request occupies in a group of recurrent layers."""
    single_group_below: float
    """Bound on (larger / smaller) of two layer counts: attention layers and recurrent layers. Below
    this bound, each of the two layer types forms one group."""


@frozen(kw_only=True)
class StateConstants:
    """Constants for the recurrent states that linear-attention and Mamba layers keep."""

    source: str
    """Origin of the values."""
    bytes_per_element: float
    """Bytes per element of a recurrent state."""
    activation_width_families: tuple[str, ...]
    """Model families whose recurrent states are stored in 16 bit, as activations are."""
    pages: StatePageConstants | None
    """Policy for states in cache blocks; None if the engine stores states outside of the paged
    cache. In that case PARC cannot plan the cache of a model with recurrent layers."""


@frozen(kw_only=True)
class EstimateErrors:
    """Half widths of the 80 % intervals of an engine's estimates, as natural logarithms.

    The defaults belong to an engine without published measurements: they are the largest values of
    the measured engines.
    """

    source: str = "no published measurements of this engine"
    """Origin of the values."""
    ttft: float = 0.84
    """Half width for the time to the first token; 0.84 is a factor of 2.3."""
    tpot: float = 0.48
    """Half width for the time per output token."""
    tokens_per_second: float = 0.49
    """Half width for the output tokens per second."""


@frozen(kw_only=True)
class EngineConstants:
    """Constants of one serving engine, grouped by the part of the cost model that reads them."""

    name: str
    """Name of the engine."""
    scheduling: SchedulingConstants
    arrivals: ArrivalConstants
    memory: EngineMemoryConstants
    sharding: ShardingConstants
    states: StateConstants
    errors: EstimateErrors = EstimateErrors()


SECONDS, COUNT, SHARE, BYTES = (0.0, 10.0), (1.0, 1e9), (0.0, 1.0), (0.0, 1e12)
RANGES: dict[str, tuple[float, float]] = {
    "scheduling.step_seconds": SECONDS,
    "scheduling.sequence_seconds": SECONDS,
    "scheduling.routed_layer_seconds": SECONDS,
    "scheduling.max_running": COUNT,
    "scheduling.max_batched_tokens": COUNT,
    "arrivals.poll_steps": (0.0, 1000.0),
    "arrivals.front_seconds": SECONDS,
    "arrivals.admission_seconds": SECONDS,
    "arrivals.prompt_expert_seconds": SECONDS,
    "arrivals.option_steps": (0.0, 1000.0),
    "memory.default_share": SHARE,
    "memory.reserve_bytes": BYTES,
    "memory.reserve_device_share": SHARE,
    "memory.context_bytes": BYTES,
    "memory.workspace_bytes_per_element": (0.0, 1e6),
    "memory.default_block_tokens": (1.0, 1e6),
    "sharding.vocab_multiple": (1.0, 1e6),
    "states.bytes_per_element": (0.0, 16.0),
    "states.pages.kernel_tokens": COUNT,
    "states.pages.prefix_chunk_tokens": COUNT,
    "states.pages.blocks_per_request": COUNT,
    "states.pages.single_group_below": (0.0, 1e6),
    "errors.ttft": (0.01, 5.0),
    "errors.tpot": (0.01, 5.0),
    "errors.tokens_per_second": (0.01, 5.0),
}
"""Key of a constant -> (smallest, largest) valid number. The bounds are far from those of any
engine: a number outside of them has another unit, or would never let a simulation end."""


def find_range_defect(constants: object) -> str:
    """Return the first constant that is outside of its range; empty if there is none.

    The text names the key, its value and the range.
    """
    for key, value in _numbers(constants, ""):
        low, high = RANGES[key]
        if not low <= value <= high:  # not so for NaN either
            return f"{key} is {value:g}, must be from {low:g} to {high:g}"
    return ""


def _numbers(part: Any, path: str) -> list[tuple[str, float]]:
    """Return (dotted key, value) of each number in ``part``, whose key is ``path``."""
    if isinstance(part, int | float) and not isinstance(part, bool):
        return [(path, part)]
    if not is_dataclass(part):
        return []
    found = []
    for one in fields(part):
        found += _numbers(getattr(part, one.name), f"{path}.{one.name}".strip("."))
    return found
