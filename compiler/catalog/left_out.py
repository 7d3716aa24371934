"""Parts of model families that have no field in the spec: shapes are exact, these are not said."""

from __future__ import annotations

_INTERLEAVED = "rotary pairs of neighbours instead of halves"
_BEHIND = "norms behind attention and MLP instead of before them"
_NO_POSITIONS = "full layers without positions"
_MULTIPLIERS = "multipliers of embeddings, residuals, attention and logits"
_TURNED_FIRST = "norms of queries and keys behind the rotation instead of before it"
_COMMAND_R = (
    "attention and MLP side by side on one residual, norms that take the mean away, "
    f"scaled logits, {_INTERLEAVED}"
)

LEFT_OUT = {
    "bloom": "ALiBi positions and the norm after the embedding (2 x hidden parameters)",
    "cohere": _COMMAND_R,
    "cohere2": f"{_COMMAND_R}, {_NO_POSITIONS}",
    "dbrx": "norms that take the mean away, clipped queries, keys and values",
    "ernie4_5": _INTERLEAVED,
    "ernie4_5_moe": _INTERLEAVED,
    "exaone4": f"{_BEHIND}, {_NO_POSITIONS} among sliding ones",
    "exaone_moe": f"{_NO_POSITIONS} among sliding ones",
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
    "granitemoehybrid": _MULTIPLIERS,
    "granitemoeshared": _MULTIPLIERS,
    "grok": "soft-capped logits and scaled embeddings",
    "helium": _INTERLEAVED,
    "hunyuan_v1_dense": _TURNED_FIRST,
    "hunyuan_v1_moe": _TURNED_FIRST,
    "kimi_k2": "beta_fast 1 of YaRN, where the target assumes 32",
    "llama4_text": "layers without positions, chunked attention, queries and keys of length one, "
    f"experts with scaled inputs, {_INTERLEAVED}",
    "ministral3": "queries scaled by position",
    "olmo2": _BEHIND,
    "olmo3": f"{_BEHIND}, unscaled positions in sliding layers",
    "phi": "attention and MLP side by side on one residual, a bias on the output projection",
    "smollm3": "layers without positions",
    "vaultgemma": "soft-capped logits, scaled embeddings, a query scale of its own",
}
"""Family -> what is left out."""
