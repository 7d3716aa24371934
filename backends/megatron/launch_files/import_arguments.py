"""Import of model, layout and job from Megatron-LM's flags in an arguments file or a script.

Flags: NVIDIA/Megatron-LM, megatron/training/arguments.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.launch_files.import_model import derive_expert_interval, derive_model
from parc.backends.megatron.launch_files.import_pattern import (
    derive_hybrid,
    is_megatron_hybrid_spec,
)
from parc.backends.megatron.launch_files.import_recompute import (
    complete_recompute,
    derive_older_recompute,
    shorten_recompute,
)
from parc.backends.megatron.launch_files.import_rest import (
    FREE_DEFAULTS,
    IN_SAMPLES,
    SUBJECTS,
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
from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.tools.importers.flags import (
    LAUNCHER,
    LaunchFlag,
    flags_in_statements,
    load_import_table,
    take_flags,
)
from parc.compiler.tools.importers.formats import BackendImporters, LaunchLines, importable_launches
from parc.compiler.tools.importers.launch_commands import framework_words, is_python_program
from parc.compiler.tools.importers.open_fields import (
    OpenFields,
    find_open_fields,
    set_defaults,
    unknown_arguments,
)
from parc.compiler.tools.importers.script_commands import (
    find_program_of_others,
    launch_words,
    read_script,
)
from parc.compiler.tools.importers.shell_words import Word, statements
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

DERIVED = {
    "layout.recompute.granularity": "layout.recompute",
    "precision.recipe": "job.fp8_recipe",
}
"""Spec field, or name that the import table collects flags under -> field that depends on it."""


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
    arguments = unknown_arguments(
        _megatron_flags(words), _argument_lists(words), _value_count, reading.text
    )
    flags = read_spec_fields(words, reading, arguments)
    if reading.spec:
        complete_recompute(reading)
        report_planned_value_differences(flags, reading, not arguments)


def _megatron_flags(words: list[Word]) -> list[LaunchFlag]:
    return [
        flag
        for flag in flags_in_statements(words, TABLE.rows, whole=True)
        if flag.name.startswith("--") and flag.name.replace("_", "-") not in LAUNCHER
    ]


def _argument_lists(words: list[Word]) -> Iterator[list[Word]]:
    """Yield the words after each program, and the statements that contain only arguments."""
    own = {flag.word.statement for flag in _megatron_flags(words)}
    for statement in statements(words):
        program = is_python_program(statement[0])
        if program or statement[0].statement in own:
            yield statement[program:]


def _value_count(flag: LaunchFlag) -> int:
    """Return the number of values of a flag, which is one for unknown flags."""
    row = TABLE.rows.get(flag.name)
    if row is not None and row.kind == "set":
        return 0
    takes = rows_of_known_flags(PACKAGE).get(flag.name, {}).get("takes", 1)
    return takes if isinstance(takes, int) else 1 if takes == "?" else len(flag.values)


def read_spec_fields(
    words: list[Word], reading: Reading, arguments: Collection[Word] = ()
) -> list[LaunchFlag]:
    """Add the spec fields to ``reading`` like ``read_words``, and return the flags.

    The flags of a plan, which take a fifth of the time of a lint, are not computed. ``arguments``
    are words that can be flags which only the shell knows: defaults of Megatron are then unsure.
    """
    flags = _megatron_flags(words)
    for flag in flags:
        reading.account(flag.word.span)
    # take_flags fills reading.spec, and returns the flags that have no row in the table.
    unknown = take_flags(flags, TABLE.rows, reading)
    unknown = convert_sample_counts(unknown, reading)
    derive_older_recompute(flags, reading)
    dynamic = find_open_fields(flags, TABLE.rows, SUBJECTS, arguments, reading)
    # A sample count that is not a whole number of steps is reported, and its field stays unset.
    dynamic |= {f"job.{IN_SAMPLES[flag.name]}" for flag in unknown if flag.name in IN_SAMPLES}
    derive_expert_interval(flags, reading)
    _derive_spec_fields(reading, dynamic)
    _report_underived_flags(flags, reading)
    if not reading.spec:
        return flags
    unknown = [flag for flag in unknown if not is_megatron_hybrid_spec(flag)]
    # Without certain defaults, none of them is added to launch.args.
    sure = FREE_DEFAULTS if arguments else ()
    rest = take_extra_arguments(unknown, (*sure, *(flag.name for flag in flags)), reading)
    report_flags_without_field(rest, reading)
    return flags


def _derive_spec_fields(reading: Reading, dynamic: OpenFields) -> None:
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
    style = spec.pop("wsd", {}).get("style", "exponential")
    _add_optimizer_defaults(style, job, dynamic, reading)
    if (vpp := _virtual_stages(spec.pop("virtual", {}).get("layers"), spec, dynamic)) is not None:
        layout.setdefault("vpp", vpp)
    _derive_shared_weights(spec.pop("shards", {}), dynamic, reading)
    _derive_graphs(spec.pop("graphs", {}), layout, dynamic, reading)
    # Absent flags mean off in Megatron, but "chosen by PARC" in a spec: therefore off is set
    # explicitly.
    pin_megatron_defaults(layout, dynamic)
    shorten_recompute(layout, dynamic)
    derive_model(spec, dynamic)
    _remove_unknown_fields(spec, dynamic)
    for section in ("layout", "job"):
        if not spec[section]:
            del spec[section]


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
        set_defaults(job, "job", OPTIMIZER, dynamic)


def _remove_unknown_fields(spec: dict[str, Any], dynamic: Collection[str]) -> None:
    """Remove the fields that a default or a derivation set, although their value is unknown."""
    for path in dynamic:
        *above, last = DERIVED.get(path, path).split(".")
        node: Any = spec
        for key in above:
            node = node.get(key) if isinstance(node, dict) else None
        # A dense width of 0 is certain: all layers have experts instead of an MLP.
        if isinstance(node, dict) and node.get(last) != 0:
            node.pop(last, None)


def _virtual_stages(
    layers: int | None, spec: dict[str, Any], dynamic: Collection[str]
) -> int | None:
    """Return vpp = layers of the model / (pp x layers per virtual stage); None if unknown.

    The embedding and the loss count as layers if their flags are given (arguments.py).
    """
    total, layout = spec.get("model", {}).get("layers"), spec["layout"]
    if not layers or not total or "layout.pp" in dynamic:
        return None
    total += layout.get("count_embedding", False) + layout.get("count_loss", False)
    vpp, rest = divmod(total, layout.get("pp", 1) * layers)
    return None if rest else int(vpp)


def _derive_shared_weights(
    shards: dict[str, int], dynamic: Collection[str], reading: Reading
) -> None:
    """Set gtp and egtp, the quotients of Megatron's numbers of weight shards and tp or etp.

    A number that is not a multiple of the size is reported, because Megatron rejects it; so is a
    number of shards without a known size.
    """
    layout = reading.spec["layout"]
    tp = layout.get("tp", 1)
    sizes = {"dense": ("gtp", "tp", tp), "expert": ("egtp", "etp", layout.get("etp", tp))}
    for key, (name, axis, size) in sizes.items():
        if key not in shards:
            continue
        count = shards[key]
        unknown = f"layout.{axis}" in dynamic or (axis not in layout and "layout.tp" in dynamic)
        if unknown or size < 1 or count < size or count % size:
            text = f"{count} weight shards with {axis} {'unknown' if unknown else size}"
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


_OF_JUBE = re.compile(r"(?m)^(?:parameterset:|<jube\b)")
"""Matches a benchmark of JUBE, whose parameters are those of many different runs."""


IMPORTERS = BackendImporters(
    {
        "megatron-args": FileFormat(
            read_megatron_args,
            "arguments of Megatron-LM, or a script with them",
            (r"--(tensor|pipeline)-model-parallel-size\b", r"--num-attention-heads\b"),
            confirms=lambda text: _OF_JUBE.search(text) is None,
        )
    },
    LaunchLines(starts_megatron, read_words),
    SETTINGS,
)
