"""Serving plans as cases for the checking program of SGLang: commands, environment, config.json."""

from __future__ import annotations

from typing import Any

from parc.backends.sglang.arguments import MODEL, shared_arguments
from parc.backends.sglang.environment import PARTITION, serving_environment
from parc.backends.sglang.processes import plan_processes
from parc.backends.shared.serving.serve_script import EngineProcess, HostAddress
from parc.compiler.ir import Gpu, ServingPlan
from tests.conformance.vllm.cases import config_of

Case = dict[str, Any]
GROUPS = {"tp": "attention_tp", "pp": "pp", "ep": "moe_ep"}
"""Column of the rank map -> SGLang's name of the groups."""


def sglang_gpu(gpu: Gpu) -> dict[str, Any]:
    """Return a GPU of PARC's catalog in the fields of ``sglang_machine.Machine``."""
    return {
        "name": f"NVIDIA {gpu.catalog_name}",
        "memory_gib": gpu.memory_bytes / 2**30,
        "capability": list(gpu.compute_capability),
    }


def words_of(plan: ServingPlan, process: EngineProcess) -> list[str]:
    """Return the words after the module for one process of the plan."""
    words = [MODEL, plan.problem.service.checkpoint]
    words += [word for argument in shared_arguments(plan) for word in argument.words]
    for name, value in process.flags:
        words.append(name)
        if isinstance(value, HostAddress):
            words.append(f"{plan.placement.hosts[value.node].name}:{value.port}")
        elif value is not None:
            words.append(str(value))
    return [*words, *plan.problem.launch.args]


def cases_of(plan: ServingPlan) -> list[tuple[EngineProcess, Case]]:
    """Return cases of the first and the last process of the first engine."""
    running = [one for one in plan_processes(plan) if one.replica == 0]
    chosen = {id(one): one for one in (running[0], running[-1])}
    return [(one, case_of(plan, one, one is running[0])) for one in chosen.values()]


def case_of(plan: ServingPlan, process: EngineProcess, groups: bool) -> Case:
    """Return a case for one process; ``groups`` requests the groups of its engine."""
    problem = plan.problem
    setup = problem.service.setup
    checkpoint = "bf16" if problem.service.quantize else setup.weights
    return {
        "name": f"{problem.name} node {process.node} engine {process.replica}",
        "argv": words_of(plan, process),
        "env": {name: value for name, value, _ in serving_environment(plan) if name == PARTITION},
        "gpu": sglang_gpu(problem.cluster.gpu),
        "gpus_per_node": len(process.devices),
        "config": config_of(problem.model, checkpoint),
        "groups": groups,
    }


def differences(plan: ServingPlan, process: EngineProcess, verdict: dict[str, Any]) -> list[str]:
    """Return all differences between SGLang's verdict and the plan."""
    if not verdict["accepted"]:
        return [f"rejected at {verdict['stage']}: {verdict['error'][-300:]}"]
    layout, limits = plan.layout, plan.limits
    wanted: dict[str, Any] = {
        "tp": layout.tp * layout.dp,
        "pp": layout.pp,
        "dp": layout.dp,
        "ep": layout.ep,
        "max_model_len": limits.max_model_len,
        "max_num_seqs": limits.max_num_seqs * layout.dp,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "gpu_memory_utilization": limits.gpu_memory_utilization,
        "block_size": plan.problem.service.block_tokens,
        "pp_layers": [stage.layers for stage in plan.stages],
        "node_ranks": _planned_ranks(plan, process),
    }
    sizes = verdict["sizes"]
    found = [
        f"{name}: SGLang {sizes.get(name)}, PARC {value}"
        for name, value in wanted.items()
        if sizes.get(name) != value
    ]
    return found + _group_differences(plan, verdict)


def _planned_ranks(plan: ServingPlan, process: EngineProcess) -> list[int]:
    """Return the ranks of the engine on the GPUs of this process, from the rank map."""
    first = process.node * plan.placement.ranks_per_node
    base = process.replica * plan.layout.engine_gpus
    return [first + device - base for device in process.devices]


def _group_differences(plan: ServingPlan, verdict: dict[str, Any]) -> list[str]:
    """Return differences between groups; SGLang lists groups that equal its tp only there."""
    if "groups" not in verdict:
        return []
    mesh, gpus = plan.placement.dense, plan.layout.engine_gpus
    found = []
    for family in plan.placement.families:
        name = GROUPS.get(family.name)
        if name is None:
            continue
        theirs = verdict["groups"].get(name, verdict["groups"]["tp"])
        ours = [sorted(group) for group in mesh.groups_along(*family.axes) if max(group) < gpus]
        if sorted(map(sorted, theirs)) != sorted(ours):
            found.append(f"groups {name}: SGLang {theirs[:3]}, PARC {ours[:3]}")
    return found
