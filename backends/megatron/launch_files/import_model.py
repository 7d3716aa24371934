"""Import of model sizes that depend on several of Megatron's flags, or on an absent flag."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from parc.compiler.tools.importers.flags import LaunchFlag
from parc.compiler.tools.importers.open_fields import set_defaults
from parc.compiler.topology.readers.reader_state import Reading

CLAMPED_GEGLU = {"quick": True, "offset": 1.0, "clamp": 7.0}
"""Values of three flags that together select the activation of gpt-oss, ``clamped_silu`` in a
spec."""
LLAMA3_CONTEXT = 8192
"""Context length before scaling that Megatron assumes for --use-rope-scaling: a constant in
rotary_pos_embedding.py."""

LATENT_CONTEXT = 4096
"""Default of MLATransformerConfig.original_max_position_embeddings."""

_COLLECTED = ("bias", "window", "geglu")
"""Names under which the import table collects flags that no field of a spec expresses alone."""


def derive_model(spec: dict[str, Any], dynamic: Collection[str]) -> None:
    """Set the fields of ``spec["model"]`` that depend on several flags or on absent flags.

    ``dynamic`` contains the paths of spec fields whose values are known only at run time.
    """
    _derive_expert_layers(spec.pop("pattern", {}).get("text", ""), spec)
    biases, window, geglu = (spec.pop(name, {}) for name in _COLLECTED)
    if model := spec.get("model"):
        _derive_biases(biases, model, dynamic)
        _derive_attention_window(window.get("text", ""), model)
        _derive_mlp(biases, geglu, model, dynamic)
        if "pattern.text" not in dynamic:
            _remove_unused_model_sizes(model)
        _add_position_defaults(model, dynamic)


def _derive_biases(biases: dict[str, Any], model: dict[str, Any], dynamic: Collection[str]) -> None:
    """Set which linear layers have biases; all have them unless --disable-bias-linear is given.

    ``biases`` contains the values of the flags that the import table collects under this name.
    """
    if "none" not in biases and "model.mlp_bias" in dynamic:
        return
    biased = not biases.get("none", False)
    model |= {"mlp_bias": biased, "attention_output_bias": biased}
    model["qkv_bias"] = biased or model.get("qkv_bias", False)
    if biased and "experts" in model:
        model["experts"]["bias"] = True
        model["experts"].setdefault("router_bias", "parameter")


def _derive_mlp(
    biases: dict[str, Any],
    geglu: dict[str, Any],
    model: dict[str, Any],
    dynamic: Collection[str],
) -> None:
    """Set norm, activation and MLP width of ``model``, and whether its embeddings are tied.

    ``biases`` and ``geglu`` contain the values of the flags that the import table collects under
    these names.
    """
    swiglu = model.get("gated", False)
    if geglu == CLAMPED_GEGLU:
        model |= {"gated": True, "activation": "clamped_silu"}
    if "untied" in biases or "model.tied_embeddings" not in dynamic:
        model["tied_embeddings"] = not biases.get("untied", False)
    # Defaults of Megatron that differ from the defaults of a spec are written out.
    set_defaults(model, "model", {"gated": False, "norm": "layernorm"}, dynamic)
    if not model.get("gated", True):
        # Only the kernel that fuses GELU with a bias has its tanh form.
        fused = model["mlp_bias"] and not biases.get("unfused", False)
        activation = "gelu_tanh" if fused else "gelu"
        set_defaults(model, "model", {"activation": activation}, dynamic)
    if "hidden" in model and "gated" in model:
        hidden = model["hidden"]
        # arguments.py, validate_args: about as many weights as without a gate
        width = hidden * 8 // 3 // 64 * 64 if swiglu else 4 * hidden
        set_defaults(model, "model", {"ffn": width}, dynamic)


def _derive_attention_window(text: str, model: dict[str, Any]) -> None:
    """Set the attention window from the value of --window-size, such as ``(4095,0)``.

    In a spec this example is a window of 4,096, because the window of a spec includes the token
    itself.
    """
    match = re.fullmatch(r"\(?([0-9]{1,9}), ?0\)?", text)
    if match:
        model["window"] = int(match[1]) + 1


def _remove_unused_model_sizes(model: dict[str, Any]) -> None:
    """Remove or replace model sizes that Megatron requires or implies, but does not use."""
    experts = model.get("experts", {})
    if "latent" in model:
        # Latent attention has its own sizes, and projections without biases
        # (transformer/multi_latent_attention.py).
        for key in ("head_dim", "kv_heads", "qk_norm", "qkv_bias"):
            model.pop(key, None)
    if experts and model.get("ffn"):
        experts.setdefault("size", model["ffn"])
    all_routed = not experts.get("first_dense_layers") and experts.get("every", 1) == 1
    if experts and all_routed and "-" not in model.get("pattern", ""):
        model["ffn"] = 0


def _add_position_defaults(model: dict[str, Any], dynamic: Collection[str]) -> None:
    """Add Megatron's defaults of position embeddings that differ from those of a spec."""
    position = model.get("position", {})
    if "latent" not in model:
        # The default of Megatron, which has another meaning for latent attention.
        set_defaults(position, "model.position", {"kind": "learned"}, dynamic)
        model |= {"position": position} if position else {}
    if position.get("scaling") == "llama3":
        position.setdefault("original_max_positions", LLAMA3_CONTEXT)
    if position.get("kind") == "yarn" and "latent" in model:
        position.setdefault("original_max_positions", LATENT_CONTEXT)


def derive_expert_interval(flags: Collection[LaunchFlag], reading: Reading) -> None:
    """Set which layers have experts in Megatron-DeepSpeed, if no flag does.

    The default of its ``--expert-interval`` is 2: every second layer has experts
    (Megatron-DeepSpeed, megatron/arguments.py).
    """
    names = {flag.name for flag in flags}
    experts = reading.spec.get("model", {}).get("experts", {})
    if "--deepspeed" in names and "count" in experts and "--expert-interval" not in names:
        experts["every"] = 2
        reading.notes.append("every second layer has experts, the default of Megatron-DeepSpeed")


def _derive_expert_layers(text: str, spec: dict[str, Any]) -> None:
    """Set which layers have experts, from the value of --moe-layer-freq.

    ``2`` means that every 2nd layer has experts. ``([0]*3+[1]*58)`` means that all layers except
    the first 3 have experts.
    """
    experts = spec.get("model", {}).get("experts")
    text = text.strip("'")
    leading = re.fullmatch(r"\(?\[0\]\*([0-9]{1,4})\+\[1\]\*[0-9]{1,4}\)?", text)
    if experts and leading:
        experts["first_dense_layers"] = int(leading[1])
    elif experts and re.fullmatch(r"[1-9][0-9]{0,3}", text):
        experts["every"] = int(text)
