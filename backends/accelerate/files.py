"""Emission of the files of Accelerate: config.yaml, job.json and a training program."""

from __future__ import annotations

import json
from typing import Any

from parc.backends.accelerate import computed_settings
from parc.backends.accelerate.capabilities import missing_parts
from parc.backends.shared.field_table import field_table, nest_settings, public_functions
from parc.backends.shared.render import render, yaml_text
from parc.backends.shared.torch import program as torch_program
from parc.backends.shared.torch.emitted_program import (
    adapters_file,
    data_file,
    model_file,
    program_kind,
    start_file,
)
from parc.backends.shared.torch.framework import learning_rate_file
from parc.compiler.ir import Artifact, Plan

FOLDER, JOB = "accelerate", "job.json"
DERIVED = public_functions(torch_program, computed_settings)
"""Functions that fields.yaml names."""


def accelerate_files(plan: Plan) -> tuple[Artifact, ...]:
    """Return ``config.yaml``, ``job.json`` and, if the spec has no program, the training program.

    The program consists of ``train.py`` or ``hf_trainer.py``, ``hf_model.py``, ``start.py``,
    ``data.py`` and ``learning_rate.py``. It builds the model from its Hugging Face
    config, or from the sizes in ``job.json``.
    """
    tree, kind = settings_by_section(plan), program_kind(plan.problem, missing_parts)
    job = dict(tree["job"])
    files = [Artifact(f"{FOLDER}/config.yaml", yaml_text(tree["config"]))]
    if kind:
        job["model"] = tree["model" if kind == "decoder" else "hf"]
        name = "hf_trainer.py" if kind == "trainer" else "train.py"
        files.append(Artifact(f"{FOLDER}/{name}", render(FOLDER, f"{name}.j2", {})))
        files += [model_file(FOLDER, JOB, sizes=True), start_file(FOLDER, JOB)]
        files.append(data_file(FOLDER, JOB))
        files.append(learning_rate_file(FOLDER))
        if plan.problem.job.lora is not None:
            files.append(adapters_file(FOLDER, JOB))
    text = json.dumps(job, indent=2, sort_keys=True) + "\n"
    return (*files, Artifact(f"{FOLDER}/{JOB}", text))


def settings_by_section(plan: Plan) -> dict[str, Any]:
    """Return the settings of ``config.yaml`` and ``job.json`` as nested mappings.

    The keys at the top level are "config" for the first file, and "job" for the second. The section
    "model" of the second file is "model" for a Llama with the sizes of the spec, else "hf".
    """
    problem = plan.problem
    table = field_table("parc.backends.accelerate")
    version = problem.version("accelerate")
    return nest_settings(table.settings(problem, plan.layout, version, DERIVED))
