"""Features of models that PARC's own training programs cannot build.

These programs build a plain decoder: RMSNorm before attention and before a SiLU-gated MLP, rotary
positions, and grouped queries.
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.compiler.ir import Model

SCALINGS = ("none", "linear", "llama3")
"""Rotary scalings that the emitted model implements."""


def unsupported_model_features(model: Model) -> tuple[str, ...]:
    """Return descriptions of the features of ``model`` that the emitted decoder does not have."""
    parts = (*never_supported_features(model), *_unsupported_layer_parts(model))
    return (*parts, *_unsupported_position_parts(model))


def never_supported_features(model: Model) -> Iterator[str]:
    """Yield descriptions of the features of ``model`` that no emitted program can build.

    Other features, such as experts, are supported by some programs.
    """
    attention = model.attention
    if attention.latent is not None:
        yield "latent attention"
    if attention.qk_norm != "none":
        yield "norms of queries and keys"
    if attention.window is not None:
        yield "sliding window"
    if attention.sinks:
        yield "attention sinks"
    yield from hybrid_model_features(model)
    if model.mtp_layers:
        yield "multi-token prediction"
    if model.left_out:
        yield model.left_out
    if model.experts is not None and model.experts.latent_size:
        yield "experts on a latent projection"
    yield from unusual_features(model)


def unusual_features(model: Model) -> Iterator[str]:
    """Yield descriptions of the features of ``model`` that no training framework has a flag for.

    Programs of the library transformers can build them from the model's config.json.
    """
    attention, mamba = model.attention, model.mamba
    parts = {
        "layers of different shapes": model.variants,
        "indexer of sparse attention": attention.indexer is not None,
        "chunked attention": attention.chunked,
        "values with another head dim than keys": attention.value_dim,
        "low-rank projections of queries and outputs": attention.low_rank is not None,
        "gate per head on the attention output": attention.head_gate,
        "keys that are also values": attention.joint_kv,
        "several residual streams": model.residual_streams > 1,
        "Mamba-1 layers": mamba is not None and mamba.step_rank,
        "Mamba layers without a norm": mamba is not None and not mamba.norm,
        "norms without parameters": not model.norm_weights,
    }
    yield from (name for name, present in parts.items() if present)
    yield from (extra.name for extra in model.extra_weights)


def hybrid_model_features(model: Model) -> Iterator[str]:
    """Yield descriptions of the features of ``model`` that plain softmax attention layers lack.

    Examples are linear attention, Mamba layers, and a gate on the attention output.
    """
    if model.attention.gate:
        yield "gate on the attention output"
    if model.linear is not None:
        yield "linear attention"
    if model.mamba is not None:
        yield "Mamba layers"
    if model.convolution is not None:
        yield "layers with convolutions"
    if model.pattern:
        yield "pattern of layers of one part each"


def _unsupported_layer_parts(model: Model) -> Iterator[str]:
    """Yield descriptions of the norms, MLPs, experts and biases that the emitted decoder lacks."""
    if model.attention.output_bias:
        yield "bias on the attention output"
    if model.experts is not None:
        yield "experts"
    if not model.ffn.gated or model.ffn.activation != "silu":
        yield f"{'gated' if model.ffn.gated else 'ungated'} {model.ffn.activation} MLP"
    if model.ffn.bias:
        yield "biases in the MLP"
    if model.norm != "rmsnorm":
        yield model.norm
    if model.norms_per_layer != 2 or not model.final_norm:
        yield f"{model.norms_per_layer} norms per layer"


def _unsupported_position_parts(model: Model) -> Iterator[str]:
    """Yield descriptions of the positions and embeddings that the emitted decoder lacks."""
    position = model.position
    if position.kind == "none":
        yield "attention without positions"
    # Some models, such as Pythia, rotate only a part of each head.
    elif position.kind == "rope" and position.scaling in SCALINGS and position.percent != 1:
        yield f"rotation of {position.percent:.4g} of a head"
    elif position.kind != "rope" or position.scaling not in SCALINGS:
        yield f"{position.kind} positions with {position.scaling} scaling"
    if model.tied_embeddings:
        yield "tied embeddings"
