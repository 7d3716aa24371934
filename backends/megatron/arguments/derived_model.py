"""Values of flags that are computed from the model. Each function: problem -> value.

None and False leave the flag out, True writes the flag alone.
"""

from __future__ import annotations

from itertools import groupby

from parc.backends.megatron.programs import stack_of
from parc.backends.megatron.rules.express import linear_bias
from parc.compiler.ir import Experts, Problem

GPT_OSS_CLAMP = 7.0
GPT_OSS_OFFSET = 1.0
"""Clamped SwiGLU of gpt-oss: x * sigmoid(1.702 x) * (y + 1), both clamped to 7 (openai/gpt-oss)."""
MTP_LOSS_FACTOR = 0.1
"""Weight of the MTP loss late in the training of DeepSeek-V3 (arXiv:2412.19437, sec. 4.2)."""


def ffn_width(problem: Problem) -> int:
    """Width of the dense MLP; where no layer is dense, that of an expert."""
    experts = problem.model.experts
    return problem.model.ffn.size or (experts.size if experts else 0)


def has_latent(problem: Problem) -> bool:
    """Multi-head latent attention."""
    return problem.model.attention.latent is not None


def grouped_queries(problem: Problem) -> bool:
    """Fewer key-value heads than heads; latent attention excludes the flag."""
    attention = problem.model.attention
    return attention.latent is None and attention.kv_heads != attention.heads


def query_groups(problem: Problem) -> int | None:
    """Key-value heads."""
    return problem.model.attention.kv_heads if grouped_queries(problem) else None


def query_key_norm(problem: Problem) -> bool:
    """Norms on queries and keys; latent attention norms its compressed states by the same flag."""
    return problem.model.attention.qk_norm == "head" or has_latent(problem)


def window(problem: Problem) -> str | None:
    """``(left,right)``: tokens seen before and after, itself not counted (TransformerEngine)."""
    tokens = problem.model.attention.window
    return None if tokens is None else f"({tokens - 1},0)"


def full_attention_every(problem: Problem) -> int | None:
    """Every n-th layer sees everything."""
    attention = problem.model.attention
    return attention.full_attention_every or None if attention.window else None


def softmax(problem: Problem) -> str | None:
    """Learned attention sinks."""
    return "learnable" if problem.model.attention.sinks else None


def no_linear_bias(problem: Problem) -> bool:
    """The one switch for biases."""
    return not linear_bias(problem.model)


def qkv_bias_alone(problem: Problem) -> bool:
    """Biases on query, key and value only (Qwen2)."""
    return problem.model.attention.qkv_bias and no_linear_bias(problem)


def swiglu(problem: Problem) -> bool:
    """SiLU with a gate."""
    return problem.model.ffn.gated and problem.model.ffn.activation == "silu"


def quick_geglu(problem: Problem) -> bool:
    """The clamped SwiGLU of gpt-oss, in Megatron's words."""
    return problem.model.ffn.activation == "clamped_silu"


def glu_offset(problem: Problem) -> float | None:
    """What is added to the linear half."""
    return GPT_OSS_OFFSET if quick_geglu(problem) else None


def activation_clamp(problem: Problem) -> float | None:
    """Where both halves are clamped."""
    return GPT_OSS_CLAMP if quick_geglu(problem) else None


def squared_relu(problem: Problem) -> bool:
    """ReLU, squared."""
    return problem.model.ffn.activation == "relu2"


def unfused_gelu(problem: Problem) -> bool:
    """The fused kernel is the tanh form of GELU, and knows no other activation."""
    plain = problem.model.ffn.activation in ("gelu", "relu2")
    return plain and linear_bias(problem.model)


def unfused_dropout(problem: Problem) -> bool:
    """Grouped experts with biases refuse the fused bias and dropout (moe/experts.py)."""
    return problem.model.experts is not None and linear_bias(problem.model)


def normalization(problem: Problem) -> str:
    """RMSNorm or LayerNorm."""
    return {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}[problem.model.norm]


def untied(problem: Problem) -> bool:
    """Tied is Megatron's default."""
    return not problem.model.tied_embeddings


