"""The environment of every process: network, stages, then what the user says."""

from __future__ import annotations

from parc.backends.shared.network import Variable, network_environment
from parc.compiler.ir import ServingPlan
from parc.compiler.ir.serving import even_stages
from parc.compiler.topology.engine_hosts import engine_hosts

PARTITION = "VLLM_PP_LAYER_PARTITION"


def serving_environment(plan: ServingPlan) -> tuple[Variable, ...]:
    """Name, value and reason of every variable to export; a name occurs once, the last one wins."""
    problem = plan.problem
    hosts = engine_hosts(plan.layout, problem.cluster.node.gpus) or 1
    network = network_environment(problem.cluster, problem.launch) if hosts > 1 else ()
    user = tuple((name, value, "the spec says so") for name, value in problem.launch.env)
    own = (*network, *_stages(plan))
    return tuple({variable[0]: variable for variable in (*own, *user)}.values())


def _stages(plan: ServingPlan) -> tuple[Variable, ...]:
    """Layers of every stage, where they are not those that vLLM would take itself."""
    stages = plan.layout.stages
    if not stages or stages == even_stages(plan.problem.model.layers, plan.layout.pp):
        return ()
    text = ",".join(map(str, stages))
    return ((PARTITION, text, "layers of every pipeline stage: room for cache in the fullest"),)
