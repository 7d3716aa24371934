"""Import of the number format of the weights from the command of a server.

The checkpoint determines the format, unless ``--quantization`` makes the engine convert it.
``--dtype`` is the format of the activations, and of weights only if they are not quantized.
Sources: vLLM, config/model.py, ``_verify_quantization``; SGLang, srt/configs/model_config.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from parc.compiler.tools.importers.flags import LaunchFlag, set_spec_field
from parc.compiler.tools.lint.complete_facts import checkpoint_format
from parc.compiler.topology.readers.reader_state import Reading

TYPE, METHOD = "--dtype", "--quantization"
_TYPES: Mapping[str, str] = {"bfloat16": "bf16", "half": "fp16", "float16": "fp16"}
"""Value of --dtype -> ``job.precision`` of weights that are not quantized."""
_METHODS: Mapping[str, str] = {
    **dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin"), "int4"),
    **dict.fromkeys(("modelopt", "modelopt_fp8", "fbgemm_fp8"), "fp8"),
    **dict.fromkeys(("modelopt_fp4", "nvfp4"), "nvfp4"),
    "mxfp4": "mxfp4",
}
"""Value of --quantization that names the format of the checkpoint -> ``job.precision``."""
UNKNOWN = ""
"""Format of quantized weights that a spec cannot express, or that is not known."""
_EIGHT_BIT = re.compile(r"int8|8[-_]?bits?\b|w8a", re.IGNORECASE)
"""Matches the name of an integer checkpoint that is not 4-bit."""


def read_weight_format(flags: list[LaunchFlag], reading: Reading) -> list[LaunchFlag]:
    """Set ``job.precision`` and ``job.quantize``; return the flags that a spec cannot express.

    ``reading`` must contain the checkpoint, if the command names one.
    """
    named = reading.spec.get("job", {}).get("checkpoint", "")
    stated = checkpoint_format(named) if named else None
    rest = [flag for flag in flags if flag.name not in (TYPE, METHOD)]
    form = None if stated == "bf16" else stated
    for flag in (one for one in flags if one.name == METHOD and one.value not in ("none", "null")):
        if flag.value == "fp8" and form is None:
            set_spec_field(reading, "job.quantize", True, flag)
        found = form or _format_of_method(flag.value, named)
        rest += [] if found == _format_of_method(flag.value, named) != UNKNOWN else [flag]
        form = found
    if form:
        reading.spec.setdefault("job", {})["precision"] = form
    for flag in (one for one in flags if one.name == TYPE and one.value != "auto"):
        precision = _TYPES.get(flag.value)
        if form is not None or precision is None:
            rest += [] if precision == "bf16" else [flag]  # PARC writes bfloat16
            continue
        set_spec_field(reading, "job.precision", precision, flag)
        if named and stated is None:
            reading.notes.append(
                f"job.precision is that of {TYPE}; change it if {named} is a quantized checkpoint"
            )
    return rest


def _format_of_method(method: str, checkpoint: str) -> str:
    """Return the format of weights that ``method``, a value of --quantization, quantizes."""
    form = "fp8" if method == "fp8" else _METHODS.get(method, UNKNOWN)
    return UNKNOWN if form == "int4" and _EIGHT_BIT.search(checkpoint) else form
