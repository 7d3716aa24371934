"""Emission of ``torchtitan/parc_titan.py``, whose function ``run`` returns ``Trainer.Config``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parc.backends.shared.field_table import field_table, nest_settings, public_functions
from parc.backends.shared.render import render
from parc.backends.shared.torch import program as torch_program
from parc.backends.torchtitan import computed_settings
from parc.backends.torchtitan.flavors import find_registered_flavor
from parc.backends.torchtitan.python_code import python_literal
from parc.compiler.ir import Artifact, PipelineSplit, Plan, Recompute

FOLDER = "torchtitan"
MODULE = "parc_titan"
SECTIONS = (
    "trainer",
    "training",
    "optimizer",
    "lr_scheduler",
    "debug",
    "dataloader",
    "checkpoint",
    "parallelism",
    "model",
    "rope",
)
DERIVED = public_functions(torch_program, computed_settings)
"""Functions that fields.yaml names."""


def module_file(plan: Plan) -> Artifact:
    """Return ``torchtitan/parc_titan.py``, the Python module that configures the training run.

    If torchtitan's registry contains a model with the same sizes, the module uses that model.
    Otherwise it builds a decoder from the sizes.
    """
    problem, layout = plan.problem, plan.layout
    version = problem.version("torchtitan")
    table = field_table("parc.backends.torchtitan")
    tree = nest_settings(table.settings(problem, layout, version, DERIVED))
    flavor = find_registered_flavor(problem.model)
    values: dict[str, Any] = {
        section: keyword_arguments(tree.get(section, {})) for section in SECTIONS
    }
    values |= {
        "version": version,
        "flavor": flavor.name if flavor else "",
        "module": flavor.module if flavor else "",
        "stages": stage_layers(layout.split) if layout.pp > 1 else [],
        "loads": problem.job.load_dir is not None,
        "recompute": recompute_policy(layout.recompute),
    }
    return Artifact(f"{FOLDER}/{MODULE}.py", render(FOLDER, f"{MODULE}.py.j2", values))


def keyword_arguments(settings: Mapping[str, Any]) -> list[str]:
    """Return the settings as keyword arguments in Python source, such as ``lr=0.001``."""
    return [f"{name}={python_literal(value)}" for name, value in settings.items()]


def stage_layers(split: PipelineSplit) -> list[int]:
    """Return the number of layers of each virtual stage, in the order of the model."""
    chunks = [chunk for stage in split.chunks for chunk in stage]
    # A chunk without layers has the same first layer as the next one; the last chunk has the loss.
    order = sorted(chunks, key=lambda chunk: (chunk.first_layer, chunk.loss))
    return [chunk.layers for chunk in order]


def recompute_policy(recompute: Recompute) -> str:
    """Return the Python expression for torchtitan's activation-checkpointing setting."""
    named = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}
    return named[recompute.granularity]
