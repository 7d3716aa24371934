"""Number format of the weights of a checkpoint, as its config.json states it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parc.compiler.catalog.huggingface.config_keys import format_value
from parc.compiler.ir.frozen import frozen

QUANTIZATION_FILE = "hf_quant_config.json"
"""File of ModelOpt next to a config.json that has no ``quantization_config``. vLLM reads it too."""
_KEYS = ("quantization_config", "compression_config")
"""Keys of the mapping that describes quantized weights; the second one is of early checkpoints of
compressed-tensors."""
_METHODS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4"}
"""``quant_method`` that has one number format -> precision of a serving job."""
_ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_NVFP4": "nvfp4", "W4A16_AWQ": "int4"}
"""``quant_algo`` of NVIDIA's ModelOpt -> precision of a serving job."""
_INTEGER_METHODS = ("gptq", "awq", "auto-round")
"""Methods whose key ``bits`` is the width of integer weights."""
_FORMATS = {("int", 4): "int4", ("float", 8): "fp8"}
"""Type and bits of weights, as compressed-tensors writes them -> precision of a serving job."""
_FLOAT_4_BIT = {16: "nvfp4", 32: "mxfp4"}
"""Weights per scale of 4-bit floats -> precision of a serving job."""
_QUARK_TYPES = {"fp8_e4m3": ("float", 8), "fp4": ("float", 4), "int4": ("int", 4)}
"""``dtype`` of weights that AMD's Quark writes -> type and bits."""
_LARGEST_PARTS = (".experts", "expert", "mlp", "ffn", "feed_forward")
"""Parts of layer names, those of the layers with most weights of a model first. Names of shared
experts contain only the second one."""


@frozen
class StatedFormat:
    """Format of quantized weights that the files of a checkpoint state."""

    precision: str
    """``job.precision`` that serves these weights; empty if there is no such value."""
    text: str
    """The statement in the words of the file: ``quant_method is 'gptq', bits is 3``."""
    fp8_cache: bool = False
    """True if the checkpoint has scales for a KV cache in fp8, which engines then use by default
    (vLLM, utils/torch_utils.py, get_kv_cache_quant_algo_string)."""


def checkpoint_precision(config: Mapping[str, Any]) -> StatedFormat | None:
    """Return the format of the quantized weights of a checkpoint.

    The result is None if ``config`` does not state that weights are quantized. If a checkpoint has
    several formats, the result is that of the experts, or else of the MLPs, which hold most
    weights.

    ``config`` is the content of config.json. Its ``quantization_config``, which may be inside the
    config of the text decoder, has the keys of the ``transformers`` quantizer that the checkpoint
    was written with (transformers, utils/quantization_config.py; compressed-tensors,
    quantization/quant_config.py; ModelOpt, export/quant_utils.py; Quark, as read by vLLM,
    quantization/quark/quark.py).
    """
    owner, quantized = _quantization_of(config)
    if not quantized:
        return None
    return StatedFormat(
        _precision(owner, quantized), _describe(quantized), _has_fp8_cache(quantized)
    )


def _quantization_of(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the config that describes quantized weights, and this description; empty if none."""
    # The whole config comes first. A vision encoder may be quantized, but it is not planned.
    nested = (one for one in config.values() if isinstance(one, Mapping) and "vocab_size" in one)
    for owner in (config, *nested):
        for key in _KEYS:
            found = owner.get(key)
            if isinstance(found, Mapping) and found:
                return owner, found
    return config, {}


def _precision(owner: Mapping[str, Any], quantized: Mapping[str, Any]) -> str:
    """Return the precision of a serving job for quantized weights; empty if there is none."""
    method = str(quantized.get("quant_method", ""))
    if method in _INTEGER_METHODS:
        integers = str(quantized.get("data_type", "int")).startswith("int")
        return "int4" if quantized.get("bits") == 4 and integers else ""
    if experts := quantized.get("moe_quant_algo"):
        return _ALGORITHMS.get(str(experts), "")
    if method == "fp8" and owner.get("expert_dtype") == "fp4":  # DeepSeek-V4
        return "mxfp4"
    if method == "quark":
        return _quark_format(quantized)
    return (
        _METHODS.get(method)
        or _ALGORITHMS.get(str(quantized.get("quant_algo", "")))
        or _format_of_largest_layers(quantized)
    )


def _format_of_largest_layers(quantized: Mapping[str, Any]) -> str:
    """Return the one format of all layers, or of those with most weights; empty if unclear."""
    layers = list(_layer_formats(quantized)) or list(_group_formats(quantized))
    for part in ("", *_LARGEST_PARTS):
        formats = {form for name, form in layers if part in name}
        if len(formats) == 1:
            return formats.pop()
        if part and formats:
            return ""
    return ""


def _layer_formats(quantized: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the precision of each layer that ModelOpt lists."""
    layers = quantized.get("quantized_layers")
    for name, layer in layers.items() if isinstance(layers, Mapping) else ():
        if isinstance(layer, Mapping):
            yield name, _ALGORITHMS.get(str(layer.get("quant_algo", "")), "")


def _group_formats(quantized: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the layers and the precision of each group of layers of compressed-tensors."""
    groups = quantized.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping) and isinstance(weights.get("num_bits"), int):
            kind = str(weights.get("type", "")), weights["num_bits"]
            yield str(group.get("targets", "")), _format_of_type(kind, weights)


def _quark_format(quantized: Mapping[str, Any]) -> str:
    """Return the precision of the layers that Quark does not list by name; empty if unclear."""
    default = quantized.get("global_quant_config")
    weights = default.get("weight") if isinstance(default, Mapping) else None
    if not isinstance(weights, Mapping):
        return ""
    return _format_of_type(_QUARK_TYPES.get(str(weights.get("dtype")), ("", 0)), weights)


def _format_of_type(kind: tuple[str, int], weights: Mapping[str, Any]) -> str:
    """Return the precision of weights of type and bits ``kind``; empty if there is none."""
    per_scale = weights.get("group_size")
    if kind == ("float", 4) and isinstance(per_scale, int):
        return _FLOAT_4_BIT.get(per_scale, "")
    return _FORMATS.get(kind, "")


def _has_fp8_cache(quantized: Mapping[str, Any]) -> bool:
    """Return True if ``quantized`` states a KV cache in 8-bit floats."""
    scheme = quantized.get("kv_cache_scheme") or quantized.get("kv_cache_quant_algo")
    if isinstance(scheme, Mapping):
        return (scheme.get("type"), scheme.get("num_bits")) == ("float", 8)
    return scheme == "FP8"


def _describe(quantized: Mapping[str, Any]) -> str:
    """Return the keys of ``quantized`` that state the format, with their values."""
    keys = ("quant_method", "quant_algo", "moe_quant_algo", "format", "bits")
    named = [(key, quantized[key]) for key in keys if quantized.get(key) is not None]
    return ", ".join(f"{key} is {format_value(value)}" for key, value in named)
