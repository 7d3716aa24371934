"""Number format of the weights of a checkpoint, as its config.json states it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_METHODS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4"}
"""``quant_method`` that has one number format -> precision of a serving job."""
_ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_AWQ": "int4"}
"""``quant_algo`` of NVIDIA's ModelOpt -> precision of a serving job."""
_FORMATS = {("int", 4): "int4", ("float", 8): "fp8"}
"""Type and bits of weights, as compressed-tensors writes them -> precision of a serving job."""


def checkpoint_precision(config: Mapping[str, Any]) -> str | None:
    """Return the ``job.precision`` that serves the weights of a checkpoint.

    The result is empty for quantized weights without such a value, and None if ``config`` does not
    say that weights are quantized.

    ``config`` is the content of config.json. Its ``quantization_config`` has the keys of the
    ``transformers`` quantizer that the checkpoint was written with (transformers,
    utils/quantization_config.py; compressed-tensors, quantization/quant_config.py; ModelOpt,
    export/quant_utils.py).
    """
    quantized = config.get("quantization_config")
    if not isinstance(quantized, Mapping) or not quantized:
        return None
    method = str(quantized.get("quant_method", ""))
    if method in ("gptq", "awq"):
        return "int4" if quantized.get("bits") == 4 else ""
    by_algorithm = _ALGORITHMS.get(str(quantized.get("quant_algo", "")), "")
    formats = {_FORMATS.get(weights, "") for weights in _weight_formats(quantized)}
    by_format = formats.pop() if len(formats) == 1 else ""
    return _METHODS.get(method) or by_algorithm or by_format


def _weight_formats(quantized: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield (type, bits) of the weights of each group of layers of compressed-tensors."""
    groups = quantized.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping) and isinstance(weights.get("num_bits"), int):
            yield str(weights.get("type", "")), weights["num_bits"]
