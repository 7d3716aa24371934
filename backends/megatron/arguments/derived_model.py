"""Flag values that depend on the model; ``flags.yaml`` names the functions.

None and False omit the flag; True emits the flag without a value.
"""

from __future__ import annotations

from itertools import groupby

from parc.backends.megatron.programs import stack_of
from parc.backends.megatron.rules.express import linear_bias
from parc.compiler.ir import Experts, Problem

GPT_OSS_CLAMP = 7.0
GPT_OSS_OFFSET = 1.0
"""Constants of gpt-oss' clamped SwiGLU, x * sigmoid(1.702 x) * (y + 1) with x and y clamped to 7
(openai/gpt-oss)."""
MTP_LOSS_FACTOR = 0.1
"""Weight of the MTP loss late in the training of DeepSeek-V3 (arXiv:2412.19437, sec. 4.2)."""


def ffn_width(problem: Problem) -> int:
    """Return the width of the dense MLP, or of an expert if no layer is dense."""
    experts = problem.model.experts
    return problem.model.ffn.size or (experts.size if experts else 0)


def has_latent(problem: Problem) -> bool:
    """Return True for multi-head latent attention."""
    return problem.model.attention.latent is not None


def grouped_queries(problem: Problem) -> bool:
    """Return True for fewer key-value heads than heads; latent attention excludes the flag."""
    attention = problem.model.attention
    return attention.latent is None and attention.kv_heads != attention.heads


def query_groups(problem: Problem) -> int | None:
    """Return the key-value heads of grouped-query attention."""
    return problem.model.attention.kv_heads if grouped_queries(problem) else None


def query_key_norm(problem: Problem) -> bool:
    """Return True for norms of queries and keys, or of the compressed states of latent attention.

    Megatron has one flag for both.
    """
    return problem.model.attention.qk_norm == "head" or has_latent(problem)


def window(problem: Problem) -> str | None:
    """Return ``(left,right)``, the visible tokens before and after a token (TransformerEngine)."""
    tokens = problem.model.attention.window
    return None if tokens is None else f"({tokens - 1},0)"


def full_attention_every(problem: Problem) -> int | None:
    """Return n if every n-th layer of a model with a window has full attention."""
    attention = problem.model.attention
    return attention.full_attention_every or None if attention.window else None


def softmax(problem: Problem) -> str | None:
    """Return Megatron's softmax type for learned attention sinks."""
    return "learnable" if problem.model.attention.sinks else None


def no_linear_bias(problem: Problem) -> bool:
    """Disable linear biases, for which Megatron has a single switch."""
    return not linear_bias(problem.model)


def qkv_bias_alone(problem: Problem) -> bool:
    """Enable biases only for query, key and value (Qwen2)."""
    return problem.model.attention.qkv_bias and no_linear_bias(problem)


def swiglu(problem: Problem) -> bool:
    """Use SiLU with a gate."""
    return problem.model.ffn.gated and problem.model.ffn.activation == "silu"


def quick_geglu(problem: Problem) -> bool:
    """Use the clamped SwiGLU of gpt-oss, which Megatron calls quick GeGLU."""
    return problem.model.ffn.activation == "clamped_silu"


def glu_offset(problem: Problem) -> float | None:
    """Return the offset that gpt-oss adds to the linear half."""
    return GPT_OSS_OFFSET if quick_geglu(problem) else None


def activation_clamp(problem: Problem) -> float | None:
    """Return the value to which gpt-oss clamps both halves."""
    return GPT_OSS_CLAMP if quick_geglu(problem) else None


def squared_relu(problem: Problem) -> bool:
    """Use squared ReLU."""
    return problem.model.ffn.activation == "relu2"


def unfused_gelu(problem: Problem) -> bool:
    """Disable the fused bias and GELU kernel, which only implements the tanh form of GELU."""
    plain = problem.model.ffn.activation in ("gelu", "relu2")
    return plain and linear_bias(problem.model)


def unfused_dropout(problem: Problem) -> bool:
    """Disable fused bias and dropout, which grouped experts with biases reject (moe/experts.py)."""
    return problem.model.experts is not None and linear_bias(problem.model)


def normalization(problem: Problem) -> str:
    """Return RMSNorm or LayerNorm."""
    return {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}[problem.model.norm]


def untied(problem: Problem) -> bool:
    """Untie embedding and output weights, which Megatron ties by default."""
    return not problem.model.tied_embeddings


