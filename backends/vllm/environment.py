"""Environment variables of the vLLM processes: network, uneven stages, then those of the spec."""

from __future__ import annotations

from parc.backends.shared.launch_environment import drop_inherited_variables
from parc.backends.shared.network import Variable, network_environment
from parc.backends.vllm.defaults import default_stages
from parc.compiler.ir import ServingPlan
from parc.compiler.topology.arrange_hosts import engine_hosts

PARTITION = "VLLM_PP_LAYER_PARTITION"
ALLOW_LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
"""Variable with which, set to 1, vLLM accepts a max_model_len above the model's context length."""


def serving_environment(plan: ServingPlan) -> tuple[Variable, ...]:
    """Return (name, value, reason) of each environment variable of the vLLM processes.

    Each name occurs once. A variable in ``launch.env`` of the spec replaces any other variable of
    the same name.
    """
    problem = plan.problem
    hosts = engine_hosts(plan.layout, problem.cluster.node.gpus) or 1
    network = network_environment(problem.cluster, problem.launch) if hosts > 1 else ()
    user = tuple((name, value, "from launch.env of the spec") for name, value in problem.launch.env)
    own = (*network, *_stage_layers_variable(plan))
    return drop_inherited_variables((*own, *user), problem.launch)


def _stage_layers_variable(plan: ServingPlan) -> tuple[Variable, ...]:
    """Return the variable that sets the layers per pipeline stage.

    Return nothing if the layers are split as vLLM does by default.
    """
    stages = plan.layout.stages
    if not stages or stages == default_stages(plan.problem.model.layers, plan.layout.pp):
        return ()
    text = ",".join(map(str, stages))
    return ((PARTITION, text, "layers per pipeline stage, different from vLLM's default split"),)
