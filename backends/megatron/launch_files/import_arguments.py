"""Import of model, layout and job from Megatron-LM's flags in an arguments file or a script.

Flags: NVIDIA/Megatron-LM, megatron/training/arguments.py.
"""

from __future__ import annotations

import re
from typing import Any

from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.launch_files.import_pattern import (
    derive_hybrid,
    is_megatron_hybrid_spec,
)
from parc.backends.megatron.launch_files.import_rest import (
    IN_SAMPLES,
    convert_sample_counts,
    derive_base,
    pin_megatron_defaults,
    report_flags_without_field,
    report_planned_value_differences,
    take_extra_arguments,
    values_of_flag,
)
from parc.backends.megatron.launch_files.import_sharding import derive_sharding
from parc.backends.megatron.launch_files.settings import SETTINGS, SIGNS
from parc.backends.megatron.programs import has_encoders, other_model_of
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.tools.importers.flags import (
    LAUNCHER,
    LaunchFlag,
    flags_in_statements,
    load_import_table,
    take_flags,
)
from parc.compiler.tools.importers.formats import BackendImporters, LaunchLines, importable_launches
from parc.compiler.tools.importers.launch_commands import framework_words
from parc.compiler.tools.importers.script_commands import (
    find_program_of_others,
    launch_words,
    read_script,
)
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.tools.importers.unread_parts import report_unread_parts
from parc.compiler.topology.readers.reader_state import Fragment, Reading
from parc.compiler.topology.readers.registry import FileFormat

TABLE = load_import_table(PACKAGE)
OPTIMIZER: dict[str, float | str] = {
    "min_learning_rate": 0.0,
    "warmup_steps": 0,
    "lr_decay": "linear",
    "weight_decay": 0.01,
    "adam_beta2": 0.999,
}
"""``job`` field -> Megatron's default, for fields that have another default in a spec."""

CLAMPED_GEGLU = {"quick": True, "offset": 1.0, "clamp": 7.0}
"""Values of three flags that together select the activation of gpt-oss, ``clamped_silu`` in a
spec."""
LLAMA3_CONTEXT = 8192
"""Context length before scaling that Megatron assumes for --use-rope-scaling: a constant in
rotary_pos_embedding.py."""

LATENT_CONTEXT = 4096
"""Default of MLATransformerConfig.original_max_position_embeddings."""


