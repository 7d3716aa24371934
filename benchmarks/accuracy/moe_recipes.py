"""What the recipe of a mixture-of-experts run switches on where its row does not say.

Read off the tagged sources: NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs (v0.2.0 is
container 25.11, v0.3.0 26.02, v0.4.0 26.04, v0.4.2 26.04.01, v0.5.0 26.06) and its skills,
NVIDIA/NeMo scripts/performance before, and the reproduce guide of NVIDIA/Megatron-LM docs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

WHOLE = "deep-ep+cuda-graph+ep-overlap+fused-experts"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Words of ``wide_words.features`` for the rows whose facts match."""

    source: str
    """Pattern in the source or id."""
    since: tuple[int, int, int]
    """Container release from which it holds; (0, 0, 0) where sources have none."""
    pattern: str
    """Pattern in ``model gpu precision``, lower case."""
    words: str


RECIPES = (
    Recipe("skill-qwen3-30b-(ovl|final)", (0, 0, 0), "", "deep-ep+part-graph"),
    Recipe("DeepSeek-V3 GB200 optimisation guide", (0, 0, 0), "", "deep-ep+part-graph"),
    Recipe("Bridge", (26, 6, 0), " (gb200|gb300) (fp8-mx|nvfp4)", WHOLE),
    Recipe("Bridge", (26, 6, 0), "qwen.* b300 (fp8-mx|nvfp4)", WHOLE),
    Recipe("Bridge", (26, 4, 1), "deepseek.* b200 (fp8-mx|nvfp4)", "deep-ep+part-graph+ep-overlap"),
    Recipe("Bridge", (26, 4, 0), "qwen.* (b200|b300) ", "deep-ep+part-graph"),
    Recipe("Bridge", (26, 2, 0), "qwen.* b200 ", "part-graph"),
    Recipe("Bridge", (26, 2, 0), " (b200|b300|h100-80) ", "deep-ep"),
    Recipe("Bridge", (25, 11, 0), " (gb200|gb300) ", "deep-ep+part-graph"),
    Recipe("Bridge", (25, 11, 0), "qwen.* b200 ", "part-graph"),
    Recipe("Bridge", (25, 11, 0), "deepseek.* h100-80 ", "deep-ep+ep-overlap"),
    Recipe("Bridge", (25, 11, 0), "qwen.* h100-80 ", "ep-overlap"),
    Recipe("Bridge", (25, 11, 0), "", ""),
    Recipe("Bridge", (25, 9, 0), "deepseek.* h100-80 ", "deep-ep+ep-overlap"),
    Recipe("Bridge", (25, 9, 0), "qwen3.* g?b200 ", "token-drop+cuda-graph"),
    Recipe("Bridge", (25, 9, 0), "", "token-drop"),
    Recipe("dgxc-benchmarking", (0, 0, 0), "deepseek.* gb200 ", "token-drop+unfused-core"),
    Recipe("dgxc-benchmarking", (0, 0, 0), "", "token-drop"),
)
"""The first that matches counts."""


def release(source: str) -> tuple[int, int, int]:
    """Release of the container: ``[26.04.01]``, ``tag v25.05.05``; zeros where none is named."""
    found = re.search(r"(?:\[|tag v)(\d\d)\.(\d\d)(?:\.(\d\d))?", source)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)


def defaults(row: dict[str, str]) -> set[str]:
    """Words for a row of expert parallelism; none where its recipe is not known."""
    if not row["ep"]:
        return set()
    when = release(row["source"])
    facts = f"{row['model']} {row['gpu']} {row['precision']}".lower()
    for recipe in RECIPES:
        named = re.search(recipe.source, f"{row['source']} {row['id']}")
        if named and when >= recipe.since and re.search(recipe.pattern, facts):
            return {word for word in recipe.words.split("+") if word}
    return set()
