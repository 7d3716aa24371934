"""Random valid specs for the torch backends."""

from __future__ import annotations

import copy
from random import Random

from tests.compiled import Spec
from tests.hyperparameters import DECAYS, hyperparameters

DENSE: Spec = {
    "name": "dense",
    "layers": 16,
    "hidden": 1024,
    "ffn": 3072,
    "heads": 16,
    "kv_heads": 8,
    "head_dim": 64,
    "vocab": 32000,
    "norm_epsilon": 1e-5,
    "position": {"kind": "rope", "max_positions": 65536},
}
ROUTED = ("qwen3-30b-a3b", "deepseek-v2-lite")
SCHEDULES = {
    "1f1b": 1,
    "gpipe": 1,
    "interleaved": 2,
    "zb-h1": 2,
    "zb-v": 2,
    "dualpipe-v": 2,
}
"""Schedule -> model chunks per pipeline rank."""


def valid_spec(framework: str, seed: int) -> Spec:
    """Return a random spec that must compile; it depends only on framework and seed."""
    dice = Random(f"{framework} {seed}")
    spec = {"fsdp": _fsdp, "torchtitan": _titan, "accelerate": _accelerate}[framework](dice)
    decays = ("cosine", "linear", "constant", "wsd") if framework == "torchtitan" else DECAYS
    spec["job"] |= hyperparameters(f"{framework} {seed}", 1000, decays)
    return spec


def _spec(dice: Random, framework: str, layout: Spec, nodes: int) -> Spec:
    dp = nodes * 8
    for axis in ("tp", "cp", "pp"):
        dp //= layout.get(axis, 1)
    micro = dice.choice((1, 2))
    stages = layout.get("pp", 1) * 2
    return {
        "parc": 1,
        "name": "random",
        "model": copy.deepcopy(DENSE),
        "cluster": {"node": "dgx-h100", "nodes": nodes},
        "job": {
            "sequence_length": 1024 * dice.choice((1, 2, 4)),
            "global_batch": dp * micro * stages * dice.choice((1, 2)),
            "learning_rate": dice.choice((1e-4, 3e-4)),
        },
        "layout": layout | {"micro_batch": micro},
        "emit": [framework, "rankmap", "torchrun"],
    }


def _sharding(dice: Random, dp: int, stages: tuple[int, ...]) -> Spec:
    """Return a random ZeRO stage and shard size."""
    stage = dice.choice(stages)
    shards = [n for n in (2, 4, 8) if n < dp and dp % n == 0]
    if stage == 3 and shards and dice.random() < 0.5:
        return {"zero_stage": 3, "dp_shard": dice.choice(shards)}
    return {"zero_stage": stage}


def _fsdp(dice: Random) -> Spec:
    nodes, tp = dice.choice((1, 2, 4)), dice.choice((1, 1, 2, 4, 8))
    layout = {"tp": tp, "recompute": dice.choice(("none", "full"))}
    layout |= _sharding(dice, nodes * 8 // tp, (3, 3, 2) if tp > 1 else (3, 3, 2, 0))
    return _spec(dice, "fsdp", layout, nodes)


def _accelerate(dice: Random) -> Spec:
    nodes, tp, cp = dice.choice((1, 2, 4)), dice.choice((1, 1, 2)), dice.choice((1, 1, 2))
    layout: Spec = {"tp": tp, "cp": cp}
    layout |= _sharding(dice, nodes * 8 // (tp * cp), (3, 3, 2) if tp * cp > 1 else (3, 2, 0))
    if layout["zero_stage"]:
        layout["recompute"] = dice.choice(("none", "full"))
    if cp > 1:
        layout["cp_comm"] = dice.choice(("p2p", "all_gather"))
    spec = _spec(dice, "accelerate", layout, nodes)
    own = tp * cp > 1 or dice.random() < 0.3
    if own:
        spec["launch"] = {"program": "train.py"}
    # The emitted program sets the format of FSDP2's gradients; DDP reduces in fp32.
    formats = ("bf16",) if own else ("bf16", "fp32")
    spec["job"]["gradient_precision"] = dice.choice(formats) if layout["zero_stage"] else "fp32"
    return spec


def _titan(dice: Random) -> Spec:
    nodes = dice.choice((2, 4, 8))
    pp, tp, cp = dice.choice((1, 1, 2, 4)), dice.choice((1, 2, 4)), dice.choice((1, 1, 2))
    nodes = max(nodes, pp * tp * cp // 8)
    layout: Spec = {"pp": pp, "tp": tp, "cp": cp}
    dp = nodes * 8 // (pp * tp * cp)
    layout["recompute"] = dice.choice(
        ("none", "full", {"granularity": "selective", "modules": ["op"]})
    )
    if pp > 1:
        layout["schedule"] = dice.choice(list(SCHEDULES))
        layout["vpp"] = SCHEDULES[layout["schedule"]]
    layout |= _sharding(dice, dp, (3, 3, 2) if cp > 1 else (3, 3, 2, 0))
    spec = _spec(dice, "torchtitan", layout, nodes)
    if dice.random() < 0.4 and layout["zero_stage"] == 3:
        inner = layout.pop("dp_shard", dp) * cp * tp
        spec["model"] = {"base": dice.choice(ROUTED)}
        layout = spec["layout"]
        layout.pop("dp_shard", None)
        layout |= {
            "recompute": "full",
            "ep": dice.choice([n for n in (1, 2, 4, 8) if inner % n == 0]),
        }
        layout["etp"] = 1
    return spec
