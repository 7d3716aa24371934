"""Import of model, layout and job from Megatron-LM's flags in an arguments file or a script.

Flags: NVIDIA/Megatron-LM, megatron/training/arguments.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.launch_files.import_pattern import derive_hybrid, is_own_stack
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.tools.importers.flags import (
    Flag,
    import_table,
    report_unknown,
    take_flags,
    written_flags,
)
from parc.compiler.tools.importers.formats import Importers, LaunchLines
from parc.compiler.tools.importers.shell_words import Word, shell_words
from parc.compiler.topology.readers.fragment import Fragment
from parc.compiler.topology.readers.reader_state import Reading
from parc.compiler.topology.readers.registry import Format

if TYPE_CHECKING:
    from parc.backends.shared.field_table import FieldRow

TABLE = import_table(PACKAGE)
OPTIMIZER: dict[str, float | str] = {
    "min_learning_rate": 0.0,
    "warmup_steps": 0,
    "lr_decay": "linear",
    "weight_decay": 0.01,
    "adam_beta2": 0.999,
}
"""``job`` field -> Megatron's default, if the default of a spec differs."""

LLAMA3_CONTEXT = 8192
"""Original context length of --use-rope-scaling, a constant (rotary_pos_embedding.py)."""

WHOLE_SPLIT = "100,0,0"
"""Value of --split that PARC emits: all data is for training."""

LATENT_CONTEXT = 4096
"""Default of MLATransformerConfig.original_max_position_embeddings."""


