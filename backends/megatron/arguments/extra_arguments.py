"""Judge ``launch.args``: what the parsers of Megatron-Core 0.17 to 0.20 would say to them.

A flag of flags.yaml is a matter of the plan, written or left out; only rows marked ``free`` may be
given another value, which then stands in place of the plan's.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from parc.backends.megatron.arguments.arguments import PACKAGE, Argument
from parc.backends.shared.extra_arguments import (
    ExtraArgument,
    find_value_fault,
    known_flags,
    parse_extra_arguments,
    report_extra_arguments,
)
from parc.backends.shared.field_table import FieldRow, flag_table
from parc.backends.shared.versions import is_in_range
from parc.compiler.diagnostics import Cause, Finding, Sink

SPEC_FIELDS = {
    "job.tokenizer_type": "job.tokenizer",
    "job.warmup_fraction": "job.warmup_steps",
    "layout.dp_replicate": "layout.dp_shard",
    "layout.split.chunks": "layout.first_stage_layers",
    "layout.split.count_embedding": "layout.count_embedding",
    "layout.split.count_loss": "layout.count_loss",
    "layout.split.form": "layout.pipeline_layout",
    "layout.split.text": "layout.pipeline_layout",
}
"""Fields of a plan that the spec calls by another name."""


def flags_of(version: str) -> list[str]:
    """All spellings that ``version`` is_in_range, sorted."""
    return [
        flag
        for flag, row in known_flags(PACKAGE).items()
        if is_in_range(version, row.get("since"), row.get("until"))
    ]


@cache
def removed_flags() -> dict[str, dict[str, str]]:
    """Flag -> ``until``, the last release that took it, and ``instead``, where one says the same.

    Flags that were gone before 0.17: their parser lacks them, or takes them and stops.
    Source: megatron/training/arguments.py (before 0.8 megatron/arguments.py) of all releases.
    """
    text = (files(PACKAGE) / "removed_flags.json").read_text("utf-8")
    rows: list[dict[str, str]] = json.loads(text)
    return {row.pop("flag"): row for row in rows}


def check_extra(
    args: tuple[str, ...], planned: tuple[Argument, ...], version: str, sink: Sink
) -> None:
    """Report what the parser would refuse, and what the plan already says."""
    spellings = flags_of(version)
    own = {argument.flag: argument for argument in planned}
    rows = {row.setting: row for row in flag_table(PACKAGE).rows if not row.free}

    def judge(extra: ExtraArgument) -> tuple[str, Finding] | None:
        if extra.flag not in spellings or extra.flag in removed_flags():
            return "F01", unknown_flag(extra.flag, spellings, version)
        if extra.flag in rows:
            return "F02", _taken(extra, rows[extra.flag], own.get(extra.flag))
        fault = find_value_fault(extra, known_flags(PACKAGE)[extra.flag])
        return None if fault is None else ("F03", fault)

    report_extra_arguments(*parse_extra_arguments(args), judge, sink)


def unknown_flag(flag: str, spellings: list[str], version: str) -> Finding:
    """F01: what ``version`` has in place of ``flag``."""
    from difflib import get_close_matches

    if flag in removed_flags():
        return _removed(flag, version)
    near = get_close_matches(flag, spellings, 3)
    row = known_flags(PACKAGE).get(flag)
    label = "no such flag"
    if row is not None:
        label = f"known from {row.get('since', '0.17')} to {row.get('until', 'today')}"
    return Finding(
        message=f"Megatron-LM {version} has no flag {flag}",
        label=label,
        help=f"did you mean: {', '.join(near)}" if near else "see pretrain_gpt.py --help",
        fix=near[0] if near else "",
        causes=(Cause("versions.megatron", f"version {version}"),),
    )


def _removed(flag: str, version: str) -> Finding:
    row = removed_flags()[flag]
    return Finding(
        message=f"Megatron-LM {version} has no flag {flag} any more",
        label=f"removed after release {row['until']}",
        help="" if "instead" in row else "nothing takes its place",
        fix=row.get("instead", ""),
        causes=(Cause("versions.megatron", f"version {version}"),),
    )


def spec_fields(row: FieldRow) -> tuple[str, ...]:
    """Where the spec says what ``row`` is made from; of a model, that it is the model."""
    names = (SPEC_FIELDS.get(name, name) for name in row.fields)
    return tuple(dict.fromkeys("model" if name.startswith("model.") else name for name in names))


def _taken(extra: ExtraArgument, row: FieldRow, argument: Argument | None) -> Finding:
    names = spec_fields(row)
    fields = " or ".join(names)
    plain = not row.derived and names != ("model",) and len(extra.values) == 1
    said = " ".join((argument.flag, *argument.values)) if argument else ""
    instead = f", and write {names[0]}: {extra.values[0]}" if names and plain else ""
    return Finding(
        message=f"{row.setting} is {'set by the plan already' if said else 'a matter of the plan'}",
        label=f"the plan says: {said}" if said else "the plan leaves it out",
        help=f"it comes from {fields}" if fields else "every plan has this value",
        fix=f"remove it from launch.args{instead}",
    )
