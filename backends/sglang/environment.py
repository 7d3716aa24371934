"""Environment variables of the SGLang processes: network, stages, then those of the spec."""

from __future__ import annotations

from parc.backends.sglang.defaults import default_stages
from parc.backends.shared.launch_environment import engine_environment, stage_layers_variable
from parc.backends.shared.network import Variable
from parc.compiler.ir import ServingPlan

PARTITION = "SGLANG_PP_LAYER_PARTITION"
ALLOW_LONG = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
"""Variable that, if set to 1, makes SGLang accept a context length above the model's."""


def serving_environment(plan: ServingPlan) -> tuple[Variable, ...]:
    """Return (name, value, reason) of each environment variable of the SGLang processes.

    ``engine_environment`` describes the order of precedence.
    """
    default = default_stages(plan.problem.model.layers, plan.layout.pp)
    return engine_environment(plan, stage_layers_variable(plan, PARTITION, default, "SGLang"))
