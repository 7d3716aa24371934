"""Files of the backend ``fsdp``: the plan as JSON, and the Python programs that read it."""

from __future__ import annotations

import json

from parc.backends.fsdp import computed_settings
from parc.backends.shared.field_table import field_table, nest_settings, public_functions
from parc.backends.shared.render import render
from parc.backends.shared.torch import program as torch_program
from parc.backends.shared.torch.framework import learning_rate_file
from parc.compiler.ir import Artifact, Plan

FOLDER = "fsdp"
TABLE = "parc.backends.fsdp"
DERIVED = public_functions(torch_program, computed_settings)
"""Functions that fields.yaml names."""


def fsdp_files(plan: Plan) -> tuple[Artifact, ...]:
    """Return ``config.json``, ``parallelize.py`` and, if the spec has no program, the program.

    The program consists of ``model.py``, ``train.py`` and ``learning_rate.py``.
    """
    own = bool(plan.problem.launch.program)
    names = ("parallelize.py",) if own else ("model.py", "parallelize.py", "train.py")
    files = [Artifact(f"{FOLDER}/{name}", render(FOLDER, f"{name}.j2", {})) for name in names]
    files += [] if own else [learning_rate_file(FOLDER)]
    return (Artifact(f"{FOLDER}/config.json", config_json(plan)), *files)


def config_json(plan: Plan) -> str:
    """Return the text of ``fsdp/config.json``, which contains the settings of the plan.

    The sizes of the model are included only if PARC emits model.py, because no other program reads
    the sizes.
    """
    problem = plan.problem
    version = problem.version("fsdp")
    settings = field_table(TABLE).settings(problem, plan.layout, version, DERIVED)
    if problem.launch.program:
        settings = {key: value for key, value in settings.items() if not key.startswith("model.")}
    return json.dumps(nest_settings(settings), indent=2, sort_keys=True) + "\n"
