"""Emission of the files of Accelerate: config.yaml, job.json and a training program."""

from __future__ import annotations

import json
from typing import Any

from parc.backends.accelerate import computed_settings
from parc.backends.shared.field_table import field_table, nest_settings, public_functions
from parc.backends.shared.render import render
from parc.backends.shared.torch import program as torch_program
from parc.backends.shared.torch.framework import learning_rate_file
from parc.backends.shared.yaml_text import yaml_text
from parc.compiler.ir import Artifact, Plan

FOLDER = "accelerate"
DERIVED = public_functions(torch_program, computed_settings)
"""Functions that fields.yaml names."""


def accelerate_files(plan: Plan) -> tuple[Artifact, ...]:
    """Return ``config.yaml``, ``job.json`` and, if the spec has no program, the training program.

    The program consists of ``train.py`` and ``learning_rate.py``. It builds the model from the
    sizes in ``job.json``.
    """
    tree = settings_by_section(plan)
    job = dict(tree["job"])
    files = [Artifact(f"{FOLDER}/config.yaml", yaml_text(tree["config"]))]
    if not plan.problem.launch.program:
        job["model"] = tree["model"]
        files.append(Artifact(f"{FOLDER}/train.py", render(FOLDER, "train.py.j2", {})))
        files.append(learning_rate_file(FOLDER))
    text = json.dumps(job, indent=2, sort_keys=True) + "\n"
    return (*files, Artifact(f"{FOLDER}/job.json", text))


def settings_by_section(plan: Plan) -> dict[str, Any]:
    """Return the settings of ``config.yaml`` and ``job.json`` as nested mappings.

    The keys at the top level are "config" for the first file, and "job" and "model" for the second.
    """
    problem = plan.problem
    table = field_table("parc.backends.accelerate")
    version = problem.version("accelerate")
    return nest_settings(table.settings(problem, plan.layout, version, DERIVED))
