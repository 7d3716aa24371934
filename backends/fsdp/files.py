"""Files of the backend ``fsdp``: the plan as JSON, and the Python programs that read it."""

from __future__ import annotations

import json

from parc.backends.fsdp import computed_settings
from parc.backends.shared.field_table import field_table, nest_settings, public_functions
from parc.backends.shared.render import render
from parc.backends.shared.torch import program as torch_program
from parc.backends.shared.torch.emitted_program import (
    ProgramKind,
    adapters_file,
    data_file,
    model_file,
    program_kind,
    start_file,
)
from parc.backends.shared.torch.framework import learning_rate_file
from parc.backends.shared.unsupported_features import unsupported_model_features
from parc.compiler.ir import Artifact, Plan

FOLDER, CONFIG = "fsdp", "config.json"
TABLE = "parc.backends.fsdp"
DERIVED = public_functions(torch_program, computed_settings)
"""Functions that fields.yaml names."""


def fsdp_files(plan: Plan) -> tuple[Artifact, ...]:
    """Return ``config.json``, ``parallelize.py`` and, if the spec has no program, the program.

    The program consists of ``train.py``, ``start.py``, ``data.py``, ``learning_rate.py``, and the
    module that builds the model: ``model.py`` for PARC's own decoder, ``hf_model.py`` for
    transformers, with ``adapters.py`` for LoRA.
    """
    kind = program_kind(plan.problem, unsupported_model_features)
    names = ["parallelize.py"]
    names += ["train.py"] if kind else []
    names += ["model.py"] if kind == "decoder" else []
    files = [Artifact(f"{FOLDER}/{name}", render(FOLDER, f"{name}.j2", {})) for name in names]
    if kind:
        files += [start_file(FOLDER, CONFIG), data_file(FOLDER, CONFIG), learning_rate_file(FOLDER)]
    files += [model_file(FOLDER, CONFIG, meta=True)] if kind == "transformers" else []
    if kind and plan.problem.job.lora is not None:
        files.append(adapters_file(FOLDER, CONFIG))
    return (Artifact(f"{FOLDER}/{CONFIG}", config_json(plan, kind)), *files)


def config_json(plan: Plan, kind: ProgramKind) -> str:
    """Return the text of ``fsdp/config.json``, which contains the settings of the plan.

    The model is included only if PARC emits the program, because no other program reads it.
    """
    problem = plan.problem
    version = problem.version("fsdp")
    settings = field_table(TABLE).settings(problem, plan.layout, version, DERIVED)
    tree = nest_settings(settings)
    decoder, transformers = tree.pop("model"), tree.pop("hf")
    if kind:
        tree["model"] = decoder if kind == "decoder" else transformers
    return json.dumps(tree, indent=2, sort_keys=True) + "\n"
