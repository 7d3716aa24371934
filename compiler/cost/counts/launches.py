"""Host launches of a layer's forward pass.

The unit is the host time of one operator that Python calls, such as an addition or a linear layer
of PyTorch. The tables count operators of Megatron-Core 0.19.2: a dispatch counter recorded every
ATen operator that starts a kernel (views and allocations start none), for layers of its local
specification on a CPU with one rank. What fused kernels of TransformerEngine and Megatron-Core
replace is estimated, not recorded. The recorded operators of the local specification were:

| layer | forward | backward |
|---|---|---|
| grouped-query attention (34) and dense SwiGLU MLP (5), norms and residuals (18) | 57 | 79 |
| latent attention (43) in place of grouped-query attention | 66 | 94 |
| 8 experts, all-to-all, softmax router with auxiliary loss | 147 | 185 |
| 8 experts, all-gather of tokens | 148 | 182 |
| 8 experts, sigmoid router with bias, fp32 and auxiliary loss per sequence | 166 | 217 |
| 8 experts and a shared expert | 152 | 194 |
| 64 experts, all-to-all: 6.0 per further expert (forward), 11.4 (backward) | 482 | 824 |

The fastest of 60 passes on a loaded CPU took 20 to 23 us per forward operator, for no, 8 and 64
experts, and 9 to 11 us per backward operator. The layers were timed in fp32 and counted in bf16,
and the median pass took 2 to 8 times as long.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from parc.compiler.ir import Job, LayerKind, LayerPart, Layout, Model

Exchange = Literal["none", "alltoall", "deepep", "hybridep"]
"""Library that sends tokens to the experts of other ranks; ``none`` if there are no other ranks."""

LINEAR_MODULE = 3.0
"""Launches of a linear layer of TransformerEngine. Its call takes 91 to 100 us of host time where
that of PyTorch takes 33 to 37 us (TransformerEngine issue 2053, Grace)."""
LOW_PRECISION_MODULE = 2.0
"""Factor for a linear layer in 8 or 4 bit, which also casts its operands and updates their scales
(TransformerEngine issue 761: more than twice the host time of 16 bit)."""
COLLECTIVE_LAUNCHES = {"all_reduce": 2.5, "all_gather": 3.7, "reduce_scatter": 3.5}
"""Launches of one collective of torch.distributed: its call takes 89, 131 or 122 us of host time
(pytorch issue 138773, torch 2.4), that of a linear layer of PyTorch 33 to 37 us."""
ATTENTION_MODULES = 2
"""Linear layers of grouped-query attention: query, key and value, and output."""
LATENT_MODULES = 5
"""Linear layers of latent attention: two down projections, two up projections, and output."""
HEAD_NORMS = 2
"""Operators of the norms of queries and keys."""
MLP_MODULES = 2
ATTENTION_OPERATORS = 14
"""Other operators of grouped-query attention: norm, split and copies of query, key and value (6 of
the 34 recorded), two fused rotary embeddings, the attention call, and the fused residual. The
attention call is assumed to count as four, because it selects a kernel in Python."""
LATENT_OPERATORS = 23
"""The same for latent attention: the 9 further operators that were recorded are norms, splits and
joins of the rotary parts."""
RECURRENCE_OPERATORS = 20
"""The same for linear attention and Mamba: convolution, chunked scan (6 kernels), norm, gate and
copies; assumed."""
MLP_OPERATORS = 3
"""Other operators of an MLP: norm, activation, and the fused residual."""
SEPARATE_ATTENTION = 43
"""Operators of grouped-query attention without fused kernels: the 34 recorded, and half of the
norms and residuals of the layer (18)."""
SEPARATE_MLP = 14
"""The same for the MLP: the 5 recorded, and the other half of the norms and residuals."""
ROUTER_OPERATORS = 32
"""Operators of the router, of which 24 were recorded with softmax and 33 with sigmoid."""
EXCHANGE_OPERATORS: dict[Exchange, tuple[int, int]] = {
    "none": (5, 6),
    "alltoall": (14, 16),
    "deepep": (1, 17),
    "hybridep": (0, 9),
}
"""Launches of the preparation of an exchange (dispatch_preprocess), and those of dispatch and
combine, counted in token_dispatcher.py and fused_a2a.py of Megatron-Core. A fused permutation has 4
kernels, 3 of which number the rows; the way back has 1 (TransformerEngine, triton/permutation.py).
Without an exchange, the tokens per expert are summed and copied to the host. An all-to-all has 6
kernels of counts and their all-gather (3.7), 4 copies of counts to the host, and 3 all-to-alls of
torch.distributed (3.7 each): of tokens, probabilities, and results. Two ranks of Megatron-Core 0.17
with separate permutations recorded 23 operators and these 4 collectives in the forward pass, 12 and
3 in the backward pass. DeepEP selects the best experts, counts tokens per rank, sends tokens and
results (3.7 each), and makes a map of the received tokens before they are permuted; HybridEP sends
and permutes tokens with one call."""
SORT_OPERATORS = 4
"""Further launches of an all-to-all to several local experts: two kernels sort the tokens by
expert, and two undo it."""
REPLAY_LAUNCHES = 3.0
"""Launches of the replay of one graph, which copies its input: assumed to be those of a call of a
TransformerEngine module. Of the 29 launches of a dense layer, this is a tenth."""
UNIT_FORWARD, UNIT_BACKWARD = 35.0, 75.0
"""Launches of FSDP2 per layer and pass: hooks, streams, events, gathers, reductions and copies. On
one H100, layers of Llama with hardly any work take 0.7 to 2.9 ms longer with FSDP2 than without,
forward and backward pass together (torch 2.11); two thirds are in the backward pass."""
EXPERT_OPERATORS = 1.5
"""Launches per expert. The two grouped layers call cuBLAS once per expert, and split and allocate
tensors per expert (TransformerEngine issue 1499). The host time of such a call is assumed to be
about a third of that of an operator called by Python."""
KERNEL_CALL = 1.0 / 3.0
"""Host time of a kernel that a library launches, divided by that of an operator that Python calls:
assumed, as for the calls of cuBLAS."""


ADAPTER_FORWARD, ADAPTER_BACKWARD = 4.0, 6.0
"""Operators of a LoRA adapter, recorded with a dispatch counter (peft 0.21, torch 2.13): two linear
layers, the scaling and the addition; backward four products, the scaling and the sum of the two
gradients of the input. Dropout adds one to each pass."""


class LaunchFacts(NamedTuple):
    """Facts of a job and its layout on which the launches of a layer depend."""

    low_precision: bool = False
    """True if the inputs of matrix multiplications have 8 or 4 bits."""
    exchange: Exchange = "none"
    local_experts: float = 0.0
    """Routed experts of a rank."""
    fused_experts: bool = False
    """True if a fused kernel computes all experts with one launch."""
    cast_kernels: int = 0
    """Kernels per expert that quantize the input of one grouped layer."""


def launch_facts(job: Job, layout: Layout, model: Model) -> LaunchFacts:
    """Return the facts of ``job`` and ``layout``, without those of the kernels."""
    auto: Exchange = "alltoall" if job.moe_dispatcher == "auto" else job.moe_dispatcher
    experts = model.experts.count / layout.ep if model.experts is not None else 0.0
    return LaunchFacts(job.is_low_precision, auto if layout.ep > 1 else "none", experts)


def unfused_launches(kind: LayerKind) -> float:
    """Return the host launches of the forward pass of a layer of type ``kind`` without fusion.

    These are the counts of stacks from before FlashAttention, which have no routed experts.
    """
    return SEPARATE_ATTENTION * (kind.mixer != "none") + SEPARATE_MLP * (kind.mlp != "none")


def forward_launches(model: Model, kind: LayerKind, facts: LaunchFacts) -> float:
    """Return the host launches of the forward pass of a layer of type ``kind``."""
    launches = sum(launches_by_part(model, kind, facts).values())
    if facts.fused_experts or not kind.routed:
        return launches
    casts = MLP_MODULES * KERNEL_CALL * facts.cast_kernels
    return launches + facts.local_experts * (EXPERT_OPERATORS + casts)


def replayed_launches(
    model: Model, kind: LayerKind, facts: LaunchFacts, parts: frozenset[LayerPart]
) -> float:
    """Return the host launches of the forward pass if the layer's graph replays ``parts`` of it.

    The other arguments are those of ``forward_launches``.
    """
    captured = captured_launches(model, kind, facts, parts)
    launches = forward_launches(model, kind, facts)
    return launches - captured + (REPLAY_LAUNCHES if captured else 0.0)


def captured_launches(
    model: Model, kind: LayerKind, facts: LaunchFacts, parts: frozenset[LayerPart]
) -> float:
    """Return the host launches of the forward pass that ``parts`` of the layer need."""
    found = launches_by_part(model, kind, facts)
    return sum(launches for part, launches in found.items() if part in parts)


def launches_by_part(model: Model, kind: LayerKind, facts: LaunchFacts) -> dict[LayerPart, float]:
    """Return the host launches of the forward pass by part of the layer, without the experts."""
    module = LINEAR_MODULE * (LOW_PRECISION_MODULE if facts.low_precision else 1.0)
    found: dict[LayerPart, float] = {}
    if kind.attends:
        latent = model.attention.latent is not None
        found["attention"] = (
            LATENT_OPERATORS + LATENT_MODULES * module
            if latent
            else ATTENTION_OPERATORS + ATTENTION_MODULES * module
        )
        if model.attention.qk_norm != "none":
            found["attention"] += HEAD_NORMS
    if kind.recurrent:
        part: LayerPart = "mamba" if kind.mixer == "mamba" else "attention"
        found[part] = found.get(part, 0.0) + RECURRENCE_OPERATORS + ATTENTION_MODULES * module
    if kind.routed and model.experts is not None:
        found["router"] = ROUTER_OPERATORS
        found["preparation"], found["dispatch"] = EXCHANGE_OPERATORS[facts.exchange]
        if facts.exchange == "alltoall" and facts.local_experts > 1:
            found["dispatch"] += SORT_OPERATORS
        # The two grouped layers of the experts, and the activation between them.
        found["experts"] = MLP_OPERATORS + MLP_MODULES * module
        if model.experts.shared_size:
            found["shared_experts"] = MLP_OPERATORS + MLP_MODULES * module
    elif kind.mlp != "none":
        found["mlp"] = MLP_OPERATORS + MLP_MODULES * module
    return found
