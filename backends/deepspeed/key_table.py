"""Builder of ds_config.json and train.json from the table in flags.yaml."""

from __future__ import annotations

from typing import Any

from parc.backends.deepspeed import derived_config, derived_optimizer, derived_program
from parc.backends.shared.field_table import flag_table, nest_settings, public_functions
from parc.backends.shared.torch import program as torch_program
from parc.compiler.ir import Layout, Problem

DS_CONFIG, TRAIN = "ds_config", "train"
"""Groups of rows in flags.yaml, one group per emitted file."""
DERIVED = public_functions(torch_program, derived_config, derived_optimizer, derived_program)
"""Functions that flags.yaml refers to, by name."""


def build_config(file: str, problem: Problem, layout: Layout) -> dict[str, Any]:
    """Return the nested keys and values of the JSON file ``file``, "ds_config" or "train".

    Keys whose value is None are left out.
    """
    table = flag_table("parc.backends.deepspeed").of_group(file)
    return nest_settings(table.settings(problem, layout, problem.version("deepspeed"), DERIVED))