def read_megatron_args(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the layout, job and model that Megatron's flags set; None if the text is unusable.

    Flags that PARC adds in every plan are listed in one note.
    """
    reading = Reading(text, name, sink)
    words = launch_words(reading)
    other = find_program_of_others(words)
    if other is not None:
        finding = Finding(
            f"{other.text} is not a program of Megatron, although its flags are similar",
            label="PARC cannot import this program",
            help=f"PARC can import {importable_launches()}",
        )
        reading.report_error("I05", finding, other.span)
        return None
    if (program := next((word for word in words if other_model_of(word.text)), None)) is not None:
        finding = Finding(
            f"{program.text.rpartition('/')[2]} trains {other_model_of(program.text)}",
            label="PARC cannot describe the model of this program",
            help="PARC plans decoder-only models: pretrain_gpt.py or pretrain_hybrid.py",
        )
        reading.report_error("I05", finding, program.span)
        return None
    read_words(framework_words(words), reading)
    if reading.spec:
        if (program := next((one for one in words if has_encoders(one.text)), None)) is not None:
            encoders = f"the encoders that {program.text} trains"
            reading.leave_out(encoders, program.span, "the fragment describes only the decoder")
        read_script(words, reading)
        report_unread_parts(words, reading)
    if not reading.spec and reading.is_valid:
        finding = Finding(
            "this file contains no flag of Megatron",
            help="expected flags such as --tensor-model-parallel-size 8",
        )
        reading.report_error("I02", finding, reading.span())
    return reading.fragment()


def read_words(words: list[Word], reading: Reading) -> None:
    """Add the spec fields that Megatron's flags in ``words`` set to the fragment in ``reading``.

    Flags that PARC would write with another value are reported.
    """
    flags = read_spec_fields(words, reading)
    if reading.spec:
        report_planned_value_differences(flags, reading)


def read_spec_fields(words: list[Word], reading: Reading) -> list[LaunchFlag]:
    """Add the spec fields to ``reading`` like ``read_words``, and return the flags.

    The flags of a plan, which take a fifth of the time of a lint, are not computed.
    """
    flags = [
        flag
        for flag in flags_in_statements(words, TABLE.rows, whole=True)
        if flag.name.startswith("--") and flag.name.replace("_", "-") not in LAUNCHER
    ]
    for flag in flags:
        reading.account(flag.word.span)
    # take_flags fills reading.spec, and returns the flags that have no row in the table.
    unknown = take_flags(flags, TABLE.rows, reading)
    unknown = convert_sample_counts(unknown, reading)
    paths = {TABLE.rows[flag.name].path for flag in flags if flag.name in TABLE.rows}
    dynamic = {path for path in paths if path not in reading.spans}
    # A sample count that is not a whole number of steps is reported, and its field stays unset.
    dynamic |= {f"job.{IN_SAMPLES[flag.name]}" for flag in unknown if flag.name in IN_SAMPLES}
    _derive_spec_fields(reading, dynamic)
    _report_underived_flags(flags, reading)
    if not reading.spec:
        return flags
    unknown = [flag for flag in unknown if not is_megatron_hybrid_spec(flag)]
    rest = take_extra_arguments(unknown, (flag.name for flag in flags), reading)
    report_flags_without_field(rest, reading)
    return flags


def _derive_spec_fields(reading: Reading, dynamic: set[str]) -> None:
    """Set the spec fields that depend on several flags, or on the absence of a flag.

    ``dynamic`` contains the paths of spec fields whose values are known only at run time.
    """
    spec = reading.spec
    if not spec:
        return
    derive_hybrid(reading)
    layout, job = spec.setdefault("layout", {}), spec.setdefault("job", {})
    _derive_precision(spec.pop("precision", {}), job)
    derive_sharding(spec.pop("sharding", {}), dynamic, reading)
    derive_base(spec.pop("base", {}), job)
    _add_optimizer_defaults(spec.pop("wsd", {}).get("style", "exponential"), job, dynamic, reading)
    _derive_vpp(spec.pop("virtual", {}).get("layers"), layout, spec)
    _derive_expert_layers(spec.pop("pattern", {}).get("text", ""), spec)
    _derive_shared_weights(spec.pop("shards", {}), layout, reading)
    _derive_graphs(spec.pop("graphs", {}), layout, dynamic, reading)
    # Absent flags mean off in Megatron, but "chosen by PARC" in a spec: therefore off is set
    # explicitly.
    pin_megatron_defaults(layout, dynamic)
    _shorten_recompute(layout)
    biases, window, geglu = (spec.pop(name, {}) for name in ("bias", "window", "geglu"))
    if model := spec.get("model"):
        _derive_biases(biases, model)
        _derive_attention_window(window.get("text", ""), model)
        _derive_mlp(biases, geglu, model)
        _remove_unused_model_sizes(model)
        _add_position_defaults(model)
        if "model.position.kind" in dynamic and "position" in model:
            model["position"].pop("kind", None)
    for section in ("layout", "job"):
        if not spec[section]:
            del spec[section]


def _derive_biases(biases: dict[str, Any], model: dict[str, Any]) -> None:
    """Set which linear layers have biases; all have them unless --disable-bias-linear is given.

    ``biases`` contains the values of the flags that the import table collects under this name.
    """
    biased = not biases.get("none", False)
    model |= {"mlp_bias": biased, "attention_output_bias": biased}
    model["qkv_bias"] = biased or model.get("qkv_bias", False)
    if biased and "experts" in model:
        model["experts"]["bias"] = True
        model["experts"].setdefault("router_bias", "parameter")


def _derive_mlp(biases: dict[str, Any], geglu: dict[str, Any], model: dict[str, Any]) -> None:
    """Set norm, activation and MLP width of ``model``, and whether its embeddings are tied.

    ``biases`` and ``geglu`` contain the values of the flags that the import table collects under
    these names.
    """
    if geglu == CLAMPED_GEGLU:
        model |= {"gated": True, "activation": "clamped_silu"}
    model["tied_embeddings"] = not biases.get("untied", False)
    model.setdefault("gated", False)
    # Defaults of Megatron that differ from the defaults of a spec are written out.
    model.setdefault("norm", "layernorm")
    if not model["gated"]:
        # Only the kernel that fuses GELU with a bias has its tanh form.
        fused = model["mlp_bias"] and not biases.get("unfused", False)
        model.setdefault("activation", "gelu_tanh" if fused else "gelu")
    if "ffn" not in model and not model["gated"] and "hidden" in model:
        model["ffn"] = 4 * model["hidden"]


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
        # Latent attention has its own sizes.
        for key in ("head_dim", "kv_heads", "qk_norm"):
            model.pop(key, None)
    if experts and model.get("ffn"):
        experts.setdefault("size", model["ffn"])
    all_routed = not experts.get("first_dense_layers") and experts.get("every", 1) == 1
    if experts and all_routed and "-" not in model.get("pattern", ""):
        model["ffn"] = 0


def _add_position_defaults(model: dict[str, Any]) -> None:
    """Add Megatron's defaults of position embeddings that differ from those of a spec."""
    position = model.get("position", {})
    if "latent" not in model:
        # The default of Megatron, which has another meaning for latent attention.
        position.setdefault("kind", "learned")
        model["position"] = position
    if position.get("scaling") == "llama3":
        position.setdefault("original_max_positions", LLAMA3_CONTEXT)
    if position.get("kind") == "yarn" and "latent" in model:
        position.setdefault("original_max_positions", LATENT_CONTEXT)


def _derive_precision(written: dict[str, Any], job: dict[str, Any]) -> None:
    if "fp4" in written:
        job["precision"] = "nvfp4"
    elif "fp8" in written:
        # Without --fp8-recipe, Megatron's scales are delayed.
        recipe = written.get("recipe", "delayed")
        job["precision"] = "mxfp8" if recipe == "mxfp8" else "fp8"
        if recipe in ("delayed", "blockwise"):  # tensorwise is the default of a spec
            job["fp8_recipe"] = recipe


def _add_optimizer_defaults(
    wsd_style: str, job: dict[str, Any], dynamic: set[str], reading: Reading
) -> None:
    """Add Megatron's optimizer defaults to ``job`` if the launch sets a learning rate.

    ``dynamic`` contains the paths of spec fields that the launch sets to unknown values; they get
    no default. The function also reports a WSD decay that a spec cannot express (I04).
    """
    if job.get("lr_decay") == "wsd" and wsd_style != "linear":
        message = f"not carried over: {wsd_style[:40]} decay of the WSD schedule"
        found = Finding(message, help="in a spec, lr_decay wsd always means a linear decay")
        reading.report("I04", found, reading.spans["job.lr_decay"])
    if "learning_rate" in job or "job.learning_rate" in dynamic:
        for name, value in OPTIMIZER.items():
            if f"job.{name}" not in dynamic:
                job.setdefault(name, value)


def _derive_vpp(layers: int | None, layout: dict[str, Any], spec: dict[str, Any]) -> None:
    """Set vpp from the layers per virtual stage: vpp = layers / (pp x layers per virtual stage)."""
    total = spec.get("model", {}).get("layers")
    # vpp stays unset if the layers are not divisible.
    if layers and total and total % (layout.get("pp", 1) * layers) == 0:
        layout.setdefault("vpp", total // (layout.get("pp", 1) * layers))


def _derive_shared_weights(
    shards: dict[str, int], layout: dict[str, Any], reading: Reading
) -> None:
    """Set gtp and egtp, the quotients of Megatron's numbers of weight shards and tp or etp.

    A number that is not a multiple of the size is reported, because Megatron rejects it.
    """
    tp = layout.get("tp", 1)
    sizes = {"dense": ("gtp", "tp", tp), "expert": ("egtp", "etp", layout.get("etp", tp))}
    for key, (name, axis, size) in sizes.items():
        if key not in shards:
            continue
        count = shards[key]
        if size < 1 or count < size or count % size:
            text = f"{count} weight shards with {axis} {size}"
            hint = f"Megatron needs a multiple of {axis}; {name} is the quotient"
            reading.leave_out(text, reading.spans[f"shards.{key}"], hint)
        elif count > size:
            layout[name] = count // size


def _derive_graphs(
    written: dict[str, Any], layout: dict[str, Any], dynamic: set[str], reading: Reading
) -> None:
    """Set ``cuda_graphs`` from how and, for Megatron 0.17, what the launch captures."""
    if "graphs.kind" in dynamic:
        dynamic.add("layout.cuda_graphs")
    kind, scope = written.get("kind"), written.get("scope", ())
    if kind == "full_iteration" or (kind == "local" and "full_iteration" in scope):
        layout["cuda_graphs"] = "full_iteration"
    elif kind in ("none", "transformer_engine"):
        layout["cuda_graphs"] = kind != "none"
    elif kind is not None:
        text = f"--cuda-graph-impl {str(kind)[:40]}"
        hint = "PARC plans none, transformer_engine and full_iteration"
        reading.leave_out(text, reading.spans["graphs.kind"], hint)
    if "graphs.kind" in reading.spans:
        reading.spans["layout.cuda_graphs"] = reading.spans["graphs.kind"]


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


def _shorten_recompute(layout: dict[str, Any]) -> None:
    """Write ``layout.recompute`` as a single word if only its granularity is set.

    The word is ``none`` if there are no recompute flags.
    """
    recompute = layout.get("recompute", {})
    if "granularity" not in recompute:
        layout["recompute"] = "none"
    elif len(recompute) == 1:
        layout["recompute"] = recompute["granularity"]


def _report_underived_flags(flags: list[LaunchFlag], reading: Reading) -> None:
    """Report values of two flags that could not be converted to a field of the spec (I04).

    The flags are --moe-layer-freq and --num-layers-per-virtual-pipeline-stage.
    """
    experts = reading.spec.get("model", {}).get("experts", {})
    layout = reading.spec.get("layout", {})
    found = {
        # 1 is the default if the number of stages does not follow.
        "--num-layers-per-virtual-pipeline-stage": layout.get("vpp", 1) > 1,
        "--moe-layer-freq": bool({"first_dense_layers", "every"} & experts.keys()),
    }
    for flag in flags:
        text = " ".join(values_of_flag(flag))
        if not found.get(flag.name, True) and not _EVERY_LAYER.fullmatch(text):
            reading.leave_out(f"{flag.name} {text}", flag.word.span)
            if flag.name != "--moe-layer-freq":
                layout.pop("vpp", None)


_EVERY_LAYER = re.compile(r"'?(?:\(?\[1\]\*[0-9]{1,4}\)?|1)'?")
"""Pattern of the values of --moe-layer-freq that give every layer experts."""


def starts_megatron(words: list[Word]) -> bool:
    """Return True if ``words`` contain a flag of Megatron, and no program with similar flags."""
    signs = not SIGNS.isdisjoint(word.text.partition("=")[0] for word in words)
    return signs and find_program_of_others(words) is None


IMPORTERS = BackendImporters(
    {
        "megatron-args": FileFormat(
            read_megatron_args,
            "arguments of Megatron-LM, or a script with them",
            (r"--(tensor|pipeline)-model-parallel-size\b", r"--num-attention-heads\b"),
        )
    },
    LaunchLines(starts_megatron, read_words),
    SETTINGS,
)
