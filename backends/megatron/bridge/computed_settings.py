"""Functions that compute settings of Megatron-Bridge; ``fields.yaml`` refers to them by name.

Most other rows of the table refer to the functions that compute the flags of Megatron-LM, which
return None for a setting that Megatron-Core's own default fits.
"""

from __future__ import annotations

from parc.backends.megatron.arguments import (
    derived_layout,
    derived_model,
    derived_position,
    derived_sharding,
)
from parc.backends.megatron.tokenizers import NULL_TOKENIZER, tokenizer_type
from parc.backends.shared.torch.emitted_program import transformers_source
from parc.compiler.ir import Layout, Problem

NULL = ()
"""Value of a setting that must be null in the file, because the default is another value."""
BETA_FAST, BETA_SLOW = 32.0, 1.0
"""Numbers of rotations between which YaRN interpolates; Megatron-LM's defaults."""
DTYPES = {"fp16": "torch.float16"}


def query_rank(problem: Problem, layout: Layout) -> int | tuple[()] | None:
    """Return the rank of compressed queries, ``NULL`` if latent attention compresses only keys.

    None for other attention. MLATransformerConfig has the default 512.
    """
    latent = problem.model.attention.latent
    return None if latent is None else latent.q_lora_rank or NULL


def window_pair(problem: Problem, layout: Layout) -> tuple[int, int] | None:
    """Return the window as (tokens before the token itself, tokens after); None without one."""
    tokens = problem.model.attention.window
    return None if tokens is None else (tokens - 1, 0)


def linear_bias(problem: Problem, layout: Layout) -> bool:
    """Return True if all linear layers have biases."""
    return not derived_model.no_linear_bias(problem)


def activation_function(problem: Problem, layout: Layout) -> str:
    """Return Megatron-Bridge's name of the activation function (utils/activation_map.py).

    The fused kernel of bias and GELU computes the tanh form, so both forms have one name.
    """
    names = {"silu": "silu", "clamped_silu": "quick_gelu", "relu2": "squared_relu"}
    return names.get(problem.model.ffn.activation, "gelu")


def fused_activation(problem: Problem, layout: Layout) -> bool:
    """Return True to compute the activation, and a bias before it, with a fused kernel.

    TransformerConfig allows it for SwiGLU, and for the tanh form of GELU after a bias.
    """
    biased = linear_bias(problem, layout) and not derived_model.unfused_gelu(problem)
    return derived_model.swiglu(problem) or biased


def fused_dropout(problem: Problem, layout: Layout) -> bool:
    """Return True to fuse bias, dropout and addition, as Megatron-LM does."""
    return not derived_model.unfused_dropout(problem)


def fused_rope(problem: Problem, layout: Layout) -> bool:
    """Return True to rotate queries and keys with a fused kernel, as Megatron-LM does."""
    return not derived_position.unfused_rope(problem)


def _if_latent(problem: Problem, value: float | None) -> float | None:
    return value if derived_model.has_latent(problem) else None


def _unless_latent(problem: Problem, value: float | None) -> float | None:
    return None if derived_model.has_latent(problem) else value


def latent_yarn_factor(problem: Problem, layout: Layout) -> float | None:
    """Return the YaRN factor of latent attention; None for other attention, and without YaRN."""
    return _if_latent(problem, derived_position.yarn_factor(problem))


def latent_mscale(problem: Problem, layout: Layout) -> float | None:
    """Return ``mscale`` of latent attention with YaRN, else None."""
    return _if_latent(problem, derived_position.yarn_mscale(problem))


def latent_mscale_all_dim(problem: Problem, layout: Layout) -> float | None:
    """Return ``mscale_all_dim`` of latent attention with YaRN, else None."""
    return _if_latent(problem, derived_position.yarn_mscale_all_dim(problem))


def plain_yarn_factor(problem: Problem, layout: Layout) -> float | None:
    """Return the YaRN factor; None for latent attention, and without YaRN."""
    return _unless_latent(problem, derived_position.yarn_factor(problem))


def plain_mscale(problem: Problem, layout: Layout) -> float | None:
    """Return ``mscale`` of YaRN; None for latent attention, and without YaRN."""
    return _unless_latent(problem, derived_position.yarn_mscale(problem))


