"""Parsers of the free-text columns of a wide table: nodes, networks, sharding, features,
frameworks."""

from __future__ import annotations

import re

NODES = {
    "v100-32": "dgx-1-v100",
    "a100-40": "dgx-a100-40gb",
    "a100-80": "dgx-a100",
    "a800-80": "hgx-a800",
    "h100-80": "dgx-h100",
    "h100-96-meta": "grand-teton-h100",
    "h100-pcie": "h100-pcie-8",
    "h800-80": "hgx-h800",
    "h200": "dgx-h200",
    "h20": "hgx-h20",
    "gh200-96": "gh200-quad",
    "gh200-144": "gh200-1",
    "b200": "dgx-b200",
    "b300": "dgx-b300",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "l40s": "l40s-8",
    "mi250x": "frontier",
    "mi300x": "mi300x-8",
    "mi325x": "mi325x-8",
    "mi350x": "mi350x-8",
    "mi355x": "mi355x-8",
}
"""GPU of a row -> catalog node type."""

_FRAMEWORKS = (
    ("composer-fsdp", r"llm-foundry"),
    ("megatron-deepspeed", r"Megatron-DeepSpeed|bigscience|vTrain"),
    ("torchtitan", r"torchtitan"),
    ("nanotron", r"nanotron"),
    ("jax", r"pax|jax|maxtext"),
    ("megatron-bridge", r"Megatron-Bridge"),
    ("nemo", r"NeMo|dgxc-benchmarking|training_results.*nemo"),
    ("megatron-lm", r"Megatron-LM|Megatron|Korthikanti|Primus|SC21"),
)


def framework(text: str) -> str:
    """Return the first framework that ``text`` names, ``mlperf`` for MLPerf logs, or ``other``."""
    for name, pattern in _FRAMEWORKS:
        if re.search(pattern, text, re.IGNORECASE):
            return name
    return "mlperf" if "training_results" in text else "other"


def network_gbps(text: str) -> float | None:
    """Return Gb/s per host: ``1600 Gbps node``, ``800 Gb/s inter-node per node``, ``4x OmniPath
    100Gb``.

    Return None if the text has no rate, or a rate per GPU (which is the node type's own rate).
    """
    if "Jean Zay" in text:  # four Omni-Path adapters; some rows of this cluster omit them
        return 400.0
    several = re.search(r"(\d+)\s?x\s?(?:OmniPath\s?)?(\d+)\s?G(?:b|bps)?\b", text)
    if several:
        return float(several[1]) * float(several[2])
    whole = re.search(r"(\d+)\s?Gb(?:/s|ps)\s?(?:inter-node )?(?:per )?node", text)
    return float(whole[1]) if whole else None


def nics(text: str) -> int | None:
    """Return the number of NICs per host of a cluster that has fewer than its node type.

    Jean Zay has four Omni-Path adapters per host. vTrain's simulator sends a message between two
    hosts at a quarter of their rate of 800 Gb/s (src/predictor.py), which is the rate of one NIC.
    """
    return 4 if re.search("Jean Zay|vTrain", text) else None


def shard(text: str) -> int | None:
    """Return the ranks per FSDP shard group: ``jax fsdp=128 x dp=8``, ``FSDP32``, ``shard=64``."""
    found = re.search(r"(?:fsdp=|FSDP|shard=)(\d+)", text)
    return int(found[1]) if found else None


def release_features(source: str, gpu: str) -> set[str]:
    """Return the features of the release that the runs of ``source`` used, if they do not state it.

    Korthikanti et al. 2022 used Megatron-LM 3.0, whose all-reduces overlap: in their table 4, the
    backward pass of a layer takes 1.5 times as long as the forward pass. The launcher of NeMo 24.01
    to 24.05 disables cuDNN's attention (NeMo-Framework-Launcher, launcher_scripts/conf/config.yaml,
    NVTE_FUSED_ATTN: 0), so that Transformer Engine uses FlashAttention-2.
    """
    found = {"async-linear"} if "Korthikanti" in source else set()
    if gpu.startswith("h100") and re.search(r"NeMo 24\.0[1-5]", source):
        found.add("flash-attention-2")
    return found


def features(text: str) -> set[str]:
    """Return the words of the features that ``text`` lists as enabled."""
    found = set()
    if re.search(r"EP (?:A2A )?overlap(?! off)", text):
        found.add("ep-overlap")
    if re.search(r"(?<!no )CUDA.graph", text, re.IGNORECASE):
        part = re.search(r"cuda_graph=transformer_engine|router", text)
        found.add("part-graph" if part else "cuda-graph")
    # The asynchronous mode of nanotron hides only collectives of the backward pass, which Megatron
    # does without this feature.
    if re.search(r"TP comm overlap|tp-comm-overlap|(?<!TP mode, )async TP", text):
        found.add("tp-overlap")
    if re.search(r"overlap(?:-| )grad|grad-reduce|prefetch", text):
        found.add("dp-overlap")
    if re.search(r"DeepEP|HybridEP", text, re.IGNORECASE):
        found.add("deep-ep")
    if re.search(r"\beager\b", text):
        found.add("eager")
    if "checkpoint-in-cpu" in text:
        found.add("host-checkpoints")
    return found