def mtp_layers(problem: Problem) -> int | None:
    """Return the number of multi-token-prediction layers."""
    return problem.model.mtp_layers or None


def mtp_loss_factor(problem: Problem) -> float | None:
    """Return the weight of the MTP loss."""
    return MTP_LOSS_FACTOR if problem.model.mtp_layers else None


def linear_variant(problem: Problem) -> str | None:
    """Return Megatron's name of linear attention."""
    return "gated_delta_net" if problem.model.linear else None


def stack_spec(problem: Problem) -> tuple[str, str] | None:
    """Return module and name of the layer spec of a pattern; the default from 0.19 on."""
    return stack_of(problem.version("megatron")) if problem.model.pattern else None


def expert_pattern(problem: Problem) -> str | None:
    """Return which layers have experts, such as ``([0]*3+[1]*58)``.

    None if all layers have experts, or if a layer pattern contains this information.
    """
    experts = problem.model.experts
    if experts is None or all(experts.pattern) or problem.model.pattern:
        return None
    return format_pattern(experts.pattern)


def format_pattern(pattern: tuple[bool, ...]) -> str:
    """Return a Python list expression that repeats the shortest period of ``pattern``."""
    size = len(pattern)
    periods = (n for n in range(1, size + 1) if size % n == 0)
    period = next(n for n in periods if pattern == pattern[:n] * (size // n))
    runs = [(int(kind), len(list(run))) for kind, run in groupby(pattern[:period])]
    text = "+".join(f"[{kind}]*{count}" for kind, count in runs)
    return f"({text})" if period == size else f"({text})*{size // period}"


def shared_width(problem: Problem) -> int | None:
    """Return the total width of all shared experts."""
    return _experts_of(problem).shared_size or None if problem.model.experts else None


def shared_gate(problem: Problem) -> bool:
    """Enable the sigmoid gate on the shared expert (Qwen2-MoE)."""
    return bool(shared_width(problem)) and _experts_of(problem).shared_gate


def _experts_of(problem: Problem) -> Experts:
    """Return the experts; raise ValueError for a dense model."""
    if problem.model.experts is None:
        raise ValueError("the model is dense: it has no experts")
    return problem.model.experts


def router_groups(problem: Problem) -> int | None:
    """Return the number of expert groups, if routing is limited to some groups per token."""
    experts = problem.model.experts
    return experts.groups if experts and experts.groups > 1 else None


def router_group_top_k(problem: Problem) -> int | None:
    """Return the number of expert groups that each token is routed to."""
    return _experts_of(problem).group_top_k if router_groups(problem) else None


def router_scaling(problem: Problem) -> float | None:
    """Return the factor on the combined output of the experts, if it is not 1."""
    experts = problem.model.experts
    return experts.scaling_factor if experts and experts.scaling_factor != 1.0 else None


def expert_bias_buffer(problem: Problem) -> bool:
    """Enable the load-balancing bias of DeepSeek-V3."""
    return problem.model.experts is not None and problem.model.experts.router_bias == "buffer"


def load_balancing(problem: Problem) -> str | None:
    """Return the type of auxiliary loss: per sequence with a load-balancing bias (DeepSeek-V3).

    Without the bias the loss is per micro-batch.
    """
    experts = problem.model.experts
    if experts is None:
        return None
    if experts.aux_loss_coefficient == 0:
        return "none"
    return "seq_aux_loss" if experts.router_bias == "buffer" else "aux_loss"


def aux_loss(problem: Problem) -> float | None:
    """Return the weight of the auxiliary loss."""
    return problem.model.experts.aux_loss_coefficient or None if problem.model.experts else None


def router_dtype(problem: Problem) -> str | None:
    """Return fp32, because 16-bit routing is unstable for many experts (Megatron warns from 32)."""
    return "fp32" if problem.model.experts else None


def dispatcher(problem: Problem) -> str | None:
    """Return alltoall, or flex for DeepEP and HybridEP.

    Megatron's default, allgather, does not scale with ep.
    """
    if problem.model.experts is None:
        return None
    return "flex" if problem.job.deduplicates_dispatch else "alltoall"


def flex_dispatcher(problem: Problem) -> str | None:
    """Return the library that the flex dispatcher uses."""
    flex = problem.model.experts is not None and problem.job.deduplicates_dispatch
    return problem.job.moe_dispatcher if flex else None
