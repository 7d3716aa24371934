"""Writer of ``megatron-bridge/config.yaml`` and of the program that reads it."""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import Any

from parc.backends.megatron.arguments.arguments import DERIVED as MEGATRON
from parc.backends.megatron.bridge import computed_settings
from parc.backends.megatron.capabilities import BRIDGE
from parc.backends.shared.field_table import Derived, field_table, public_functions
from parc.backends.shared.render import render
from parc.compiler.ir import Artifact, Plan

CONFIG, PROGRAM = f"{BRIDGE}/config.yaml", f"{BRIDGE}/pretrain.py"
DERIVED: Derived = {**MEGATRON, **public_functions(computed_settings)}
"""Functions that fields.yaml refers to, by name."""


def bridge_files(plan: Plan) -> tuple[Artifact, ...]:
    """Return the settings, and the program unless the spec names its own."""
    settings = Artifact(CONFIG, _yaml_text(plan.problem.version(BRIDGE), bridge_settings(plan)))
    if plan.problem.launch.program:
        return (settings,)
    return (settings, Artifact(PROGRAM, render("megatron_bridge", "pretrain.py.j2", {})))


def bridge_settings(plan: Plan) -> dict[str, Any]:
    """Return the settings by their path in ConfigContainer, such as ``train.train_iters``.

    Switches of experts that are off are left out, because a dense model has many.
    """
    problem = plan.problem
    table = field_table("parc.backends.megatron.bridge")
    settings = table.settings(problem, plan.layout, problem.version(BRIDGE), DERIVED)
    return {
        name: value
        for name, value in settings.items()
        if value is not False or not name.startswith("model.moe_")
    }


def _yaml_text(version: str, settings: dict[str, Any]) -> str:
    """Return the settings as YAML, in the order of the table."""
    lines = [f"# Settings of Megatron-Bridge {version}: fields of its ConfigContainer.\n"]
    for section, names in groupby(settings, key=lambda name: name.partition(".")[0]):
        lines.append(f"{section}:\n")
        lines += [f"  {name.partition('.')[2]}: {_word(settings[name])}\n" for name in names]
    return "".join(lines)


def _word(value: Any) -> str:
    """Return ``value`` as YAML that PyYAML and OmegaConf read back as the same value."""
    if value == computed_settings.NULL:
        return "null"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_word(one) for one in value)}]"
    if isinstance(value, float):
        # YAML 1.1 reads 1e-05, which has no dot, as a text.
        return re.sub(r"^(-?\d+)e", r"\1.0e", repr(value))
    if isinstance(value, str):
        # OmegaConf replaces ${...}, unless an odd number of backslashes precedes it.
        return json.dumps(re.sub(r"(\\*)\$\{", r"\1\1\\${", value))
    return json.dumps(value)
