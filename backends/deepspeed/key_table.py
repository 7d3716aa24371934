"""The keys of both JSON files of one layout, from the table of keys."""

from __future__ import annotations

from typing import Any

from parc.backends.deepspeed import derived_config, derived_optimizer, derived_program
from parc.backends.shared.field_table import flag_table, nested, public_functions
from parc.compiler.ir import Layout, Problem

DS_CONFIG, TRAIN = "ds_config", "train"
"""The groups of flags.yaml, one a file."""
DERIVED = public_functions(derived_config, derived_optimizer, derived_program)
"""Functions that flags.yaml names."""


def tree(file: str, problem: Problem, layout: Layout) -> dict[str, Any]:
    """All keys of ``file`` (``ds_config`` or ``train``), nested; what says nothing is left out."""
    table = flag_table("parc.backends.deepspeed").of_group(file)
    return nested(table.settings(problem, layout, problem.version("deepspeed"), DERIVED))
