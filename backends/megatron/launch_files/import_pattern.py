"""Import of Megatron's flags for models whose layers have different token mixers.

Source: NVIDIA/Megatron-LM, megatron/training/arguments.py;
megatron/core/transformer/transformer_config.py for the defaults of flags.
"""

from __future__ import annotations

import re
from typing import Any

from parc.backends.megatron.stages.layout_string import Stage, format_layout_string
from parc.compiler.diagnostics import Finding
from parc.compiler.tools.importers.flags import LaunchFlag
from parc.compiler.topology.readers.reader_state import Reading

# Megatron's defaults of --linear-* and --mamba-* flags.
LINEAR = {"key_heads": 16, "value_heads": 32, "key_dim": 128, "value_dim": 128}
MAMBA = {"head_dim": 64, "state_size": 128, "groups": 8}
EXPANSION = 2
"""Inner width of a Mamba layer divided by the hidden size, if --mamba-num-heads is not given."""
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
"""Layout fields without effect if bars in the layer pattern define the stages."""


def is_megatron_hybrid_spec(flag: LaunchFlag) -> bool:
    """Return True if ``flag`` is ``--spec`` with Megatron's own layer spec for layer patterns."""
    return flag.name == "--spec" and bool(flag.values) and flag.values[0].text.startswith(STACKS)


def derive_hybrid(reading: Reading) -> None:
    """Move linear attention, Mamba layers and the layer pattern to their fields of the spec."""
    spec = reading.spec
    variant, letters = spec.pop("variant", {}), spec.pop("letters", {}).get("text")
    model = spec.pop("model", {})
    if letters is not None:
        _read_layer_pattern(letters, model, reading)
    if "M" not in model.get("pattern", ""):
        model.pop("mamba", None)
    if "kind" in variant:
        _derive_linear_attention(model.setdefault("linear_attention", {}), variant.get("every", ""))
    else:
        model.pop("linear_attention", None)
    if model:
        spec["model"] = model


def _derive_linear_attention(linear: dict[str, Any], every: str) -> None:
    """Add Megatron's default sizes of linear attention, and the interval of full attention.

    ``every`` is the value of ``--linear-attention-freq``.
    """
    linear |= {key: size for key, size in LINEAR.items() if key not in linear}
    if _full_attention_interval(every):
        linear["full_attention_every"] = _full_attention_interval(every)


def _full_attention_interval(text: str) -> int:
    """Return n if ``text`` gives every n-th layer full attention, else 0.

    For example, n is 4 for ``4`` and for ``([1]*3+[0])*12``.
    """
    if re.fullmatch(r"[1-9][0-9]{0,3}", text):
        return int(text)
    found = re.fullmatch(r"\(\[1\]\*([0-9]{1,4})\+\[0\](?:\*1)?\)\*[0-9]{1,4}", text)
    return int(found[1]) + 1 if found else 0


def _read_layer_pattern(text: str, model: dict[str, Any], reading: Reading) -> None:
    """Set the layers of the model and the pipeline stages from the layer pattern ``text``.

    Each letter is a layer, and each bar ends a stage.
    """
    span = reading.spans["letters.text"]
    letters = text.replace("|", "")
    if not re.fullmatch(r"[M*E-]+", letters):
        finding = Finding(
            f"not carried over: --hybrid-layer-pattern {text[:40]}",
            help="valid letters of model.pattern: M * - E; multi-token prediction is not supported",
        )
        reading.report("I04", finding, span)
        return
    model |= {"pattern": letters, "layers": len(letters)}
    given = ["model.pattern", "model.layers"]
    if "|" in text:
        counts = [len(stage) for stage in text.split("|")]
        last = len(counts) - 1
        # A spec has no bars in the pattern; the same stages are expressed as a layout string.
        stages = tuple(Stage(k == 0, n, 0, k == last) for k, n in enumerate(counts))
        reading.spec.setdefault("layout", {})["pipeline_layout"] = format_layout_string(stages)
        given.append("layout.pipeline_layout")
        reading.spans = {**dict.fromkeys(STAGES, span), **reading.spans}
    reading.spans |= dict.fromkeys(given, span)
    if "M" in letters:
        _derive_mamba(model)


def _derive_mamba(model: dict[str, Any]) -> None:
    mamba = model.setdefault("mamba", {})
    mamba |= {key: size for key, size in MAMBA.items() if key not in mamba}
    if "heads" not in mamba and "hidden" in model:
        mamba["heads"] = EXPANSION * model["hidden"] // mamba["head_dim"]
