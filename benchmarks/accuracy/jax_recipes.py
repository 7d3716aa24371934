"""What the recipe of a JAX run computes again where its row does not say.

Read off the tagged sources: ``paxml/paxml_mod_configs.py`` and ``maxtext/configure.sh`` of
NVIDIA/dgxc-benchmarking, and for JAX-Toolbox's table the configurations that it starts
(google/paxml, contrib/gpu/scripts_gpu/configs.py), whose base class saves nothing in repeated
layers. The policies name what is kept: what they do not name and a gradient needs runs again, the
fused attention core always, and of an MLP all but its last product.
"""

from __future__ import annotations

import re

from benchmarks.accuracy.moe_recipes import release

KEPT = "selective:core_attn+layernorm"
POLICIES = (
    ("paxml_README_5b", (0, 0, 0), KEPT),  # SAVE_DOT_ONLY
    ("paxml_README_175b", (0, 0, 0), f"{KEPT}+mlp_in"),  # SAVE_QKV_OUT_PROJ
    ("maxtext_README_70b", (25, 2, 0), f"{KEPT}+attn_out+mlp_in"),  # save_qkv_proj
    ("maxtext_README_70b", (0, 0, 0), f"{KEPT}+mlp_in"),  # custom: queries, keys, values, output
    ("JAX-Toolbox.*/pax/.* pax-126M", (0, 0, 0), "none"),  # layers that are not repeated
    ("JAX-Toolbox.*/pax/", (0, 0, 0), "full"),  # SAVE_NOTHING
)
"""(pattern in ``source id``, tag from which it holds, words of ``recompute``); the first counts."""


def policy_words(row: dict[str, str]) -> str:
    """The recompute of the recipe that ``row`` ran; nothing where that is not known."""
    named = f"{row['source']} {row['id']}"
    when = release(row["source"])
    for pattern, since, words in POLICIES:
        if when >= since and re.search(pattern, named):
            return words
    return ""
