"""Random specs of models whose layers use different token mixers, seeded.

They are the specs of ``specs.py`` with another model: half of them have linear attention in most
layers, the other half have a pattern of layers with one part each.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.conformance.megatron.specs import Spec, valid_spec, variation

CUT_BY = 128
"""Heads and groups are multiples of the parallel sizes; widths are multiples of this for low
precision.
"""
NOT_BESIDE = ("latent", "mtp_layers", "qkv_bias", "attention_output_bias", "mlp_bias")


def hybrid_spec(seed: int) -> Spec:
    """Return a spec that should compile, the same one for the same seed."""
    dice, spec = Random(f"hybrid {seed}"), valid_spec(seed)
    model, layout = spec["model"], spec["layout"]
    for key in NOT_BESIDE:
        model.pop(key, None)
    model["kv_heads"] = model.get("kv_heads", model["heads"])
    model["attention_gate"] = dice.random() < 0.5
    if layout.get("cp", 1) > 1:
        layout["cp_comm"] = dice.choice(["auto", "p2p", "all_gather"])
    if seed % 2:
        _linear(dice, model, layout)
    else:
        _pattern(dice, model, layout)
        spec["job"].pop("moe_overlap", None)
    return spec


def _linear(dice: Random, model: Spec, layout: Spec) -> None:
    """Use Gated DeltaNet in all layers except every n-th."""
    ranks = layout["tp"] * layout["cp"]
    keys = ranks * dice.choice([1, 2])
    model |= {"gated": True, "activation": "silu"}
    model["linear_attention"] = {
        "key_heads": keys,
        "value_heads": keys * dice.choice([1, 2, 4]) * 16,
        "key_dim": CUT_BY,
        "value_dim": dice.choice([64, 128]),
        "conv_size": dice.choice([3, 4]),
        "full_attention_every": dice.randint(2, 5),
    }


def _pattern(dice: Random, model: Spec, layout: Spec) -> None:
    """Use Mamba, attention, MLPs and experts in any order; an MLP is never the first layer."""
    experts = model.get("experts")
    letters = "M*-E" if experts else "M*-"
    must = letters.replace("-", "")
    rest = "".join(dice.choice(letters) for _ in range(model["layers"]))
    model["pattern"] = must + rest
    model["layers"] = len(model["pattern"])
    if model.get("activation") == "gelu_tanh":
        model["activation"] = "gelu"
    if model["position"].get("scaling") == "llama3":
        model["position"] = {"kind": "none", "max_positions": 131_072}
    if experts:
        experts.pop("first_dense_layers", None)
    tp, cp = layout["tp"], layout["cp"]
    groups = tp * dice.choice([1, cp, 2 * cp])
    model["mamba"] = {
        "heads": groups * cp * 32,
        "head_dim": dice.choice([32, 64]),
        "state_size": 64 * dice.randint(1, 4),
        "groups": groups,
    }


def hybrid_variation(seed: int) -> Spec:
    """Return a valid spec with a change, which may make it invalid."""
    dice, spec = Random(f"hybrid variation {seed}"), hybrid_spec(seed)
    if dice.random() < 0.4:
        varied = variation(seed)
        for section in ("layout", "job"):
            spec[section] |= {key: varied[section][key] for key in varied[section]}
        spec["job"].pop("moe_overlap", None)
    else:
        _change(dice, spec["model"], spec["layout"])
    return spec


def _change(dice: Random, model: dict[str, Any], layout: Spec) -> None:
    """Change heads or groups, or a parallel size."""
    mixer = model.get("linear_attention") or model["mamba"]
    fields = [key for key in ("key_heads", "value_heads", "heads", "groups") if key in mixer]
    field = dice.choice(fields)
    if dice.random() < 0.6:
        mixer[field] = max(1, mixer[field] + dice.choice([-1, 1, 2, 4]))
        if "key_heads" in mixer and mixer["value_heads"] % mixer["key_heads"]:
            mixer["value_heads"] = mixer["key_heads"] * dice.choice([1, 2, 3])
        if "groups" in mixer and mixer["heads"] % mixer["groups"]:
            mixer["heads"] = mixer["groups"] * dice.choice([1, 2, 3])
        return
    axis = dice.choice(["tp", "cp", "pp", "vpp"])
    layout[axis] = max(1, layout[axis] + dice.choice([-1, 1, 2]))
