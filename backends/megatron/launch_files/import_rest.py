"""Import of Megatron's flags that set no field: extra arguments, defaults, and what is left out.

Flags that PARC does not control become ``launch.args``. All other flags are compared with the flags
that PARC would write for the imported fields, so that every difference is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.arguments.extra_arguments import flags_of, removed_flags
from parc.backends.megatron.stages.layout_string import add_implied_vpp
from parc.backends.shared.extra_arguments import (
    ExtraArgument,
    find_value_fault,
    rows_of_known_flags,
)
from parc.backends.shared.field_table import flag_table
from parc.compiler.tools.importers.flags import (
    LaunchFlag,
    is_equal_value,
    load_import_table,
    set_spec_field,
    whole_number,
)
from parc.compiler.tools.importers.open_fields import fields_of_unread_flag, set_defaults
from parc.compiler.topology.readers.reader_state import Reading

FREE_DEFAULTS = {
    "--distributed-timeout-minutes": "10",
    "--eval-iters": "100",
    "--log-interval": "100",
    "--split": "969,30,1",
}
"""Flag that ``launch.args`` may override -> Megatron's default, which differs from PARC's value."""
FIXED_DEFAULTS = {
    "--attention-dropout": "0.1",
    "--hidden-dropout": "0.1",
}
"""Flag that PARC sets in every plan -> Megatron's default. Only flags are listed with which the
default would change the training."""
LAYOUT_DEFAULTS: dict[str, Any] = {
    **{"tp": 1, "cp": 1, "pp": 1, "vpp": 1, "ep": 1, "zero_stage": 0, "sequence_parallel": False},
    **{"count_embedding": False, "count_loss": False, "order": "tp-cp-ep-dp-pp"},
}
"""``layout`` field -> value that Megatron uses without the flag. The import sets these fields
explicitly, because PARC chooses the value of a field that a spec does not set."""
UNSET_BY_LAYOUT = ("vpp", "count_embedding", "count_loss")
"""``layout`` fields that contradict a layout string or a layer pattern with bars. Both of these
define the stages."""
SUBJECTS = {
    "layout.tp": r"--(?:encoder-tensor-model-parallel-size|tensor-parallel-size|tp-size|tp)",
    "layout.cp": r"--(?:ds-sequence-parallel-\S+|force-ds-sequence-parallel|cp-size)",
    "layout.pp": r"--(?:encoder-pipeline-model-parallel-size|pipe(?:line)?-parallel-size|pp-size)",
    "layout.ep": r"--(?:moe-)?expert-parallel(?:-size)?|--ep-(?:world-)?size",
    "layout.zero_stage": r"--zero-\S+|--deepspeed(?:[-_]config)?|--use-(?:custom|torch)-fsdp2?",
    "layout.recompute": r"--(?:activations?|distribute|deepspeed-activation)-checkpoint\S*"
    r"|--distribute-(?:checkpointed|saved)-activations|--checkpoint-in-cpu|--moe-layer-recompute"
    r"|--partition-activations",
    "job.warmup_steps": r"--(?:lr-)?warmup(?:-(?!init$)\S+)?",
    "job.lr_decay": r"--constant-lr|--lr-decay-(?!iters|samples|tokens)\S+",
    "job.weight_decay": r"--(?:start|end)-weight-decay|--weight-decay-incr-style",
}
"""Spec field -> flags without a row in the import table that can set it: flags of older versions
and of copies of Megatron-LM, such as Megatron-DeepSpeed, and flags of other ways to shard. If a
launch has one of them, Megatron's default of the field is not assumed."""
IN_SAMPLES = {
    "--train-samples": "steps",
    "--lr-decay-samples": "lr_decay_steps",
    "--lr-warmup-samples": "warmup_steps",
    "--lr-wsd-decay-samples": "wsd_decay_steps",
}
"""Flag that counts sequences -> ``job`` field that counts optimizer steps."""
NOT_PASSED = frozenset(
    (
        *IN_SAMPLES,
        *("--rampup-batch-size", "--data-args-path", "--per-split-data-args-path"),
        *("--train-data-path", "--valid-data-path", "--test-data-path"),
    )
)
"""Flags that are not copied to ``launch.args``, because they contradict flags that PARC writes,
such as --train-iters or --mock-data."""
SPELLED_OTHERWISE = frozenset(
    (
        *("--num-layers-per-virtual-pipeline-stage", "--recompute-activations"),
        "--use-rotary-position-embeddings",
        *("--hybrid-override-pattern", "--moe-layer-freq", "--linear-attention-freq"),
    )
)
"""Imported flags for which PARC writes another flag, or the same flag in another form."""


