"""Parts of model families that have no field in the spec: shapes are exact, these are not said."""

from __future__ import annotations

LEFT_OUT = {
    "bloom": "ALiBi positions and the norm after the embedding (2 x hidden parameters)",
    "falcon": "attention and MLP side by side on one residual",
    "gemma": "embeddings scaled by sqrt(hidden)",
    "gemma2": "soft-capped logits, scaled embeddings, a query scale of its own",
    "gemma3_text": "scaled embeddings, another rotary base in sliding layers, a query scale",
    "gpt_neox": "attention and MLP side by side on one residual",
    "grok": "soft-capped logits and scaled embeddings",
    "kimi_k2": "beta_fast 1 of YaRN, where the target assumes 32",
    "phi": "attention and MLP side by side on one residual, a bias on the output projection",
}
"""Family -> what is left out."""
