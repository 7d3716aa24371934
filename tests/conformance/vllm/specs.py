"""Random serving specs, seeded: valid ones over all axes, modes and formats."""

from __future__ import annotations

from random import Random
from typing import Any

Spec = dict[str, Any]
GPUS_PER_NODE = 8
ROUTED = ("qwen3_moe", "mixtral", "deepseek_v3")
HYBRID = ("qwen3_next", "nemotron_h")
LATENT = {"q_lora_rank": 384, "kv_lora_rank": 512, "qk_nope_dim": 128, "qk_rope_dim": 64}


def valid_service(seed: int) -> Spec:
    """Return a spec that should compile, the same one for the same seed."""
    dice = Random(f"service {seed}")
    family = dice.choice(["llama", "qwen3", *ROUTED, *HYBRID])
    routed = family not in ("llama", "qwen3")
    tp = dice.choice([1, 2, 4, 8])
    pp = dice.choice([1, 1, 2, 3, 4])
    dp = dice.choice([1, 2, 4, 8, 16]) if routed else 1
    if tp * pp > 8 and dp > 2:
        dp = 2
    while not _fits(tp, pp, dp):
        pp = dice.choice([1, 2, 4])
    gpus = tp * pp * dp
    precision = dice.choice(["bf16", "bf16", "fp16", "fp8"])
    layout: Spec = {"tp": tp, "pp": pp, "replicas": _replicas(dice, gpus)}
    if routed:
        layout["dp"] = dp
        layout["ep"] = dice.choice(["on", "off"]) if tp * dp > 1 else "off"
    hosts = max(-(-gpus // GPUS_PER_NODE), 1)
    engines = layout["replicas"]
    nodes = hosts * engines if gpus > GPUS_PER_NODE else -(-engines * gpus // GPUS_PER_NODE)
    experts = 16 * dice.choice([1, 2, 4, 8])
    if routed and layout["ep"] == "on" and tp * dp <= experts and dice.random() < 0.3:
        layout["redundant_experts"] = -experts % (tp * dp) + tp * dp * dice.choice([0, 1])
    spec: Spec = {
        "parc": 1,
        "name": f"service-{seed}",
        "model": _model(dice, family, (tp, pp, dp), experts),
        "cluster": {"node": dice.choice(["hgx-h100", "hgx-h200", "dgx-b200"]), "nodes": nodes},
        "job": _job(dice, precision),
        "layout": layout,
        "goals": {"memory_headroom": dice.choice(["8%", "10%", "15%"])},
        "launch": {"load_balancer": _balancer(dice, (tp, pp, dp))},
        "emit": ["vllm", "rankmap"],
    }
    if family != "deepseek_v3" and pp > 2 and dice.random() < 0.5:
        spec["layout"]["stage_layers"] = _stages(spec["model"]["layers"], pp)
    if family == "deepseek_v3" and tp > 1 and dice.random() < 0.3:
        spec["layout"]["dcp"] = dice.choice([n for n in (1, 2, 4, 8) if tp % n == 0])
    return spec


def _fits(tp: int, pp: int, dp: int) -> bool:
    """Return True if the engine fills hosts of 8 GPUs evenly."""
    gpus = tp * pp * dp
    if gpus <= GPUS_PER_NODE:
        return True
    return gpus % GPUS_PER_NODE == 0 and (8 % (tp * pp) == 0 or tp * pp % 8 == 0)


def _replicas(dice: Random, gpus: int) -> int:
    if gpus > GPUS_PER_NODE:
        return dice.choice([1, 1, 2])
    return dice.choice([1, 1, GPUS_PER_NODE // gpus, 2 * (GPUS_PER_NODE // gpus)])


def _balancer(dice: Random, degrees: tuple[int, int, int]) -> str:
    tp, pp, dp = degrees
    if dp == 1 or tp * pp > GPUS_PER_NODE:
        return dice.choice(["internal", "external"])
    return dice.choice(["internal", "internal", "hybrid", "external"])


def _stages(layers: int, pp: int) -> list[int]:
    """Return one layer less for both end stages, and the remaining layers for the middle stages."""
    ends = layers // pp - 1
    middle = layers - 2 * ends
    each = [middle // (pp - 2) + (k < middle % (pp - 2)) for k in range(pp - 2)]
    return [ends, *each, ends]


def _job(dice: Random, precision: str) -> Spec:
    seqs = dice.choice(["auto", 64, 256])
    job: Spec = {
        "kind": "serve",
        "traffic": {"input_tokens": 200, "output_tokens": 100, "concurrency": 64},
        "precision": precision,
        "kv_precision": dice.choice(["auto", "auto", "fp8"]),
        "max_model_len": dice.choice(["auto", 2048, 8192]),
        "max_num_seqs": seqs,
        "max_num_batched_tokens": dice.choice(["auto", 4096, 8192]),
        "checkpoint": "/models/random",
        "block_tokens": dice.choice([16, 32, 64]),
    }
    if precision == "fp8" and dice.random() < 0.3:
        job["quantize"] = True
    return job


def _model(dice: Random, family: str, degrees: tuple[int, int, int], experts: int) -> Spec:
    tp, pp, dp = degrees
    heads = 8 * dice.choice([1, 2, 4, 8])
    model: Spec = {
        "name": "random",
        "family": family,
        "layers": dice.randint(2 * pp, 8 * pp),
        "hidden": 256 * dice.randint(4, 16),
        "ffn": 128 * 8 * dice.randint(1, 8),
        "heads": heads,
        "kv_heads": dice.choice([n for n in (1, 2, 4, 8) if heads % n == 0]),
        "head_dim": 128,
        "vocab": dice.randint(1000, 130_000),
        "position": {"max_positions": 32768},
    }
    if family.startswith("qwen3"):
        model["qk_norm"] = "head"
    if family in (*ROUTED, *HYBRID):
        width = 128 * max(tp * dp, 8) * dice.choice([1, 2])
        model["experts"] = {"count": experts, "top_k": 4, "size": width}
        model["ffn"] = 0
    if family == "deepseek_v3":
        del model["kv_heads"], model["head_dim"]
        model |= {"ffn": 128 * 8 * 4, "latent": {**LATENT, "v_dim": 128}}
        size = model["experts"]["size"]
        model["experts"] |= {"shared_size": size, "first_dense_layers": 1, "groups": 4}
        model["experts"] |= {"group_top_k": 2, "score_function": "sigmoid", "router_bias": "buffer"}
    return _hybrid(dice, model) if family in HYBRID else model


def _hybrid(dice: Random, model: Spec) -> Spec:
    """Return ``model`` with its layers other than attention, in a random order; heads and groups
    are divisible by 8.
    """
    if model["family"] == "qwen3_next":
        heads = 8 * dice.choice([1, 2])
        linear = {"key_heads": heads, "value_heads": heads * dice.choice([1, 2, 4])}
        model["experts"] |= {"shared_size": model["experts"]["size"], "shared_gate": True}
        return model | {
            "attention_gate": True,
            "linear_attention": {**linear, "key_dim": 128, "value_dim": 128},
        }
    model["layers"] = max(model["layers"], 3)
    letters = ["M", "E", "*", *dice.choices("ME*", weights=[4, 4, 1], k=model["layers"] - 3)]
    dice.shuffle(letters)
    shared = model["experts"]["size"] * dice.choice([0, 2])
    model["experts"] |= {"shared_size": shared, "score_function": "sigmoid"}
    model["experts"]["router_bias"] = "buffer"
    return model | {
        "pattern": "".join(letters),
        "gated": False,
        "activation": "relu2",
        "position": {"kind": "none", "max_positions": 32768},
        "mamba": {
            "heads": 8 * dice.choice([2, 4, 8]),
            "head_dim": 64,
            "state_size": dice.choice([64, 128]),
            "groups": dice.choice([1, 8]),
        },
    }