def values_of_flag(flag: LaunchFlag) -> tuple[str, ...]:
    """Return the values of ``flag``, without redirections and other words that follow them."""
    takes = rows_of_known_flags(PACKAGE).get(flag.name, {}).get("takes", 1)
    values: list[str] = []
    for word in flag.values if not isinstance(takes, int) else flag.values[:takes]:
        if word.text[:1] in "<>&" or word.text[:2] in ("1>", "2>"):
            break
        values.append(word.text)
    return tuple(values)


def pin_megatron_defaults(layout: dict[str, Any], dynamic: Collection[str]) -> None:
    """Set the ``layout`` fields that the launch leaves at Megatron's defaults.

    ``dynamic`` contains the paths of spec fields whose values are unknown. These fields are not
    set.
    """
    split = "pipeline_layout" in layout
    if split:
        add_implied_vpp(layout)
    ends = {"first_stage_layers", "last_stage_layers"} & layout.keys()
    defaults = {
        field: value
        for field, value in LAYOUT_DEFAULTS.items()
        if not (split and field in UNSET_BY_LAYOUT) and not (ends and field.startswith("count_"))
    }
    set_defaults(layout, "layout", defaults, dynamic)
    if layout.get("ep", 1) > 1 and "tp" in layout:
        set_defaults(layout, "layout", {"etp": layout["tp"]}, dynamic)


def derive_base(written: dict[str, Any], job: dict[str, Any]) -> None:
    """Set the checkpoint whose weights a run fine-tunes, from ``--pretrained-checkpoint``.

    The folder of ``--load`` is then that of the run's own checkpoints.
    """
    if path := written.get("path"):
        own = job.get("load_dir")
        job |= {"kind": "finetune", "load_dir": path}
        if own is not None:
            job.setdefault("checkpoint_dir", own)


