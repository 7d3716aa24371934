"""Random specs for DeepSpeed, seeded: valid ones of every kind, and variations."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from tests.hyperparameters import hyperparameters

Spec = dict[str, Any]
GPUS = 8
KINDS = ("zero", "offload", "nvme", "plus", "autotp", "sequences", "pipeline", "grid", "experts")
CPU_CANNOT = ("nvme", "plus")
"""Kinds whose engine requires hardware: NVMe's library, or CUDA kernels that quantize."""


def kind_of(seed: int) -> str:
    return KINDS[seed % len(KINDS)]


def valid_spec(seed: int) -> Spec:
    """Return a spec that should compile, the same one for the same seed."""
    dice, kind = Random(f"deepspeed {seed}"), kind_of(seed)
    nodes = dice.choice([1, 2, 3, 4])
    tp, cp, pp, ep = degrees(dice, kind)
    dp = nodes * GPUS // (tp * cp * pp)
    micro = dice.choice([1, 1, 2, 4])
    heads = tp * cp * dice.choice([1, 2, 4])
    spec: Spec = {
        "parc": 1,
        "name": f"deepspeed-{seed}",
        "model": {
            "name": "random",
            "layers": dice.randint(pp, 6 * pp),
            "hidden": 64 * dice.randint(1, 8),
            "ffn": 64 * tp * dice.randint(1, 8),
            "heads": heads,
            "kv_heads": dice.choice([heads, tp * cp]),
            "head_dim": dice.choice([32, 64]),
            "vocab": dice.randint(1000, 60_000),
            "tied_embeddings": dice.random() < 0.3,
            "norm": dice.choice(["rmsnorm", "layernorm"]),
            "position": {"kind": dice.choice(["rope", "learned"]), "max_positions": 8192},
        },
        "cluster": {"node": "dgx-a100", "nodes": nodes},
        "job": {
            "sequence_length": 32 * cp * dice.randint(1, 8),
            "global_batch": micro * dp * dice.randint(1, 6),
            "learning_rate": dice.choice([1e-4, 3e-5]),
            "steps": dice.choice([1, 20, 1000]),
        },
        "layout": {
            **{"tp": tp, "cp": cp, "pp": pp, "dp": dp, "micro_batch": micro},
            **stage_and_more(dice, kind),
            "recompute": dice.choice(["none", "full"]),
        },
        "emit": ["deepspeed", "rankmap", "torchrun"],
    }
    spec["job"] |= _optimizer(seed, spec["job"])
    return add_features(dice, kind, spec, ep)


def _optimizer(seed: int, job: Spec) -> Spec:
    """Return hyperparameters that DeepSpeed can express."""
    found = hyperparameters(seed, job["steps"], ("cosine", "linear", "constant"), least_warmup=2)
    if found.get("lr_decay") == "linear":
        found["min_learning_rate"] = 0
    return found


def degrees(dice: Random, kind: str) -> tuple[int, int, int, int]:
    """Return (tp, cp, pp, ep) that divide the ranks of a host."""
    if kind == "autotp":
        return dice.choice([2, 4, 8]), 1, 1, 1
    if kind == "sequences":
        return 1, dice.choice([2, 4, 8]), 1, 1
    if kind == "pipeline":
        return 1, 1, dice.choice([2, 4, 8]), 1
    if kind == "grid":
        return 2, 1, dice.choice([2, 4]), 1
    if kind == "experts":
        return dice.choice([1, 1, 2]), 1, 1, dice.choice([1, 2, 4])
    return 1, 1, 1, 1


def stage_and_more(dice: Random, kind: str) -> Spec:
    if kind == "offload":
        stage = dice.choice([1, 2, 3])
        parameters = dice.choice(["none", "cpu"]) if stage == 3 else "none"
        return {"zero_stage": stage, "offload": {"optimizer": "cpu", "parameters": parameters}}
    if kind == "nvme":
        parameters = dice.choice(["none", "cpu", "nvme"])
        away = {"optimizer": "nvme", "parameters": parameters, "nvme_path": "/local"}
        return {"zero_stage": 3, "offload": away}
    if kind == "plus":
        plus = {
            "hpz": dice.choice([1, 2, 4, 8]),
            "quantized_weights": dice.random() < 0.5,
            "quantized_gradients": dice.random() < 0.5,
        }
        return {"zero_stage": 3, "zero_plus": plus}
    if kind == "pipeline" and dice.random() < 0.3:
        return {"zero_stage": 1, "offload": "cpu"}
    stages = {"pipeline": [1], "grid": [1], "experts": [1, 2]}
    return {"zero_stage": dice.choice(stages.get(kind, [1, 2, 3]))}


def add_features(dice: Random, kind: str, spec: Spec, ep: int) -> Spec:
    """Add experts, precision, and the program."""
    if kind == "experts":
        tp = spec["layout"]["tp"]
        count = ep * dice.choice([1, 2])
        spec["model"]["experts"] = {
            "count": count,
            "top_k": dice.randint(1, min(2, count)),
            "size": 64 * tp,
            "pre_softmax": True,
            "first_dense_layers": 1,
        }
        spec["model"]["layers"] += 1
        spec["layout"] |= {"ep": ep, "etp": tp}
    chance = dice.random()
    if chance < 0.2:
        spec["job"]["precision"] = "fp16"
    elif chance < 0.4:
        spec["job"]["gradient_precision"] = "bf16"
    if dice.random() < 0.5 or (kind == "experts" and spec["layout"]["tp"] > 1):
        spec["launch"] = {"program": "train.py"}
    return spec


def variation(seed: int) -> Spec:
    """Return a valid spec with a change, which may make it invalid."""
    dice = Random(f"deepspeed variation {seed}")
    spec = copy.deepcopy(valid_spec(seed))
    changes = (_stage, _stage, _plus, _offload, _degree, _batch, _experts, _types)
    dice.choice(changes)(dice, spec)
    return spec


def _stage(dice: Random, spec: Spec) -> None:
    spec["layout"]["zero_stage"] = dice.choice([0, 2, 3])


def _plus(dice: Random, spec: Spec) -> None:
    spec["layout"]["zero_plus"] = dice.choice(
        [{"hpz": dice.choice([3, 5, 6, 7, 16])}, {"quantized_weights": True}, {"hpz": 4}]
    )


def _offload(dice: Random, spec: Spec) -> None:
    spec["layout"]["offload"] = dice.choice(
        [
            {"optimizer": "nvme"},
            {"optimizer": "cpu", "parameters": "cpu"},
            {"parameters": "nvme", "nvme_path": "/local"},
            "cpu",
        ]
    )


def _degree(dice: Random, spec: Spec) -> None:
    layout, axis = spec["layout"], dice.choice(["tp", "cp", "pp", "dp"])
    layout[axis] = max(1, layout[axis] + dice.choice([-1, 1, 2, 3]))


def _batch(dice: Random, spec: Spec) -> None:
    spec["job"]["global_batch"] += dice.randint(1, 9)


def _experts(dice: Random, spec: Spec) -> None:
    experts = spec["model"].get("experts")
    if experts is None:
        spec["layout"]["ep"] = dice.choice([2, 4])
        return
    experts["count"] = max(1, experts["count"] + dice.choice([-1, 1]))
    spec["layout"]["ep"] = dice.choice([2, 3, 4, 5])


def _types(dice: Random, spec: Spec) -> None:
    spec["job"]["precision"] = dice.choice(["fp16", "bf16"])
    spec["layout"]["zero_stage"] = 0