def read_megatron_args(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the layout, job and model that Megatron's flags set; None if the text is unusable.

    Flags that PARC sets itself are listed in one note.
    """
    reading = Reading(text, name, sink)
    read_words(shell_words(text, name), reading)
    if not reading.spec and reading.sound:
        finding = Finding(
            "this file contains no flag of Megatron",
            help="expected flags such as --tensor-model-parallel-size 8",
        )
        reading.refuse("I02", finding, reading.span())
    return reading.fragment()


def read_words(words: list[Word], reading: Reading) -> None:
    """Add the spec fields that Megatron's flags in ``words`` set to the fragment in ``reading``."""
    from parc.backends.shared.field_table import flag_table

    rows = {row.setting: row for row in flag_table("parc.backends.megatron").rows}
    # take_flags fills reading.spec, and returns the flags that have no row in the table.
    unknown = take_flags(written_flags(words, TABLE.rows), TABLE.rows, reading)
    _derive_fields(reading)
    decided = [flag for flag in unknown if _is_set_by_parc(flag, rows.get(flag.name))]
    if decided:
        names = ", ".join(dict.fromkeys(flag.name for flag in decided))
        reading.notes.append(f"set by PARC: {names}")
    rest = [flag for flag in unknown if flag not in decided]
    report_unknown(rest, "Add it to launch.args if you still need it.", reading)


def _is_set_by_parc(flag: Flag, row: FieldRow | None) -> bool:
    """Return True if PARC would emit ``flag`` itself, computed from the imported fields.

    False for flags on the model, which PARC cannot compute.
    """
    if flag.name in TABLE.implied or is_own_stack(flag):
        return True
    if row is not None and row.free:
        return [word.text for word in flag.values] in ([row.constant], [WHOLE_SPLIT])
    return row is not None and row.group not in ("model", "experts")


def _derive_fields(reading: Reading) -> None:
    """Set the spec fields that depend on several flags, or on the absence of a flag."""
    spec = reading.spec
    if not spec:
        return
    derive_hybrid(reading)
    layout, job = spec.setdefault("layout", {}), spec.setdefault("job", {})
    _derive_precision(spec.pop("precision", {}), job)
    _add_optimizer_defaults(spec.pop("wsd", {}).get("style", "exponential"), job, reading)
    flags = spec.pop("bias", {})
    _derive_vpp(spec.pop("virtual", {}).get("layers"), layout, spec)
    _derive_expert_layers(spec.pop("pattern", {}).get("text", ""), spec)
    # Absent flags mean off in Megatron, but "chosen by PARC" in a spec: therefore off is set
    # explicitly.
    layout.setdefault("zero_stage", 0)
    layout.setdefault("sequence_parallel", False)
    _shorten_recompute(layout)
    model = spec.get("model")
    if model:
        # Megatron's linear layers have biases unless --disable-bias-linear is given.
        biased = not flags.get("none", False)
        model |= {"mlp_bias": biased, "attention_output_bias": biased}
        model["qkv_bias"] = biased or model.get("qkv_bias", False)
        model["tied_embeddings"] = not flags.get("untied", False)
        model.setdefault("gated", False)
        # Defaults of Megatron that differ from those of a spec are written out.
        model.setdefault("norm", "layernorm")
        if not model["gated"]:
            model.setdefault("activation", "gelu_tanh")
        if "ffn" not in model and not model["gated"] and "hidden" in model:
            model["ffn"] = 4 * model["hidden"]
        _tidy_model(model)
    for section in ("layout", "job"):
        if not spec[section]:
            del spec[section]


def _tidy_model(model: dict[str, Any]) -> None:
    """Remove model sizes that Megatron requires but does not use; add position defaults."""
    experts = model.get("experts", {})
    if "latent" in model:
        # Latent attention has its own sizes; these flags are required or implied, but not used.
        for key in ("head_dim", "kv_heads", "qk_norm"):
            model.pop(key, None)
    if experts and model.get("ffn"):
        experts.setdefault("size", model["ffn"])
    all_routed = not experts.get("first_dense_layers") and experts.get("every", 1) == 1
    if experts and all_routed and "-" not in model.get("pattern", ""):
        model["ffn"] = 0
    position = model.get("position", {})
    if position.get("scaling") == "llama3":
        position.setdefault("original_max_positions", LLAMA3_CONTEXT)
    if position.get("kind") == "yarn" and "latent" in model:
        position.setdefault("original_max_positions", LATENT_CONTEXT)


def _derive_precision(written: dict[str, Any], job: dict[str, Any]) -> None:
    if "fp4" in written:
        job["precision"] = "nvfp4"
    elif "fp8" in written:
        job["precision"] = "mxfp8" if written.get("recipe") == "mxfp8" else "fp8"


def _add_optimizer_defaults(wsd_style: str, job: dict[str, Any], reading: Reading) -> None:
    """Add Megatron's optimizer defaults to ``job`` if the launch sets a learning rate.

    Report a WSD decay that a spec cannot express (I04).
    """
    if job.get("lr_decay") == "wsd" and wsd_style != "linear":
        message = f"not carried over: {wsd_style[:40]} decay of the WSD schedule"
        found = Finding(message, help="in a spec, lr_decay wsd always means a linear decay")
        reading.say("I04", found, reading.spans["job.lr_decay"])
    if "learning_rate" in job:
        for name, value in OPTIMIZER.items():
            job.setdefault(name, value)


def _derive_vpp(layers: int | None, layout: dict[str, Any], spec: dict[str, Any]) -> None:
    """Set vpp from the layers per virtual stage: vpp = layers / (pp x layers per virtual stage)."""
    total = spec.get("model", {}).get("layers")
    # vpp stays unset if the layers are not divisible.
    if layers and total and total % (layout.get("pp", 1) * layers) == 0:
        layout.setdefault("vpp", total // (layout.get("pp", 1) * layers))


def _derive_expert_layers(text: str, spec: dict[str, Any]) -> None:
    """Read --moe-layer-freq, such as ``2`` (every 2nd layer has experts) or ``([0]*3+[1]*58)``.

    The second form means that the first 3 layers are dense.
    """
    experts = spec.get("model", {}).get("experts")
    leading = re.fullmatch(r"\(?\[0\]\*([0-9]{1,4})\+\[1\]\*[0-9]{1,4}\)?", text)
    if experts and leading:
        experts["first_dense_layers"] = int(leading[1])
    elif experts and re.fullmatch(r"[1-9][0-9]{0,3}", text):
        experts["every"] = int(text)


def _shorten_recompute(layout: dict[str, Any]) -> None:
    """Write ``layout.recompute`` as a single word if only its granularity is set.

    The word is ``none`` if there are no recompute flags.
    """
    recompute = layout.get("recompute", {})
    if "granularity" not in recompute:
        layout["recompute"] = "none"
    elif len(recompute) == 1:
        layout["recompute"] = recompute["granularity"]


def starts_megatron(words: list[Word]) -> bool:
    """Return True if ``words`` contain a flag of Megatron."""
    return not TABLE.rows.keys().isdisjoint(word.text.partition("=")[0] for word in words)


IMPORTERS = Importers(
    {
        "megatron-args": Format(
            read_megatron_args,
            "arguments of Megatron-LM, or a script with them",
            (r"--(tensor|pipeline)-model-parallel-size\b", r"--num-attention-heads\b"),
        )
    },
    LaunchLines(starts_megatron, read_words),
)