def plain_mscale_all_dim(problem: Problem, layout: Layout) -> float | None:
    """Return ``mscale_all_dim`` of YaRN; None for latent attention, and without YaRN."""
    return _unless_latent(problem, derived_position.yarn_mscale_all_dim(problem))


def _has_plain_yarn(problem: Problem) -> bool:
    return _unless_latent(problem, derived_position.yarn_factor(problem)) is not None


def yarn_beta_fast(problem: Problem, layout: Layout) -> float | None:
    """Return the rotations above which YaRN keeps a frequency; None without YaRN."""
    return BETA_FAST if _has_plain_yarn(problem) else None


def yarn_beta_slow(problem: Problem, layout: Layout) -> float | None:
    """Return the rotations below which YaRN interpolates fully; None without YaRN."""
    return BETA_SLOW if _has_plain_yarn(problem) else None


def yarn_rounding(problem: Problem, layout: Layout) -> bool | None:
    """Return True to round YaRN's range of dims to integers, as Megatron-LM does, else None."""
    return True if _has_plain_yarn(problem) else None


def expert_layers(problem: Problem, layout: Layout) -> list[int] | None:
    """Return 1 per layer with experts and 0 per other layer; None if all or no layers have any."""
    experts = problem.model.experts
    if experts is None or all(experts.pattern):
        return None
    return [int(one) for one in experts.pattern]


def model_chunks(problem: Problem, layout: Layout) -> int | None:
    """Return the number of model chunks per pipeline rank; None without interleaving.

    Unlike the flags of Megatron-LM, a layout string does not imply this number.
    """
    return layout.vpp if layout.vpp > 1 else None


def hugging_face_model(problem: Problem, layout: Layout) -> str | None:
    """Return the Hugging Face repository or config of the model, for exports; None without one."""
    return transformers_source(problem.model) or None


def moment_dtype(problem: Problem, layout: Layout) -> str | None:
    """Return the torch dtype of Adam's moments; None for fp32, the default."""
    return "torch.bfloat16" if derived_layout.bf16_moments(problem, layout) else None


def main_gradient_dtype(problem: Problem, layout: Layout) -> str | None:
    """Return the torch dtype of the gradients of Megatron-FSDP; None for that of the weights."""
    wide = derived_sharding.main_gradient_format(problem, layout) == "fp32"
    return "torch.float32" if wide else None


def fused_gradients(problem: Problem, layout: Layout) -> bool:
    """Return True if GEMMs add weight gradients to their sum, as in Megatron-LM's programs."""
    return not derived_sharding.separate_gradients(problem, layout)


def overlaps_pipeline(problem: Problem, layout: Layout) -> bool:
    """Return True to overlap sends between stages with computation, which needs interleaving."""
    return layout.vpp > 1


def batches_pipeline(problem: Problem, layout: Layout) -> bool:
    """Return True to send and receive in one batch, which excludes their overlap."""
    return layout.vpp == 1


def weight_dtype(problem: Problem, layout: Layout) -> str:
    """Return the torch dtype of weights, and of activations between pipeline stages."""
    return DTYPES.get(problem.job.precision, "torch.bfloat16")


def fp32_gradients(problem: Problem, layout: Layout) -> bool:
    """Return True to accumulate and reduce gradients in fp32, not in bf16 or fp16."""
    half = derived_layout.bf16_gradients(problem, layout) or derived_layout.fp16(problem, layout)
    return not half


def checks_gradients(problem: Problem, layout: Layout) -> bool:
    """Return True to stop at a gradient that is not a number; False for fp16.

    With fp16, such gradients only lower the loss scale.
    """
    return not derived_layout.fp16(problem, layout)


def null_tokenizer_size(problem: Problem, layout: Layout) -> int | None:
    """Return the number of tokens of NullTokenizer; None for tokenizers with a file."""
    return problem.model.vocab if tokenizer_type(problem) == NULL_TOKENIZER else None


def loads_weights_only(problem: Problem, layout: Layout) -> bool | None:
    """Return True if a finetuning job loads only the weights of ``checkpoint.load``, else None."""
    job = problem.job
    return True if job.kind == "finetune" and job.load_dir is None else None
