"""Parts of model families that have no field in the spec: shapes are exact, these are not said."""

from __future__ import annotations

_INTERLEAVED = "rotary pairs are neighbours, not halves of a head"
_BEHIND = "norms stand behind attention and MLP, not before them"
_MULTIPLIERS = "multipliers of embeddings, residuals, attention and logits"
_COMMAND_R = (
    "attention and MLP side by side on one residual, norms that take the mean away, "
    f"scaled logits; {_INTERLEAVED}"
)

LEFT_OUT = {
    "bloom": "ALiBi positions and the norm after the embedding (2 x hidden parameters)",
    "cohere": _COMMAND_R,
    "cohere2": f"{_COMMAND_R}; full layers have no positions",
    "dbrx": "norms that take the mean away, clipped queries, keys and values",
    "ernie4_5": _INTERLEAVED,
    "ernie4_5_moe": _INTERLEAVED,
    "exaone4": f"{_BEHIND}; full layers among sliding ones have no positions",
    "exaone_moe": "full layers among sliding ones have no positions",
    "falcon": "attention and MLP side by side on one residual",
    "flex_olmo": _BEHIND,
    "gemma": "embeddings scaled by sqrt(hidden)",
    "gemma2": "soft-capped logits, scaled embeddings, a query scale of its own",
    "gemma3_text": "scaled embeddings, another rotary base in sliding layers, a query scale",
    "glm": _INTERLEAVED,
    "glm4": _INTERLEAVED,
    "glm4v_text": _INTERLEAVED,
    "gpt_neox": "attention and MLP side by side on one residual",
    "granite": _MULTIPLIERS,
    "granitemoe": _MULTIPLIERS,
    "granitemoeshared": _MULTIPLIERS,
    "grok": "soft-capped logits and scaled embeddings",
    "helium": _INTERLEAVED,
    "kimi_k2": "beta_fast 1 of YaRN, where the target assumes 32",
    "llama4_text": "layers without positions, chunked attention, queries and keys of length one, "
    f"experts that scale their input; {_INTERLEAVED}",
    "ministral3": "queries scaled by position",
    "olmo2": _BEHIND,
    "olmo3": f"{_BEHIND}; positions of sliding layers are not scaled",
    "phi": "attention and MLP side by side on one residual, a bias on the output projection",
    "smollm3": "every fourth layer has no positions",
    "vaultgemma": "soft-capped logits, scaled embeddings, a query scale of its own",
}
"""Family -> what is left out."""
