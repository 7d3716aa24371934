"""Check of ``launch.args``: overrides of ConfigContainer fields in the syntax of Hydra."""

from __future__ import annotations

import re

from parc.backends.megatron.arguments.extra_arguments import SPEC_FIELDS
from parc.backends.megatron.bridge.files import bridge_settings
from parc.backends.shared.field_table import FieldRow, field_table
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Plan

_OVERRIDE = re.compile(r"(?:\+\+?|~)?([A-Za-z_][\w.]*)(?:=.*)?", re.DOTALL)


def check_overrides(plan: Plan, sink: Sink) -> None:
    """Report words that are not overrides (F01), and overrides of planned fields (F02)."""
    planned = bridge_settings(plan)
    # Constants can be overridden, because layout and memory do not depend on them.
    rows = [row for row in field_table("parc.backends.megatron.bridge").rows if row.fields]
    for index, word in enumerate(plan.problem.launch.args):
        match, at = _OVERRIDE.fullmatch(word), f"launch.args[{index}]"
        if match is None:
            finding = Finding(
                f"{word[:60]!r} is not an override of Megatron-Bridge",
                label="expected FIELD=VALUE",
                help="an override sets a field of ConfigContainer, such as train.exit_interval=100",
            )
            sink.report("F01", finding, at=at)
            continue
        for row in rows:
            if f"{row.setting}.".startswith(f"{match[1]}."):
                sink.report("F02", _explain(row, planned.get(row.setting)), at=at)
                break


def _explain(row: FieldRow, value: object) -> Finding:
    fields = dict.fromkeys(SPEC_FIELDS.get(field, field) for field in row.fields)
    return Finding(
        message=f"{row.setting} is controlled by the plan",
        label="the plan omits it" if value is None else f"the plan sets: {value}",
        help=f"it is derived from {' or '.join(fields)}",
        fix="remove it from launch.args",
    )
