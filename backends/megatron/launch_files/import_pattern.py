"""Flags of Megatron about layers that differ in what mixes tokens, as a model of the spec.

Source: NVIDIA/Megatron-LM, megatron/training/arguments.py;
megatron/core/transformer/transformer_config.py for what a flag means where it is not given.
"""

from __future__ import annotations

import re
from typing import Any

from parc.backends.megatron.stages.layout_string import Stage, spell
from parc.compiler.diagnostics import Finding
from parc.compiler.tools.importers.flags import Flag
from parc.compiler.topology.readers.reading import Reading

LINEAR = {"key_heads": 16, "value_heads": 32, "key_dim": 128, "value_dim": 128}
MAMBA = {"head_dim": 64, "state_size": 128, "groups": 8}
EXPANSION = 2
"""Inside of a Mamba layer over the hidden width, where --mamba-num-heads is not given."""
STACKS = ("megatron.core.models.hybrid.", "megatron.core.models.mamba.")
"""Modules of Megatron's own that describe the layers of a pattern."""

STAGES = tuple(
    f"layout.{name}"
    for name in (
        "vpp",
        "first_stage_layers",
        "last_stage_layers",
        "count_embedding",
        "count_loss",
    )
)
"""Fields about stages that a pattern with bars leaves nothing to."""


def is_own_stack(flag: Flag) -> bool:
    """Whether ``flag`` is a --spec that says what the pattern says already."""
    return flag.name == "--spec" and bool(flag.values) and flag.values[0].text.startswith(STACKS)


def derive_hybrid(reading: Reading) -> None:
    """Put linear attention, Mamba layers and the pattern where the spec has them."""
    spec = reading.spec
    variant, letters = spec.pop("variant", {}), spec.pop("letters", {}).get("text")
    model = spec.pop("model", {})
    if letters is not None:
        _letters(letters, model, reading)
    if "M" not in model.get("pattern", ""):
        model.pop("mamba", None)
    if "kind" in variant:
        _linear(model.setdefault("linear_attention", {}), variant.get("every", ""))
    else:
        model.pop("linear_attention", None)
    if model:
        spec["model"] = model


def _linear(linear: dict[str, Any], every: str) -> None:
    """Fill in Megatron's own sizes, and read ``--linear-attention-freq``."""
    linear |= {key: size for key, size in LINEAR.items() if key not in linear}
    if _every(every):
        linear["full_attention_every"] = _every(every)


def _every(text: str) -> int:
    """``4``, or ``([1]*3+[0])*12``: every fourth layer has attention; 0 for what is neither."""
    if re.fullmatch(r"[1-9][0-9]{0,3}", text):
        return int(text)
    found = re.fullmatch(r"\(\[1\]\*([0-9]{1,4})\+\[0\](?:\*1)?\)\*[0-9]{1,4}", text)
    return int(found[1]) + 1 if found else 0


def _letters(text: str, model: dict[str, Any], reading: Reading) -> None:
    """A pattern as a model, and its bars as a layout of the stages."""
    span = reading.spans["letters.text"]
    letters = text.replace("|", "")
    if not re.fullmatch(r"[M*E-]+", letters):
        finding = Finding(
            f"not carried over: --hybrid-layer-pattern {text[:40]}",
            help="model.pattern has the letters M * - E, and no layers that predict",
        )
        reading.say("I04", finding, span)
        return
    model |= {"pattern": letters, "layers": len(letters)}
    said = ["model.pattern", "model.layers"]
    if "|" in text:
        counts = [len(stage) for stage in text.split("|")]
        last = len(counts) - 1
        stages = tuple(Stage(k == 0, n, 0, k == last) for k, n in enumerate(counts))
        reading.spec.setdefault("layout", {})["pipeline_layout"] = spell(stages)
        said.append("layout.pipeline_layout")
        reading.spans = {**dict.fromkeys(STAGES, span), **reading.spans}
    reading.spans |= dict.fromkeys(said, span)
    if "M" in letters:
        _mamba(model)


def _mamba(model: dict[str, Any]) -> None:
    mamba = model.setdefault("mamba", {})
    mamba |= {key: size for key, size in MAMBA.items() if key not in mamba}
    if "heads" not in mamba and "hidden" in model:
        mamba["heads"] = EXPANSION * model["hidden"] // mamba["head_dim"]
