"""Flags and config.yaml of trtllm-serve, from the table flags.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parc.backends.shared.field_table import (
    FieldRow,
    flag_table,
    nest_settings,
    public_functions,
    value_at_path,
)
from parc.backends.shared.render import yaml_text
from parc.backends.shared.serving.serve_script import Argument
from parc.backends.tensorrt_llm import computed_settings
from parc.compiler.ir import ServingPlan

NAME = "tensorrt-llm"
PACKAGE = "parc.backends.tensorrt_llm"
HOSTS, CONFIG = "hosts", "config"
"""Groups of flags that differ between hosts, and of keys of config.yaml."""
DERIVED = public_functions(computed_settings)
"""Functions that flags.yaml names."""
CONFIG_FLAG = "--extra_llm_api_options"
"""Flag with the path of config.yaml; start.sh adds it. Since 1.2, --config is the same flag."""


def planned_flags() -> frozenset[str]:
    """Return the names of the flags that a plan determines, omitted ones included."""
    rows = flag_table(PACKAGE).rows
    return frozenset((CONFIG_FLAG, *(row.setting for row in rows if row.group != CONFIG)))


def shared_arguments(plan: ServingPlan) -> tuple[Argument, ...]:
    """Return the flags that have the same value in all processes of the plan."""
    return tuple(
        Argument(row.setting, str(value), row.group)
        for row, value in _rows_with_values(plan)
        if row.group not in (HOSTS, CONFIG)
    )


def config_settings(plan: ServingPlan) -> dict[str, Any]:
    """Return the settings of config.yaml as dotted key -> value."""
    return {row.setting: value for row, value in _rows_with_values(plan) if row.group == CONFIG}


def config_text(plan: ServingPlan) -> str:
    """Return the text of config.yaml."""
    about = "# Settings of TensorRT-LLM without a flag. start.sh passes the path of this file.\n"
    return about + yaml_text(nest_settings(config_settings(plan)))


def _rows_with_values(plan: ServingPlan) -> Iterator[tuple[FieldRow, Any]]:
    """Yield (row, value) for each setting that the planned version has, in the table's order."""
    version = plan.problem.version(NAME)
    for row in flag_table(PACKAGE).rows:
        if row.group == HOSTS or not row.exists_in(version):
            continue
        value = row.constant
        if value is None:
            value = (
                DERIVED[row.derived](plan) if row.derived else value_at_path(plan, row.fields[0])
            )
        if value is not None:
            yield row, value