def convert_sample_counts(flags: list[LaunchFlag], reading: Reading) -> list[LaunchFlag]:
    """Convert flags that count sequences to numbers of steps; return all other flags.

    A flag cannot be converted if the batch is unknown or grows during the run, or if the number of
    sequences is not a multiple of the batch. Such a flag is returned as well.
    """
    job = reading.spec.get("job", {})
    batch = job.get("global_batch", 0)
    grows = any(flag.name == "--rampup-batch-size" for flag in flags)
    left = []
    for flag in flags:
        field = IN_SAMPLES.get(flag.name)
        number = whole_number(" ".join(values_of_flag(flag))) if field else None
        if field is None or grows or not batch or number is None or number % batch:
            left.append(flag)
        else:
            set_spec_field(reading, f"job.{field}", number // batch, flag)
    return left


def take_extra_arguments(
    flags: list[LaunchFlag], stated: Iterable[str], reading: Reading
) -> list[LaunchFlag]:
    """Move flags that PARC does not control to ``launch.args``; return all other flags.

    ``stated`` contains the names of all flags in the launch. If a flag is absent from the launch
    and PARC would write a value other than Megatron's default, this default is added to
    ``launch.args``.
    """
    from parc.backends.registry import framework

    version = framework("megatron").default_version
    spellings = flags_of(version).keys() - removed_flags().keys()
    rows = {row.setting: row for row in flag_table(PACKAGE).rows}
    implied = load_import_table(PACKAGE).implied
    extra: dict[str, tuple[str, ...]] = {}
    rest = []
    for flag in flags:
        row, values = rows.get(flag.name), values_of_flag(flag)
        if row is not None and row.free and row.derived and flag.name in implied:
            # As an extra argument, the flag would move to another place of the emitted file.
            reading.notes.append(f"derived by PARC from other fields: {flag.name}")
            continue
        dynamic = any("$" in value or "`" in value for value in values)
        controlled = row is not None and not row.free
        passed = flag.name in spellings and flag.name not in NOT_PASSED
        known = passed and not dynamic and not controlled
        if (
            known
            and find_value_fault(
                ExtraArgument(flag.name, values, 0), rows_of_known_flags(PACKAGE)[flag.name]
            )
            is None
        ):
            extra[flag.name] = values
        else:
            rest.append(flag)
    given = set(stated)
    for name, default in FREE_DEFAULTS.items():
        if name not in given and (name != "--split" or reading.spec.get("job", {}).get("data")):
            extra[name] = (default,)
    planned = {
        row.setting: () if row.constant is True else (str(row.constant),)
        for row in rows.values()
        if row.constant
    }
    if reading.spec.get("job", {}).get("data"):
        planned["--split"] = ("100,0,0",)
    words = [
        word
        for name, values in extra.items()
        if planned.get(name) != values
        for word in (name, *values)
    ]
    if words:
        launch = reading.spec.setdefault("launch", {})
        launch["args"] = [*launch.get("args", ()), *words]
    return rest


def report_flags_without_field(flags: Iterable[LaunchFlag], reading: Reading) -> None:
    """Report each flag that sets no field of the spec, and that no plan determines (I04)."""
    controlled = names_of_planned_flags()
    for flag in flags:
        if flag.name not in controlled:
            text = " ".join((flag.name, *values_of_flag(flag)))
            field = IN_SAMPLES.get(flag.name)
            subjects = fields_of_unread_flag(flag.name, load_import_table(PACKAGE).rows, SUBJECTS)
            which = subjects[0] if subjects else "the matching field of the spec, if any"
            which = f"job.{field}, in steps" if field else which
            reading.leave_out(text, flag.word.span, f"set {which}")


def report_planned_value_differences(
    flags: Iterable[LaunchFlag], reading: Reading, complete: bool
) -> None:
    """Report each flag that PARC would write with another value, or would not write (I04).

    Flags that PARC adds in every plan are listed in a note. ``complete`` is False if the launch has
    arguments that only the shell knows; absent flags then have no certain value.
    """
    stated = {flag.name: flag for flag in flags}
    # Imported here, because the module needs the pipeline.
    from parc.backends.megatron.launch_files.facts import planned_flags

    _report_dynamic_flags(stated, reading)
    planned = planned_flags(reading.spec)
    if planned is None:
        reading.notes.append(
            "PARC's own flags are unknown, because the values are not a valid spec"
        )
        planned = {
            row.setting: () if row.constant is True else (str(row.constant),)
            for row in flag_table(PACKAGE).rows
            if row.constant
        }
        stated = {name: flag for name, flag in stated.items() if name in planned}
    passed = set(reading.spec.get("launch", {}).get("args", ()))
    for name, flag in stated.items():
        ours = planned.get(name)
        if name in passed or name in SPELLED_OTHERWISE or name not in names_of_planned_flags():
            continue
        values = values_of_flag(flag)
        # Dynamic values are reported where they are read. Values that the spec contains are written
        # if they have an effect.
        if _has_dynamic_value(values) or (ours is None and _sets_field(flag, reading)):
            continue
        if ours is None or not _equal_values(values, ours):
            what = "PARC omits it" if ours is None else f"PARC writes {' '.join((name, *ours))}"
            reading.leave_out(" ".join((name, *values)), flag.word.span, what)
    if not stated:
        return
    first = next(iter(stated.values()))
    for name, default in FIXED_DEFAULTS.items() if complete else ():
        if name not in stated and name in planned:
            text = f"the default {name} {default}"
            reading.leave_out(
                text, first.word.span, f"PARC writes {' '.join((name, *planned[name]))}"
            )
    added = [
        row.setting
        for row in flag_table(PACKAGE).rows
        if row.constant and row.setting in planned.keys() - stated.keys() - passed
    ]
    if added:
        reading.notes.append(f"added by PARC: {', '.join(added)}")


def _sets_field(flag: LaunchFlag, reading: Reading) -> bool:
    """Return True if the fragment contains the spec field of ``flag``."""
    row = load_import_table(PACKAGE).rows.get(flag.name)
    value: Any = None if row is None else reading.spec
    for key in row.path.split(".") if row else ():
        value = value.get(key) if isinstance(value, dict) else None
    return value is not None


@cache
def names_of_planned_flags() -> frozenset[str]:
    """Return the names of the flags whose values a plan determines."""
    return frozenset(row.setting for row in flag_table(PACKAGE).rows if not row.free)


def _report_dynamic_flags(stated: Mapping[str, LaunchFlag], reading: Reading) -> None:
    """Report flags whose values are known only at run time and that set no field of the spec."""
    for name in stated.keys() & names_of_planned_flags() - load_import_table(PACKAGE).rows.keys():
        flag = stated[name]
        if _has_dynamic_value(values_of_flag(flag)):
            text = " ".join((name, *values_of_flag(flag)))
            reading.leave_out(text, flag.word.span, "set it in the spec")


def _has_dynamic_value(values: tuple[str, ...]) -> bool:
    return any("$" in value or "`" in value for value in values)


def _equal_values(theirs: tuple[str, ...], ours: tuple[str, ...]) -> bool:
    return len(theirs) == len(ours) and all(map(is_equal_value, theirs, ours))
