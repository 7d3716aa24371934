"""Functions that compute flag values from the model; ``flags.yaml`` names them.

A function that returns None or False omits the flag; True emits the flag without a value.
"""

from __future__ import annotations

from itertools import groupby

from parc.backends.megatron.capabilities import core_version
from parc.backends.megatron.programs import layer_spec_for_patterns
from parc.backends.megatron.rules.inexpressible_features import needs_linear_bias_flag
from parc.compiler.ir import Experts, Problem
from parc.compiler.ir.divisors import divisors

GPT_OSS_CLAMP = 7.0
GPT_OSS_OFFSET = 1.0
"""Clamp and offset of the clamped SwiGLU in gpt-oss: x * sigmoid(1.702 x) * (y + 1), with x and y
clamped to 7 (source: openai/gpt-oss)."""
MTP_LOSS_FACTOR = 0.1
"""Weight of the MTP loss late in the training of DeepSeek-V3 (arXiv:2412.19437, sec. 4.2)."""


def ffn_width(problem: Problem) -> int:
    """Return the width of the dense MLP, or of one expert if no layer is dense."""
    experts = problem.model.experts
    # Without --ffn-hidden-size Megatron assumes 4 x hidden, even if no layer has a dense MLP.
    return problem.model.ffn.size or (experts.size if experts else 0)


def has_latent(problem: Problem) -> bool:
    """Return True if the model has multi-head latent attention."""
    return problem.model.attention.latent is not None


def grouped_queries(problem: Problem) -> bool:
    """Return True if the model has fewer key-value heads than query heads.

    False for latent attention, which Megatron does not combine with ``--group-query-attention``.
    """
    attention = problem.model.attention
    return attention.latent is None and attention.kv_heads != attention.heads


def query_groups(problem: Problem) -> int | None:
    """Return the number of key-value heads of grouped-query attention; None for other attention."""
    return problem.model.attention.kv_heads if grouped_queries(problem) else None


def query_key_norm(problem: Problem) -> bool:
    """Return True for a model with query-key norms, or with latent attention.

    Megatron has one flag for two kinds of norms: the norms of queries and keys, and the norms of
    the compressed states of latent attention.
    """
    return problem.model.attention.qk_norm == "head" or has_latent(problem)


def sliding_window(problem: Problem) -> str | None:
    """Return a sliding window as "(tokens before,tokens after)"; None without a window.

    For example, "(4095,0)" lets a token attend to itself and the 4,095 tokens before it.
    """
    tokens = problem.model.attention.window
    # The window in a spec includes the token itself, that of TransformerEngine does not.
    return None if tokens is None else f"({tokens - 1},0)"


def full_attention_interval(problem: Problem) -> int | None:
    """Return n if every n-th layer of a sliding-window model has full attention, else None."""
    attention = problem.model.attention
    return attention.full_attention_every or None if attention.window else None


def softmax_type(problem: Problem) -> str | None:
    """Return "learnable", Megatron's softmax type for attention sinks; None without sinks."""
    return "learnable" if problem.model.attention.sinks else None


def no_linear_bias(problem: Problem) -> bool:
    """Return True to set the only flag that disables the biases of all linear layers."""
    return not needs_linear_bias_flag(problem.model)


def qkv_bias_only(problem: Problem) -> bool:
    """Return True if only the query, key and value projections have biases, as in Qwen2."""
    return problem.model.attention.qkv_bias and no_linear_bias(problem)


def swiglu(problem: Problem) -> bool:
    """Return True if the MLP is SwiGLU, a SiLU with a gate."""
    return problem.model.ffn.gated and problem.model.ffn.activation == "silu"


def quick_geglu(problem: Problem) -> bool:
    """Return True for the clamped SwiGLU of gpt-oss, which Megatron calls quick GeGLU."""
    return problem.model.ffn.activation == "clamped_silu"


def glu_offset(problem: Problem) -> float | None:
    """Return the offset that gpt-oss adds to the linear half of its MLP; None for other models."""
    return GPT_OSS_OFFSET if quick_geglu(problem) else None


def activation_clamp(problem: Problem) -> float | None:
    """Return the value at which gpt-oss clamps the two halves of its MLP; None for other models."""
    return GPT_OSS_CLAMP if quick_geglu(problem) else None


def squared_relu(problem: Problem) -> bool:
    """Return True if the activation of the MLP is squared ReLU."""
    return problem.model.ffn.activation == "relu2"


def unfused_gelu(problem: Problem) -> bool:
    """Return True to disable the kernel that fuses a bias with tanh GELU.

    This is necessary if the model has biases and its activation is exact GELU or squared ReLU.
    """
    # The fused kernel is only used with biases; without them there is nothing to disable.
    plain = problem.model.ffn.activation in ("gelu", "relu2")
    return plain and needs_linear_bias_flag(problem.model)


def unfused_dropout(problem: Problem) -> bool:
    """Return True to disable the fused kernel of bias and dropout.

    Megatron's experts with biases cannot use this kernel (moe/experts.py).
    """
    return problem.model.experts is not None and needs_linear_bias_flag(problem.model)


def normalization(problem: Problem) -> str:
    """Return Megatron's name of the norm, "RMSNorm" or "LayerNorm"."""
    return {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}[problem.model.norm]


def untied_embeddings(problem: Problem) -> bool:
    """Return True if the output weights differ from the embedding.

    By default Megatron ties the two.
    """
    return not problem.model.tied_embeddings


