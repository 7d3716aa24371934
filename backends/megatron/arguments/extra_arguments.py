"""Check of ``launch.args`` against the parsers of Megatron-Core 0.17 to 0.20.

The plan controls every flag in flags.yaml, even a flag that the plan omits. ``launch.args`` may
override only flags whose row is marked ``free``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from parc.backends.megatron.arguments.arguments import PACKAGE, Argument, planned_arguments
from parc.backends.megatron.couplings.coupled_flags import COUPLINGS
from parc.backends.megatron.couplings.refused_combinations import REFUSED
from parc.backends.shared.extra_arguments import (
    ExtraArgument,
    find_value_fault,
    fix_unknown_flag,
    parse_extra_arguments,
    report_broken_couplings,
    report_extra_arguments,
    rows_of_known_flags,
)
from parc.backends.shared.field_table import FieldRow, flag_table
from parc.backends.shared.versions import is_in_range
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.similar_names import close_matches
from parc.compiler.ir import Layout, Problem

SPEC_FIELDS = {
    "launch.tensorboard_dir": "launch.logging.tensorboard",
    "launch.wandb_project": "launch.logging.wandb",
    "job.tokenizer_type": "job.tokenizer",
    "job.warmup_fraction": "job.warmup_steps",
    "layout.dp_replicate": "layout.dp_shard",
    "layout.split.chunks": "layout.first_stage_layers",
    "layout.split.count_embedding": "layout.count_embedding",
    "layout.split.count_loss": "layout.count_loss",
    "layout.split.form": "layout.pipeline_layout",
    "layout.split.text": "layout.pipeline_layout",
}
"""Name of a plan field -> name of the spec field that sets the plan field, if the names differ."""


@cache
def flags_of(version: str) -> Mapping[str, None]:
    """Return the sorted names of all flags that Megatron ``version`` accepts, as keys."""
    return {
        flag: None
        for flag, row in rows_of_known_flags(PACKAGE).items()
        if is_in_range(version, row.get("since"), row.get("until"))
    }


@cache
def flags_of_copies() -> dict[str, str]:
    """Return (flag -> owner) for the flags that other parsers than Megatron's own define.

    The owner ``modelopt`` is NVIDIA's package, whose flags Megatron's programs accept if it is
    installed (megatron/post_training/arguments.py). Any other owner is a public copy of Megatron,
    whose arguments.py defines the flags.
    """
    table: dict[str, list[str]] = json.loads(
        (files(PACKAGE) / "flags_of_copies.json").read_text("utf-8")
    )
    return {flag: owner for owner, flags in table.items() for flag in flags}


@cache
def removed_flags() -> dict[str, dict[str, str]]:
    """Return the rows of ``removed_flags.json`` by flag: all flags removed before Megatron 0.17.

    In a row, ``until`` is the last release that accepted the flag, and ``instead`` is the
    replacement, if there is one; ``see`` is advice if there is none. Megatron 0.17 either rejects
    such a flag, or accepts the flag and then fails. Source: megatron/training/arguments.py (before
    0.8 megatron/arguments.py) of all releases.
    """
    text = (files(PACKAGE) / "removed_flags.json").read_text("utf-8")
    rows: list[dict[str, str]] = json.loads(text)
    return {row.pop("flag"): row for row in rows}


def check_user_flags(problem: Problem, layout: Layout, sink: Sink) -> None:
    """Report invalid flags in ``launch.omit`` and ``launch.args``."""
    if problem.launch.omit:
        check_omitted_flags(problem, layout, sink)
    if problem.launch.args:
        planned = planned_arguments(problem, layout)
        version = problem.version("megatron")
        check_extra_arguments(problem.launch.args, planned, version, sink)


def check_extra_arguments(
    args: tuple[str, ...], planned: tuple[Argument, ...], version: str, sink: Sink
) -> None:
    """Report extra arguments that Megatron rejects, or that the plan controls (F02).

    Megatron rejects unknown flags (F01), values (F03) and combinations (F08 and layout rules).
    """
    spellings = flags_of(version)
    own = {argument.flag: argument for argument in planned}
    rows = {row.setting: row for row in flag_table(PACKAGE).rows if not row.free}

    def check_extra_argument(extra: ExtraArgument) -> tuple[str, Finding] | None:
        # Some removed flags still parse in 0.17 and fail later, so the list of removed flags is
        # checked as well.
        if extra.flag not in spellings or extra.flag in removed_flags():
            return "F01", explain_unknown_flag(extra.flag, spellings, version)
        if extra.flag in rows:
            return "F02", _explain_planned_flag(extra, rows[extra.flag], own.get(extra.flag))
        fault = find_value_fault(extra, rows_of_known_flags(PACKAGE)[extra.flag])
        return None if fault is None else ("F03", fault)

    extras, stray = parse_extra_arguments(args)
    report_extra_arguments(extras, stray, check_extra_argument, sink)
    table = (*COUPLINGS, *REFUSED)
    values = {argument.flag: argument.values for argument in planned}
    report_broken_couplings(table, values, extras, sink, ("megatron",))


def check_omitted_flags(problem: Problem, layout: Layout, sink: Sink) -> None:
    """Report flags in ``launch.omit`` that the plan does not set (F01) or requires (F02)."""
    names = problem.launch.omit
    planned = {one.flag for one in planned_arguments(without_omitted_flags(problem), layout)}
    rows = {row.setting: row for row in flag_table(PACKAGE).rows}
    free = sorted(flag for flag in planned if rows[flag].free)
    for index, flag in enumerate(names):
        at, help_text = f"launch.omit[{index}]", f"flags that can be omitted: {', '.join(free)}"
        if flag not in planned:
            finding = Finding(
                f"the plan does not set {flag[:60]}",
                label="nothing to omit",
                help=help_text,
                fix=f"remove {flag[:60]} from launch.omit",
            )
            sink.report("F01", finding, at=at)
        elif flag not in free:
            finding = Finding(
                f"{flag} cannot be omitted, because layout or memory depend on it",
                label="required by the plan",
                help=help_text,
                fix=f"remove {flag} from launch.omit",
            )
            sink.report("F02", finding, at=at)


def without_omitted_flags(problem: Problem) -> Problem:
    """Return a copy of ``problem`` whose plan sets all flags."""
    return replace(problem, launch=replace(problem.launch, omit=()))


def explain_unknown_flag(flag: str, spellings: Iterable[str], version: str) -> Finding:
    """Return the finding F01: Megatron ``version`` has no flag ``flag``.

    The finding suggests a replacement or a similar flag in ``spellings``, if there is one.
    """
    if flag in removed_flags():
        return _explain_removed_flag(flag, version)
    # Megatron's parser has allow_abbrev=False: a unique prefix of a flag is an error, not a match.
    near = close_matches(flag, spellings, 3)
    row = rows_of_known_flags(PACKAGE).get(flag)
    label = f"{flag} is not a flag of Megatron-LM"
    if row is not None:
        label = (
            f"{flag} exists from version {row.get('since', '0.17')} to "
            f"{row.get('until', 'the newest')}"
        )
    return Finding(
        message=f"Megatron-LM {version} has no flag {flag}",
        label=label,
        help=f"did you mean: {', '.join(near)}" if near else "see pretrain_gpt.py --help",
        fix=fix_unknown_flag(flag, near),
        causes=(Cause("versions.megatron", f"version {version}"),),
    )


def _explain_removed_flag(flag: str, version: str) -> Finding:
    row = removed_flags()[flag]
    return Finding(
        message=f"Megatron-LM {version} no longer has the flag {flag}",
        label=f"{flag} was removed after release {row['until']}",
        help="" if "instead" in row else row.get("see", "there is no replacement"),
        fix=row.get("instead", ""),
        causes=(Cause("versions.megatron", f"version {version}"),),
    )


def spec_fields_of_flag(row: FieldRow) -> tuple[str, ...]:
    """Return the spec fields that determine the flag of ``row``, a row of flags.yaml.

    For all fields of the model together, the result contains the single name ``model``.
    """
    names = (SPEC_FIELDS.get(name, name) for name in row.fields)
    return tuple(dict.fromkeys("model" if name.startswith("model.") else name for name in names))


def _explain_planned_flag(
    extra: ExtraArgument, row: FieldRow, argument: Argument | None
) -> Finding:
    names = spec_fields_of_flag(row)
    fields = " or ".join(names)
    plain = not row.derived and names != ("model",) and len(extra.values) == 1
    planned = " ".join((argument.flag, *argument.values)) if argument else ""
    instead = f", and set {names[0]}: {extra.values[0]}" if names and plain else ""
    return Finding(
        message=f"{row.setting} is already set by the plan"
        if planned
        else f"{row.setting} is controlled by the plan",
        label=f"the plan sets: {planned}" if planned else "the plan omits it",
        help=f"it is derived from {fields}" if fields else "all plans have this value",
        fix=f"remove {extra.flag} from launch.args{instead}",
    )
