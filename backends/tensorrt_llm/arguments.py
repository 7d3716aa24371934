"""Flags and config.yaml of trtllm-serve, from the table flags.yaml."""

from __future__ import annotations

from typing import Any

from parc.backends.shared.field_table import flag_table, nest_settings
from parc.backends.shared.render import yaml_text
from parc.backends.shared.serving.engine_flags import rows_with_values, shared_flags
from parc.backends.shared.serving.serve_script import Argument
from parc.backends.tensorrt_llm import computed_settings
from parc.compiler.ir import ServingPlan

NAME = "tensorrt-llm"
PACKAGE = "parc.backends.tensorrt_llm"
CONFIG = "config"
"""Group of the keys of config.yaml, which are not flags."""
CONFIG_FLAG = "--extra_llm_api_options"
"""Flag with the path of config.yaml; start.sh adds it. Since 1.2, --config is the same flag."""


def planned_flags() -> frozenset[str]:
    """Return the names of the flags that a plan determines, omitted ones included."""
    rows = flag_table(PACKAGE).rows
    return frozenset((CONFIG_FLAG, *(row.setting for row in rows if row.group != CONFIG)))


def shared_arguments(plan: ServingPlan) -> tuple[Argument, ...]:
    """Return the flags that have the same value in all processes of the plan."""
    every = shared_flags(plan, PACKAGE, computed_settings)
    return tuple(one for one in every if one.group != CONFIG)


def config_settings(plan: ServingPlan) -> dict[str, Any]:
    """Return the settings of config.yaml as dotted key -> value."""
    rows = rows_with_values(plan, PACKAGE, computed_settings)
    return {row.setting: value for row, value in rows if row.group == CONFIG}


def config_text(plan: ServingPlan) -> str:
    """Return the text of config.yaml."""
    about = "# Settings of TensorRT-LLM without a flag. start.sh passes the path of this file.\n"
    return about + yaml_text(nest_settings(config_settings(plan)))
