"""Environment variables of the SGLang processes: network, stages, then those of the spec."""

from __future__ import annotations

from parc.backends.sglang.defaults import default_stages
from parc.backends.shared.launch_environment import drop_inherited_variables
from parc.backends.shared.network import Variable, network_environment
from parc.compiler.ir import ServingPlan
from parc.compiler.topology.arrange_hosts import engine_hosts

PARTITION = "SGLANG_PP_LAYER_PARTITION"
ALLOW_LONG = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
"""Variable with which, set to 1, SGLang accepts a context length above the model's."""


def serving_environment(plan: ServingPlan) -> tuple[Variable, ...]:
    """Return (name, value, reason) of each environment variable of the SGLang processes.

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
    """Return the variable that sets the layers per pipeline stage, unless it is the default."""
    stages = plan.layout.stages
    if not stages or stages == default_stages(plan.problem.model.layers, plan.layout.pp):
        return ()
    text = ",".join(map(str, stages))
    return ((PARTITION, text, "layers per pipeline stage, different from SGLang's default split"),)
