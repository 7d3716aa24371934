"""Recompute policies and meshes of JAX recipes, for runs whose rows do not state them.

Source: the tagged files ``paxml/paxml_mod_configs.py`` and ``maxtext/configure.sh`` of
NVIDIA/dgxc-benchmarking, and for JAX-Toolbox's table the configurations that it starts
(google/paxml, contrib/gpu/scripts_gpu/configs.py), whose base class saves nothing in repeated
layers. A policy names the tensors to save. Every other tensor that a gradient needs is recomputed:
always the fused attention core, and all of an MLP but its last product.
"""

from __future__ import annotations

import re

from benchmarks.accuracy.wide.moe_recipes import container_release

KEPT = "selective:core_attn+layernorm"
POLICIES = (
    ("paxml_README_5b", (0, 0, 0), KEPT),  # SAVE_DOT_ONLY
    ("paxml_README_175b", (0, 0, 0), f"{KEPT}+mlp_in"),  # SAVE_QKV_OUT_PROJ
    ("maxtext_README_70b", (25, 2, 0), f"{KEPT}+attn_out+mlp_in"),  # save_qkv_proj
    ("maxtext_README_70b", (0, 0, 0), f"{KEPT}+mlp_in"),  # custom: queries, keys, values, output
    ("JAX-Toolbox.*/pax/.* pax-126M", (0, 0, 0), "none"),  # its layers are not repeated
    ("JAX-Toolbox.*/pax/", (0, 0, 0), "full"),  # SAVE_NOTHING
)
"""(pattern in ``source id``, first tag that uses it, ``recompute`` words). The first match counts.
"""

SHARDS = (("paxml_README_5b", 8), ("paxml_README_175b", 128))
"""(name in ``source``, ranks that share one copy of the state). ``paxml/configure.sh`` shards it
over 1 and 16 hosts of 8 GPUs (FSDP), and replicates it over the other hosts (DP)."""


def recipe_shard(source: str) -> int | None:
    """Return the ranks per shard group of a recipe, or None if it is unknown."""
    return next((ranks for name, ranks in SHARDS if name in source), None)


def policy_words(row: dict[str, str]) -> str:
    """Return the recompute words of the recipe of ``row``, or an empty string if it is unknown."""
    named = f"{row['source']} {row['id']}"
    when = container_release(row["source"])
    for pattern, since, words in POLICIES:
        if when >= since and re.search(pattern, named):
            return words
    return ""