def mtp_layers(problem: Problem) -> int | None:
    """Return the number of multi-token-prediction layers; None if there are none."""
    return problem.model.mtp_layers or None


def mtp_loss_factor(problem: Problem) -> float | None:
    """Return the weight of the multi-token-prediction loss; None without MTP layers."""
    return MTP_LOSS_FACTOR if problem.model.mtp_layers else None


def linear_variant(problem: Problem) -> str | None:
    """Return "gated_delta_net", Megatron's name of linear attention; None for other models."""
    return "gated_delta_net" if problem.model.linear else None


def stack_spec(problem: Problem) -> tuple[str, str] | None:
    """Return (module, name) of Megatron's layer spec for layer patterns.

    None for a model without a layer pattern. From Megatron 0.19 on, this layer spec is the default.
    """
    return layer_spec_for_patterns(core_version(problem)) if problem.model.pattern else None


def expert_pattern(problem: Problem) -> str | None:
    """Return a Python list, such as ``([0]*3+[1]*58)``, with 1 for each layer with experts.

    None if the flag is not needed: the model is dense, all layers have experts, or a layer pattern
    shows which layers have experts.
    """
    experts = problem.model.experts
    if experts is None or all(experts.pattern) or problem.model.pattern:
        return None
    return format_pattern(experts.pattern)


def format_pattern(pattern: tuple[bool, ...]) -> str:
    """Return a Python list expression that repeats the shortest period of ``pattern``."""
    size = len(pattern)
    # A repeated period such as ([0]*1+[1]*1)*24 is easier to check by eye than 48 numbers.
    period = next(n for n in divisors(size) if pattern == pattern[:n] * (size // n))
    runs = [(int(kind), len(list(run))) for kind, run in groupby(pattern[:period])]
    text = "+".join(f"[{kind}]*{count}" for kind, count in runs)
    return f"({text})" if period == size else f"({text})*{size // period}"


def shared_expert_width(problem: Problem) -> int | None:
    """Return the total width of all shared experts; None if there are none."""
    return _experts_of(problem).shared_size or None if problem.model.experts else None


def expert_latent_width(problem: Problem) -> int | None:
    """Return the width to which tokens are projected for the experts; None without projection."""
    return _experts_of(problem).latent_size or None if problem.model.experts else None


def shared_expert_gate(problem: Problem) -> bool:
    """Return True if a sigmoid gates the output of the shared expert, as in Qwen2-MoE."""
    return bool(shared_expert_width(problem)) and _experts_of(problem).shared_gate


def _experts_of(problem: Problem) -> Experts:
    """Return the experts of the model; raise ValueError for a dense model."""
    if problem.model.experts is None:
        raise ValueError("the model is dense: it has no experts")
    return problem.model.experts


def router_groups(problem: Problem) -> int | None:
    """Return the number of expert groups if each token is routed to some groups only, else None."""
    experts = problem.model.experts
    return experts.groups if experts and experts.groups > 1 else None


def router_group_top_k(problem: Problem) -> int | None:
    """Return the number of expert groups that each token is routed to; None without groups."""
    return _experts_of(problem).group_top_k if router_groups(problem) else None


def router_scaling(problem: Problem) -> float | None:
    """Return the factor on the combined output of the experts; None if the factor is 1."""
    experts = problem.model.experts
    return experts.scaling_factor if experts and experts.scaling_factor != 1.0 else None


def expert_bias_buffer(problem: Problem) -> bool:
    """Return True if the router balances the experts by a bias, as in DeepSeek-V3."""
    return problem.model.experts is not None and problem.model.experts.router_bias == "buffer"


def load_balancing_type(problem: Problem) -> str | None:
    """Return the type of load-balancing loss: "seq_aux_loss", "aux_loss" or "none".

    The loss is per sequence if the router has a load-balancing bias, as in DeepSeek-V3, and
    otherwise per micro-batch. For a dense model, the result is None instead of a text.
    """
    experts = problem.model.experts
    if experts is None:
        return None
    if experts.aux_loss_coefficient == 0:
        return "none"
    return "seq_aux_loss" if experts.router_bias == "buffer" else "aux_loss"


def aux_loss_weight(problem: Problem) -> float | None:
    """Return the weight of the load-balancing loss; None for a dense model or a weight of 0."""
    return problem.model.experts.aux_loss_coefficient or None if problem.model.experts else None


def router_dtype(problem: Problem) -> str | None:
    """Return "fp32", the data type of the router; None for a dense model.

    In a 16-bit format, routing to many experts is unstable (Megatron warns from 32 experts).
    """
    return "fp32" if problem.model.experts else None


def token_dispatcher(problem: Problem) -> str | None:
    """Return the token dispatcher, "flex" (DeepEP, HybridEP) or "alltoall"; None for a dense model.

    Megatron's default, allgather, does not scale with ep.
    """
    if problem.model.experts is None:
        return None
    # DeepEP and HybridEP send a token only once to an NVLink domain with several of its experts.
    return "flex" if problem.job.deduplicates_dispatch else "alltoall"


def flex_dispatcher(problem: Problem) -> str | None:
    """Return the library of the flex dispatcher, "deepep" or "hybridep"; None for other ones."""
    flex = problem.model.experts is not None and problem.job.deduplicates_dispatch
    return problem.job.moe_dispatcher if flex else None