def mtp_layers(problem: Problem) -> int | None:
    """Multi-token-prediction depth."""
    return problem.model.mtp_layers or None


def mtp_loss_factor(problem: Problem) -> float | None:
    """Weight of the MTP loss."""
    return MTP_LOSS_FACTOR if problem.model.mtp_layers else None


def linear_variant(problem: Problem) -> str | None:
    """Gated DeltaNet in place of attention."""
    return "gated_delta_net" if problem.model.linear else None


def stack_spec(problem: Problem) -> tuple[str, str] | None:
    """Where the layers of a pattern are described; from 0.19 on that is the default."""
    return stack_of(problem.version("megatron")) if problem.model.pattern else None


def expert_pattern(problem: Problem) -> str | None:
    """``([0]*3+[1]*58)``; nothing where every layer routes, or where a pattern says it."""
    experts = problem.model.experts
    if experts is None or all(experts.pattern) or problem.model.pattern:
        return None
    return spell_pattern(experts.pattern)


def spell_pattern(pattern: tuple[bool, ...]) -> str:
    """A Python list expression: the shortest period, repeated."""
    size = len(pattern)
    periods = (n for n in range(1, size + 1) if size % n == 0)
    period = next(n for n in periods if pattern == pattern[:n] * (size // n))
    runs = [(int(kind), len(list(run))) for kind, run in groupby(pattern[:period])]
    text = "+".join(f"[{kind}]*{count}" for kind, count in runs)
    return f"({text})" if period == size else f"({text})*{size // period}"


def shared_width(problem: Problem) -> int | None:
    """Width of all shared experts together."""
    return _of(problem).shared_size or None if problem.model.experts else None


def shared_gate(problem: Problem) -> bool:
    """A sigmoid gate on the shared expert (Qwen2-MoE)."""
    return bool(shared_width(problem)) and _of(problem).shared_gate


def _of(problem: Problem) -> Experts:
    """The experts of a model that has some."""
    if problem.model.experts is None:
        raise ValueError("a dense model was asked about its experts")
    return problem.model.experts


def router_groups(problem: Problem) -> int | None:
    """Groups of experts, where a token may visit some of them only."""
    experts = problem.model.experts
    return experts.groups if experts and experts.groups > 1 else None


def router_group_top_k(problem: Problem) -> int | None:
    """Groups that a token may visit."""
    return _of(problem).group_top_k if router_groups(problem) else None


def router_scaling(problem: Problem) -> float | None:
    """Factor on the combined output, where it is not 1."""
    experts = problem.model.experts
    return experts.scaling_factor if experts and experts.scaling_factor != 1.0 else None


def expert_bias_buffer(problem: Problem) -> bool:
    """The load-balancing bias of DeepSeek-V3."""
    return problem.model.experts is not None and problem.model.experts.router_bias == "buffer"


def load_balancing(problem: Problem) -> str | None:
    """Auxiliary loss: by sequence beside a load-balancing bias, by micro-batch else."""
    experts = problem.model.experts
    if experts is None:
        return None
    if experts.aux_loss_coefficient == 0:
        return "none"
    return "seq_aux_loss" if experts.router_bias == "buffer" else "aux_loss"


def aux_loss(problem: Problem) -> float | None:
    """Weight of the auxiliary loss."""
    return problem.model.experts.aux_loss_coefficient or None if problem.model.experts else None


def router_dtype(problem: Problem) -> str | None:
    """Routing in 16 bits is unstable with many experts; Megatron warns from 32 on."""
    return "fp32" if problem.model.experts else None


def dispatcher(problem: Problem) -> str | None:
    """Megatron's default, allgather, does not scale with ep; flex is DeepEP or HybridEP."""
    if problem.model.experts is None:
        return None
    return "flex" if problem.job.deduplicates_dispatch else "alltoall"


def flex_dispatcher(problem: Problem) -> str | None:
    """The library behind the flex dispatcher."""
    flex = problem.model.experts is not None and problem.job.deduplicates_dispatch
    return problem.job.moe_dispatcher if flex else None
