"""Environment variables of the vLLM processes: network, uneven stages, then those of the spec."""

from __future__ import annotations

from parc.backends.shared.launch_environment import engine_environment, stage_layers_variable
from parc.backends.shared.network import Variable
from parc.backends.vllm.defaults import default_stages
from parc.compiler.ir import ServingPlan

PARTITION = "VLLM_PP_LAYER_PARTITION"
ALLOW_LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
"""Variable that, if set to 1, makes vLLM accept a max_model_len above the model's context
length."""


def serving_environment(plan: ServingPlan) -> tuple[Variable, ...]:
    """Return (name, value, reason) of each environment variable of the vLLM processes.

    ``engine_environment`` describes the order of precedence.
    """
    default = default_stages(plan.problem.model.layers, plan.layout.pp)
    return engine_environment(plan, stage_layers_variable(plan, PARTITION, default, "vLLM"))
