"""Models that the emitted program of Accelerate can build from the sizes in a spec."""

from __future__ import annotations

from parc.backends.shared.unsupported_features import unsupported_model_features
from parc.compiler.ir import Model


def missing_parts(model: Model) -> list[str]:
    """Return descriptions of the features of ``model`` that a Llama of transformers lacks."""
    # LlamaForCausalLM supports tied embeddings (tie_word_embeddings), but biases only on all four
    # attention projections.
    lacks = [part for part in unsupported_model_features(model) if part != "tied embeddings"]
    return lacks + (["biases of queries, keys and values"] if model.attention.qkv_bias else [])
