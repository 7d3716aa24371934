"""Plans of PyTorch's frameworks as cases for their checking programs, and the expected groups."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, cast

from parc.backends.accelerate.files import accelerate_files as accelerate_files
from parc.backends.registry import backend, framework_of_problem
from parc.backends.torchtitan.module_file import module_file
from parc.compiler.ir import Layout, Plan, Problem
from parc.compiler.topology.node_groups import ranks_per_node
from tests.backends.torch.specs import valid_spec
from tests.compiled import Spec, planned, resolved
from tests.every_layout import enumerate_layouts

Case = dict[str, Any]
FAMILY_OF = {
    "pp": "pp",
    "dp_replicate": "dp-replicate",
    "dp_shard": "dp-shard",
    "cp": "cp",
    "tp": "tp",
    "ep": "ep",
    "efsdp": "efsdp",
    "batch": "dp",
    "dp": "dp",
    "loss": "dp-cp",
    "dp_shard_cp": "dp-shard-cp",
    "dp_cp": "dp-cp",
}
"""Name of a mesh in torchtitan or Accelerate -> group family of the rank map."""


def valid_plans(name: str, count: int) -> dict[str, Plan]:
    """Return plans of random valid specs, all of which compile."""
    plans = {}
    for seed in range(count):
        plan, sink = planned(valid_spec(name, seed))
        assert plan is not None, (seed, sink.diagnostics)
        plans[f"legal {seed}"] = plan
    return plans


def plan_without_checks(problem: Problem, layout: Layout) -> Plan:
    """Return a plan with the parts that the files are generated from, without checking any rule."""
    job = replace(problem.job, checkpoint_interval=problem.job.checkpoint_interval or 500)
    return Plan(replace(problem, job=job), layout, *[cast(Any, None)] * 4)


def layout_as_pinned(spec: Spec) -> tuple[Problem, Layout] | None:
    """Return the problem and the layout with the pinned sizes, valid or not; None if there is no
    such layout.
    """
    problem, _ = resolved(spec)
    if problem is None:
        return None
    families = enumerate_layouts(problem, framework_of_problem(problem))
    first = next(families, None)
    return None if first is None else (problem, first[0])


def titan_case(name: str, plan: Plan, rank: int) -> Case:
    """Return the module as a case, checked on ``rank`` of the plan's world."""
    text = module_file(plan).text
    world = plan.layout.world
    return {"name": name, "module_text": text, "world": world, "rank": rank}


def accelerate_case(name: str, plan: Plan, rank: int) -> Case:
    """Return the config file with the arguments of launch.sh on the host of ``rank``."""
    layout = plan.layout
    each = ranks_per_node(plan.problem.cluster.node.gpus, layout.world)
    files = {artifact.path: artifact.text for artifact in accelerate_files(plan)}
    words = [
        f"--num_machines={layout.world // each}",
        f"--num_processes={layout.world}",
        f"--machine_rank={rank // each}",
        "--main_process_ip=10.0.0.1",
        "--main_process_port=29500",
    ]
    text = files["accelerate/config.yaml"]
    case = {"name": name, "yaml_text": text, "args": words, "rank": rank}
    if plan.problem.framework == "deepspeed":
        case["files"] = {file.path: file.text for file in backend("deepspeed").emit(plan)}
    return case


def planned_group(plan: Plan, family: str, rank: int) -> list[int]:
    """Return the group of ``rank`` in a family of the rank map, ascending."""
    placement = plan.placement
    one = next(found for found in placement.families if found.name == family)
    mesh = placement.mesh(one.mesh)
    axes = mesh.select_axes(*one.axes)
    base = rank - sum(rank // axis.stride % axis.size * axis.stride for axis in axes)
    walks = product(*(range(axis.size) for axis in axes))
    return sorted(
        base + sum(step * axis.stride for step, axis in zip(walk, axes, strict=True))
        for walk in walks
    )


def differing_groups(plan: Plan, groups: dict[str, list[int]], rank: int) -> list[str]:
    """Return the names of meshes whose group of ``rank`` differs from the rank map."""
    made = {one.name for one in plan.placement.families}
    return [
        name
        for name, ranks in groups.items()
        if FAMILY_OF[name] in made and sorted(ranks) != planned_group(plan, FAMILY_OF[name], rank)
    ]
