"""Random specs for Megatron, seeded: valid ones with every parallelism and feature, and variations.

A spec is a mapping as a user would write it; it passes through the whole compiler.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.hyperparameters import hyperparameters

Spec = dict[str, Any]
NODES = {"bf16": "dgx-h100", "fp16": "dgx-a100", "fp8": "dgx-h100", "mxfp8": "dgx-b200"}
NODES |= {"nvfp4": "dgx-b200"}
GPUS_PER_NODE = 8


@dataclass(frozen=True)
class Grid:
    """Parallel sizes of a valid layout."""

    tp: int
    cp: int
    pp: int
    dp: int
    ep: int
    etp: int
    vpp: int

    @property
    def world(self) -> int:
        return self.tp * self.cp * self.pp * self.dp


def valid_spec(seed: int) -> Spec:
    """Return a spec that should compile, the same one for the same seed."""
    dice = Random(f"legal {seed}")
    routed = dice.random() < 0.5
    grid = _grid(dice, routed)
    precision = dice.choice(["bf16", "bf16", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"])
    micro_batch = dice.choice([1, 1, 2])
    pins = _pins(dice, grid, micro_batch, routed)
    model = _model(dice, grid, routed)
    if grid.cp > 1:
        others = [] if "latent" in model else ["all_gather"]
        pins["cp_comm"] = dice.choice(["auto", "p2p", *others, *_swaps(grid, model)])
    spec: Spec = {
        "parc": 1,
        "name": f"random-{seed}",
        "model": model,
        "cluster": {"node": NODES[precision], "nodes": grid.world // GPUS_PER_NODE},
        "job": {
            "sequence_length": 2 * grid.cp * grid.tp * 32 * dice.randint(1, 4),
            "global_batch": micro_batch * grid.dp * grid.pp * dice.randint(1, 4),
            "precision": precision,
            "gradient_precision": _gradients(dice, precision),
            **_dispatch(dice, pins, routed),
            **hyperparameters(seed, 1000),
        },
        "layout": pins,
        "emit": ["megatron"],
    }
    _add_recipe_settings(Random(f"recipe {seed}"), spec)
    return spec


def _add_recipe_settings(dice: Random, spec: Spec) -> None:
    """Add settings of recipes, loggers and checkpoints. They do not affect the layout."""
    job, precision = spec["job"], spec["job"]["precision"]
    if precision == "fp8":
        # Delayed scales exclude some modules of selective recompute.
        partly = isinstance(spec["layout"]["recompute"], dict)
        recipes = ["tensorwise", "blockwise", *([] if partly else ["delayed"])]
        job["fp8_recipe"] = dice.choice(recipes)
    if precision != "fp16" and dice.random() < 0.3:
        job["fused_loss"] = True
    if spec["layout"].get("sequence_parallel") is not False and dice.random() < 0.3:
        job["tp_overlap"] = True
    barred = ("full", "'moe'", "layernorm", "offload")
    if dice.random() < 0.4 and not any(one in str(spec["layout"]) for one in barred):
        spec["layout"]["cuda_graphs"] = _graphs(spec)
    if dice.random() < 0.4:
        job |= {"checkpoint_dir": "/save", "async_checkpoint": dice.random() < 0.5}
    if dice.random() < 0.3:
        job["data"] = ["0.5", "/data/a", "0.5", "/data/b"]
    if dice.random() < 0.3:
        spec["model"]["init_std"] = dice.choice([0.006, 0.0134])
    spec["launch"] = dice.choice(
        [
            {},
            {"logging": {"tensorboard": "/logs", "wandb": "project"}},
            {"profile": {"first_step": 4, "last_step": 6, "ranks": [0, 8]}},
            {"omit": ["--manual-gc", "--manual-gc-interval"]},
        ]
    )


def _graphs(spec: Spec) -> bool | str:
    """Return CUDA graphs of layers, or of a whole step for every second spec that allows it."""
    pins, job = spec["layout"], spec["job"]
    waits = pins["pp"] > 1 and pins["vpp"] == 1
    if "experts" in spec["model"] or job["precision"] == "fp16" or waits:
        return True
    return "full_iteration" if spec["model"]["layers"] % 2 else True


def _dispatch(dice: Random, pins: Spec, routed: bool) -> Spec:
    """Return a dispatcher, and overlap if pipeline and recompute allow it."""
    if not routed:
        return {}
    allowed = (pins["pp"] == 1 or pins["vpp"] > 1) and "full" not in str(pins["recompute"])
    dispatcher = dice.choice(["auto", "alltoall", "deepep", "hybridep"])
    return {"moe_dispatcher": dispatcher, "moe_overlap": allowed and dice.random() < 0.5}


def _grid(dice: Random, routed: bool) -> Grid:
    """Return parallel sizes that fill whole nodes."""
    tp, cp = dice.choice([1, 2, 4, 8]), dice.choice([1, 1, 2, 4])
    pp = dice.choice([1, 2, 3, 4, 4, 5, 6, 8])
    step = next(n for n in (1, 2, 4, 8) if tp * cp * pp * n % GPUS_PER_NODE == 0)
    dp = step * dice.choice([1, 2, 3, 4])
    ranks = tp * cp * dp
    pairs = [
        (ep, etp) for etp in {1, tp} for ep in (1, 2, 3, 4, 6, 8, 16, 32) if ranks % (ep * etp) == 0
    ]
    ep, etp = dice.choice(sorted(pairs)) if routed else (1, tp)
    vpp = dice.choice([1, 1, 2, 3, 4]) if pp > 1 else 1
    return Grid(tp, cp, pp, dp, ep, etp, vpp)


def _model(dice: Random, grid: Grid, routed: bool) -> Spec:
    """Return a small model that is divisible by the parallel sizes."""
    heads = grid.tp * dice.choice([1, 2, 4, 8])
    kv = dice.choice([n for n in range(1, heads + 1) if heads % n == 0 and _shares(n, grid.tp)])
    bias = not routed and dice.random() < 0.2
    model: Spec = {
        "name": "random",
        "family": "llama",
        "layers": dice.randint(grid.pp * grid.vpp, 8 * grid.pp * grid.vpp),
        "hidden": 256 * dice.randint(1, 8),
        "ffn": 64 * grid.tp * dice.randint(1, 8),
        "heads": heads,
        "kv_heads": kv,
        "head_dim": dice.choice([64, 128]),
        "vocab": dice.randint(1000, 130_000),
        "tied_embeddings": dice.random() < 0.3,
        "norm": dice.choice(["rmsnorm", "layernorm"]),
        "qk_norm": dice.choice(["none", "head"]),
        "position": _position(dice),
    }
    if bias:
        model |= {"qkv_bias": True, "attention_output_bias": True, "mlp_bias": True}
        model |= dice.choice([{}, {"gated": False, "activation": "gelu_tanh"}])
    elif dice.random() < 0.2:
        model["qkv_bias"] = True
    if not bias and dice.random() < 0.1:
        model |= {"gated": False, "activation": dice.choice(["gelu", "relu2"])}
    if routed:
        model["experts"] = _experts(dice, grid, model["layers"])
    if dice.random() < 0.2:
        model |= _latent(dice)
        del model["head_dim"], model["kv_heads"]
    if dice.random() < 0.2 and model["position"]["kind"] in ("rope", "none"):
        model["mtp_layers"] = 1
    return model


def _gradients(dice: Random, precision: str) -> str:
    return "bf16" if precision != "fp16" and dice.random() < 0.3 else "fp32"


def _shares(kv: int, tp: int) -> bool:
    return kv % tp == 0 or tp % kv == 0


def _position(dice: Random) -> Spec:
    choices: list[Spec] = [
        {"kind": "rope", "base": 500000},
        {"kind": "rope", "base": 10000, "percent": 0.5},
        {
            **{"kind": "rope", "scaling": "llama3", "scaling_factor": 8.0},
            "original_max_positions": 8192,
        },
        {"kind": "learned"},
        {"kind": "none"},
    ]
    return {"max_positions": 131_072, **dice.choice(choices)}


def _latent(dice: Random) -> Spec:
    """Return multi-head latent attention, which has as many key-value heads as heads."""
    latent = {"kv_lora_rank": 64, "qk_nope_dim": 64, "qk_rope_dim": 32, "v_dim": 64}
    if dice.random() < 0.5:
        latent["q_lora_rank"] = 96
    return {
        "latent": latent,
        "qk_norm": "none",
        "qkv_bias": False,
        "attention_output_bias": False,
        "mlp_bias": False,
        "gated": True,
        "activation": "silu",
        "position": {"kind": "rope", "max_positions": 131_072},
    }


def _experts(dice: Random, grid: Grid, layers: int) -> Spec:
    count = grid.ep * dice.choice([1, 2, 4])
    sigmoid = dice.random() < 0.4
    experts: Spec = {
        "count": count,
        "top_k": dice.randint(1, min(count, 8)),
        "size": 64 * grid.etp * dice.randint(1, 4),
        "score_function": "sigmoid" if sigmoid else "softmax",
        "pre_softmax": not sigmoid,
        "aux_loss_coefficient": dice.choice([0.0, 0.001]),
    }
    if dice.random() < 0.4:
        experts["shared_size"] = 64 * grid.tp * dice.randint(1, 4)
    if dice.random() < 0.3:
        experts["first_dense_layers"] = min(dice.randint(1, 3), layers - 1)
    if sigmoid and dice.random() < 0.5:
        experts["router_bias"] = "buffer"
    if count % 4 == 0 and dice.random() < 0.3:
        experts |= {"groups": 4, "group_top_k": 2, "top_k": min(2, count)}
    return experts


def _swaps(grid: Grid, model: Spec) -> list[str]:
    """Return the all-to-all modes of context parallelism whose sizes divide the heads of a
    tensor-parallel rank.
    """
    heads = model["heads"] // grid.tp
    keys = max(model.get("kv_heads", model["heads"]) // grid.tp, 1)
    levels = {"a2a": grid.cp, "a2a+p2p": 2 if grid.cp > 2 else 0}
    found = [name for name, n in levels.items() if n and heads % n == 0 and keys % n == 0]
    return [name for name in found if "latent" not in model or name != "a2a"]


def _pins(dice: Random, grid: Grid, micro_batch: int, routed: bool) -> Spec:
    pins: Spec = {"tp": grid.tp, "cp": grid.cp, "pp": grid.pp, "dp": grid.dp, "vpp": grid.vpp}
    pins["micro_batch"] = micro_batch
    if routed:
        pins |= {"ep": grid.ep, "etp": grid.etp}
    balanced = grid.tp * grid.cp == grid.ep * grid.etp
    if dice.random() < 0.3 and (balanced or grid.pp == 1):
        pins["order"] = "tp-cp-ep-pp-dp"
    pins["zero_stage"] = dice.choice([1, 1, 1, 0])
    if not routed and dice.random() < 0.1:
        pins["sequence_parallel"] = False
    pins["recompute"] = dice.choice(
        [
            "none",
            "full",
            "selective",
            {"granularity": "selective", "modules": ["mlp", "layernorm"]},
            {"granularity": "full", "method": "block", "layers": 1},
            {"granularity": "selective", "modules": ["moe_act"]} if routed else "none",
        ]
    )
    return pins


def variation(seed: int) -> Spec:
    """Return a valid spec with one or two numbers changed, which may make it invalid."""
    dice = Random(f"variation {seed}")
    spec = copy.deepcopy(valid_spec(seed))
    for _ in range(dice.choice([1, 1, 2])):
        _change(dice, spec)
    return spec


def _change(dice: Random, spec: Spec) -> None:
    """Apply a random change."""
    changes = (_degree, _degree, _degree, _width, _depth, _numbers, _stages, _order, _routing)
    dice.choice(changes)(dice, spec)


def _degree(dice: Random, spec: Spec) -> None:
    layout, axis = spec["layout"], dice.choice(["tp", "cp", "pp", "vpp", "dp"])
    layout[axis] = max(1, layout[axis] + dice.choice([-2, -1, 1, 2, 3]))


def _width(dice: Random, spec: Spec) -> None:
    model, layout = spec["model"], spec["layout"]
    field = dice.choice(["heads", "kv_heads", "ffn"])
    model[field] = max(1, model.get(field, 0) + dice.choice([-1, 1, 2, 3, 32]))
    if dice.random() < 0.3:
        layout["recompute"] = {"granularity": "selective", "modules": ["mla_up_proj", "moe_act"]}


def _depth(dice: Random, spec: Spec) -> None:
    spec["model"]["layers"] += dice.choice([-1, 1])
    choices = [{"count_embedding": True}, {"first_stage_layers": dice.randint(1, 9)}]
    spec["layout"] |= dice.choice(choices)


def _numbers(dice: Random, spec: Spec) -> None:
    job = spec["job"]
    field = dice.choice(["global_batch", "sequence_length"])
    job[field] += dice.randint(1, 70)


def _stages(dice: Random, spec: Spec) -> None:
    layout = spec["layout"]
    stages = layout["pp"] * layout["vpp"]
    layout["pipeline_layout"] = _string(dice, spec["model"]["layers"], stages)


def _order(dice: Random, spec: Spec) -> None:
    spec["layout"]["order"] = "tp-cp-ep-pp-dp"


def _routing(dice: Random, spec: Spec) -> None:
    experts, layout = spec["model"].get("experts"), spec["layout"]
    layout["ep"], layout["etp"] = dice.choice([2, 3, 4, 5, 8]), dice.choice([1, 2, 3])
    if experts and dice.random() < 0.5:
        experts["count"] = max(1, experts["count"] + dice.choice([-1, 1, 2]))
        experts["groups"] = dice.choice([1, 3])


def _string(dice: Random, layers: int, stages: int) -> str:
    """Return a pipeline layout string that is correct or nearly correct."""
    cuts = sorted(dice.randint(0, layers) for _ in range(stages - 1))
    counts = [b - a for a, b in zip([0, *cuts], [*cuts, layers], strict=True)]
    text = "E" + "|".join("t" * count for count in counts) + "L"
    return dice.choice([text, text, text + "|", text.replace("t", "tt", 1), text[1:], text + "m"])
