"""Features and recompute of mixture-of-experts recipes, for runs whose rows do not state them.

Source: the tagged files of NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs (v0.2.0 is
container 25.11, v0.3.0 26.02, v0.4.0 26.04, v0.4.2 26.04.01, v0.5.0 26.06) and its skills, the
earlier NVIDIA/NeMo scripts/performance, and the reproduce guide of the NVIDIA/Megatron-LM docs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

WHOLE = "deep-ep+cuda-graph+ep-overlap+fused-experts"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Words that apply to matching rows. The first match of a table counts."""

    source: str
    """Pattern in the source or id."""
    since: tuple[int, int, int]
    """First container release to which it applies."""
    pattern: str
    """Pattern in ``model gpu precision``, in lower case."""
    words: str


ANY = (0, 0, 0)
BRIDGE = "Megatron-Bridge|dgxc-benchmarking"
FEATURES = (
    Recipe("skill-qwen3-30b-(ovl|final)", ANY, "", "deep-ep+part-graph"),
    Recipe("skill-qwen3-30b-a2a-45s", ANY, "", "unfused-routing+part-graph"),
    Recipe("skill-qwen3-30b-a2a", ANY, "", "unfused-routing"),
    Recipe("GB200 optimization guide", ANY, "", "deep-ep+part-graph"),
    Recipe(f"{BRIDGE}|training_results", ANY, "gpt-oss-20b", "deep-ep+cuda-graph"),
    Recipe(BRIDGE, (26, 2, 0), "nemotron-3-nano", "deep-ep+part-graph"),
    Recipe(BRIDGE, (26, 6, 0), " (gb200|gb300) (fp8-mx|mxfp8)", WHOLE),
    Recipe(BRIDGE, (26, 6, 0), "30b-a3b b300 (fp8-mx|mxfp8)", WHOLE),
    Recipe(BRIDGE, (26, 4, 1), "deepseek.* b200 (fp8-mx|mxfp8)", "deep-ep+part-graph+ep-overlap"),
    Recipe(BRIDGE, (25, 11, 0), "gpt-oss.* (gb300|b300) ", "part-graph"),
    Recipe(BRIDGE, (25, 11, 0), "gpt-oss|qwen3-next", ""),
    Recipe(BRIDGE, (26, 2, 0), "qwen3-235b.* h", "ep-overlap"),
    Recipe(BRIDGE, (26, 2, 0), "(qwen3-235b|kimi).* (b|h)", ""),
    Recipe(BRIDGE, (26, 4, 0), "qwen.* b200 ", "deep-ep+part-graph"),
    Recipe(BRIDGE, (26, 2, 0), "qwen.* b300 ", "deep-ep+part-graph"),
    Recipe(BRIDGE, (26, 2, 0), "qwen.* b200 ", "part-graph"),
    Recipe(BRIDGE, (26, 2, 0), " (b|h)", "deep-ep"),
    Recipe(BRIDGE, (26, 2, 0), "(deepseek|kimi).* gb300 fp8", "deep-ep"),
    Recipe(BRIDGE, (25, 11, 0), " g", "deep-ep+part-graph"),
    Recipe(BRIDGE, (25, 11, 0), "qwen3-235b", "ep-overlap"),
    Recipe(BRIDGE, (25, 11, 0), "qwen.* b200 ", "part-graph"),
    Recipe(BRIDGE, (25, 11, 0), "qwen.* h", "ep-overlap"),
    Recipe(BRIDGE, (25, 11, 0), " h", "deep-ep+ep-overlap"),
    Recipe(BRIDGE, (25, 11, 0), "", ""),
    Recipe(BRIDGE, (25, 9, 0), "deepseek.* h", "deep-ep+ep-overlap"),
    Recipe(BRIDGE, (25, 9, 0), "qwen3.* g?b", "token-drop+cuda-graph"),
    Recipe(BRIDGE, (25, 7, 0), "", "token-drop"),
    Recipe(BRIDGE, (25, 4, 1), "deepseek.* g", "token-drop+unfused-core"),
    Recipe(BRIDGE, ANY, "", "token-drop"),
)
"""Words of ``wide_words.features``. GB200 runs of container 25.04 recompute only the attention
core, which makes sense only for an unfused core: cuDNN had no backward pass for heads of 192 yet.
"""

RECOMPUTE = (
    Recipe("GB200 optimization guide", ANY, "", "selective:moe_act+mlp"),
    Recipe(BRIDGE, (26, 6, 0), "gpt-oss-120b gb200 (fp8-mx|mxfp8)", "none"),
    Recipe(BRIDGE, (25, 11, 0), "gpt-oss-120b (g?b200|h)", "selective:layernorm+moe_act"),
    Recipe(BRIDGE, (26, 8, 0), "nemotron-3-nano.* h.* fp8", "selective:layernorm"),
    Recipe(
        BRIDGE, (26, 4, 0), "nemotron-3-nano.* h.* fp8", "selective:core_attn+layernorm+moe+moe_act"
    ),
    Recipe(BRIDGE, (25, 9, 0), "deepseek.* h", "selective:mla_up_proj+mlp"),
    Recipe(BRIDGE, (25, 11, 0), "deepseek.* gb300 bf16", "none"),
    Recipe(BRIDGE, (25, 7, 0), "deepseek.* h", "selective:mla_up_proj+mlp+moe"),
    Recipe(BRIDGE, (25, 7, 0), "deepseek", "selective:mla_up_proj"),
    Recipe(BRIDGE, (25, 4, 1), "deepseek.* g", "selective:core_attn"),
    Recipe(BRIDGE, (25, 4, 1), "deepseek", "selective:mla_up_proj"),
)
"""Recompute words for rows that state no recompute."""

CONTAINERS = {
    (25, 5): (25, 4, 1),
    (25, 8): (25, 7, 1),
    (25, 10): (25, 9, 0),
    (25, 12): (25, 9, 0),
    (26, 2): (26, 2, 0),
    (26, 5): (26, 4, 0),
    (26, 6): (26, 4, 1),
}
"""Tag of dgxc-benchmarking -> container release that its recipes start."""


def container_release(source: str) -> tuple[int, int, int]:
    """Return the container release of ``[26.04.01]`` or ``tag v25.05.05``, or zeros if none is
    named."""
    found = re.search(r"(\[|tag v)(\d\d)\.(\d\d)(?:\.(\d\d))?", source)
    if not found:
        return ANY
    year, month, patch = int(found[2]), int(found[3]), int(found[4] or 0)
    if found[1] == "[":
        return (year, month, patch)
    return CONTAINERS.get((year, month), (year, month, 0))


def recipe_words(table: tuple[Recipe, ...], row: dict[str, str]) -> str:
    """Return the words of ``table`` for a row with experts, or an empty string if there is no
    match."""
    if row["ep"] in ("", "0", "1", "1.0") and not row["experts"]:
        return ""
    when, named = container_release(row["source"]), f"{row['source']} {row['id']}"
    facts = f"{row['model']} {row['gpu']} {row['precision']}".lower()
    for recipe in table:
        known = when >= recipe.since and re.search(recipe.source, named)
        if known and re.search(recipe.pattern, facts):
            return recipe.words
    return ""
