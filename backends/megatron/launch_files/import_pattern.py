"""Import flags of Megatron on models whose layers have different token mixers.

Source: NVIDIA/Megatron-LM, megatron/training/arguments.py;
megatron/core/transformer/transformer_config.py for the defaults of flags.
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
"""Inner width of a Mamba layer per hidden size, if --mamba-num-heads is not given."""
STACKS = ("megatron.core.models.hybrid.", "megatron.core.models.mamba.")
"""Modules of Megatron that --spec can name for models with a layer pattern."""

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
"""Fields on stages that have no effect next to a pattern with bars."""


def is_own_stack(flag: Flag) -> bool:
    """Return True if ``flag`` is a --spec that only repeats the pattern."""
    return flag.name == "--spec" and bool(flag.values) and flag.values[0].text.startswith(STACKS)


def derive_hybrid(reading: Reading) -> None:
    """Move linear attention, Mamba layers and the pattern to their fields of the spec."""
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
    """Add Megatron's default sizes, and read ``--linear-attention-freq``."""
    linear |= {key: size for key, size in LINEAR.items() if key not in linear}
    if _every(every):
        linear["full_attention_every"] = _every(every)


def _every(text: str) -> int:
    """Return 4 for ``4`` and for ``([1]*3+[0])*12``: every 4th layer has attention. Else 0."""
    if re.fullmatch(r"[1-9][0-9]{0,3}", text):
        return int(text)
    found = re.fullmatch(r"\(\[1\]\*([0-9]{1,4})\+\[0\](?:\*1)?\)\*[0-9]{1,4}", text)
    return int(found[1]) + 1 if found else 0


def _letters(text: str, model: dict[str, Any], reading: Reading) -> None:
    """Read a pattern as the layers of the model, and its bars as pipeline stages."""
    span = reading.spans["letters.text"]
    letters = text.replace("|", "")
    if not re.fullmatch(r"[M*E-]+", letters):
        finding = Finding(
            f"not carried over: --hybrid-layer-pattern {text[:40]}",
            help="valid letters of model.pattern: M * - E; multi-token prediction is not supported",
        )
        reading.say("I04", finding, span)
        return
    model |= {"pattern": letters, "layers": len(letters)}
    given = ["model.pattern", "model.layers"]
    if "|" in text:
        counts = [len(stage) for stage in text.split("|")]
        last = len(counts) - 1
        stages = tuple(Stage(k == 0, n, 0, k == last) for k, n in enumerate(counts))
        reading.spec.setdefault("layout", {})["pipeline_layout"] = spell(stages)
        given.append("layout.pipeline_layout")
        reading.spans = {**dict.fromkeys(STAGES, span), **reading.spans}
    reading.spans |= dict.fromkeys(given, span)
    if "M" in letters:
        _mamba(model)


def _mamba(model: dict[str, Any]) -> None:
    mamba = model.setdefault("mamba", {})
    mamba |= {key: size for key, size in MAMBA.items() if key not in mamba}
    if "heads" not in mamba and "hidden" in model:
        mamba["heads"] = EXPANSION * model["hidden"] // mamba["head_dim"]
