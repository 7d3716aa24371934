"""Settings of NVIDIA's recipes for runs whose rows do not state them.

Sources: the configuration and launch scripts at the tags of NVIDIA/dgxc-benchmarking, with the
versions of NVIDIA/NeMo that they install (``nemo/collections/llm/recipes``,
``scripts/performance``); ``scripts/performance/configs/llama`` of NVIDIA-NeMo/Megatron-Bridge; and
``launcher_scripts/conf/training`` of NVIDIA/NeMo-Framework-Launcher. All of these recipes with
tensor parallelism use sequence parallelism. User buffers overlap the collectives of tensor
parallelism (``ub_tp_comm_overlap``, ``tp_comm_overlap``), except in nvfp4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a recipe; None for a setting that is unknown."""

    recompute: str | None = None
    sequence_parallel: bool | None = None
    features: frozenset[str] = frozenset()
    """Words of ``wide_words.features``."""


UB, GRAPH = "tp-overlap", "cuda-graph"
RECIPES = (
    (r"dgxc-benchmarking tag v25\.02.* nemotron-4-340b", "selective:core_attn", UB),
    (r"dgxc-benchmarking tag \S+ (nemo_megatron|llama|nemotron|grok1)", "none", UB),
    (r"dgxc-benchmarking tag \S+ deepseek", None, ""),
    (r"Megatron-Bridge docs/performance-summary.* llama-?3-8b h100", None, ""),
    (r"Megatron-Bridge docs/performance-summary.* llama-?3-8b", "none", GRAPH),
    # FSDP; activations of 40 layers are offloaded, which no column states
    (r"Megatron-Bridge docs/performance-summary.* llama-?3-70b gb200.* fp8-cs", None, ""),
    (r"Megatron-Bridge docs/performance-summary.* llama.* nvfp4", "none", ""),
    (r"Megatron-Bridge docs/performance-summary.* llama", "none", UB),
    (r"NeMo docs/.*performance_summary.*NeMo 24\.07.* (llama-?[23]-70b|gpt3-20b)", "none", UB),
    (r"NeMo docs/.*performance_summary.*NeMo 24\.07.* nemotron-3-8b", "none", UB),
    (r"NeMo-Framework-Launcher README @80353286 .* gpt3-5b", "none", ""),
    (r"Megatron-LM examples/llama/README", "none", UB),  # "follows NeMo's performance scripts"
    (r"Megatron-LM README.*strong_scaling", None, UB),  # the README names the option
)
"""(pattern in ``source model gpu precision``, recompute, feature). The first match counts."""


def recipe_settings(row: dict[str, str]) -> Settings:
    """Return the settings of the recipe that the run of ``row`` used."""
    text = f"{row['source']} {row['model']} {row['gpu']} {row['precision']}"
    is_split = row["tp"] not in ("", "0", "1", "1.0")
    for pattern, recompute, feature in RECIPES:
        if re.search(pattern, text, re.IGNORECASE):
            used = {feature} if feature and (is_split or feature == GRAPH) else set()
            return Settings(recompute, is_split, frozenset(used))
    return Settings()
