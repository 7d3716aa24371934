"""Random serving specs for SGLang, seeded: valid ones over all axes, modes and formats."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.conformance.vllm.specs import valid_service

Spec = dict[str, Any]


def valid_sglang_service(seed: int) -> Spec:
    """Return a spec that should compile, the same one for the same seed.

    It is a spec for vLLM without the parts that SGLang does not have, or that PARC does not plan
    for SGLang.
    """
    dice = Random(f"sglang {seed}")
    families = {"llama", "qwen3", "qwen3_moe", "deepseek_v3", "mixtral"}
    spec = next(
        tree
        for at in range(100)
        if (tree := valid_service(1000 * seed + at))["model"]["family"] in families
    )
    layout, model = spec["layout"], spec["model"]
    layout.pop("dcp", None)
    if model["family"] == "mixtral":
        layout["tp"] *= layout["dp"]
        layout["dp"] = 1
        model["heads"] = max(model["heads"], layout["tp"])
        model["kv_heads"] = min(model["kv_heads"], model["heads"])
    ranks = layout["tp"] * layout.get("dp", 1)
    if model["family"] == "deepseek_v3":
        # the dense MLP is split over all ranks of a stage, in blocks of 128
        model["ffn"] = 128 * 8 * max(ranks, 4)
    if layout.get("ep") == "on" and "redundant_experts" not in layout and dice.random() < 0.2:
        layout["all2all"] = dice.choice(["allgather_reducescatter", "deepep_high_throughput"])
    tokens = dice.choice(["auto", 4096, 8192])
    spec["job"] |= {"max_num_batched_tokens": tokens, "block_tokens": dice.choice([1, 16, 64])}
    spec["launch"] = {}
    spec["emit"] = ["sglang", "rankmap"]
    return spec
