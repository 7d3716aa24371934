"""The backend ``ray``: a program that starts engines in placement groups, pinned to hosts."""

from __future__ import annotations

import json

from parc.backends.registry import engine
from parc.backends.shared.render import render
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Artifact, JobStart, ServingLayout, ServingPlan, ServingProblem
from parc.compiler.ir.serving_plan import ServingRule

TARGETS = ("ray",)


class Ray:
    """The backend ``ray``, for serving jobs only."""

    name = "ray"
    versions = ("2",)
    """Ray releases; all 2.x releases support the placement groups that PARC uses."""

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report an engine that Ray cannot start on the planned hosts (V15), and set-up (L30)."""
        _check_setup_and_environment(plan, sink)
        name = plan.problem.framework
        if engine(name).ray_entry is None:
            finding = Finding(
                f"under Ray, the ranks of {name} cannot be bound to the planned hosts",
                label=f"PARC has no Ray program for {name}",
                help=_start_without_ray(name),
                fix=_emit_without_ray(plan.problem),
                targets=TARGETS,
            )
            sink.report("V15", finding, at="emit")

    def launcher_rules(self, problem: ServingProblem) -> tuple[ServingRule, ...]:
        """Return the rule that an engine has no data-parallel ranks (V15).

        There is none for an engine that Ray cannot start at all, which ``check_serving`` reports.
        """
        return () if engine(problem.framework).ray_entry is None else (DATA_PARALLEL_RULE,)

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """Return ``ray/serve.py``. It contains the host of every rank and the engine's command."""
        target = engine(plan.problem.framework)
        placement, gpus = plan.placement, plan.layout.engine_gpus
        each, named = placement.ranks_per_node, plan.problem.cluster.named
        document = {
            "command": list(target.command(plan, executor="ray")),
            "engines": [
                [rank // each for rank in range(replica * gpus, (replica + 1) * gpus)]
                for replica in range(plan.layout.replicas)
            ],
            "environment": {name: value for name, value, _ in target.environment(plan)},
            "hosts": [host.name for host in placement.hosts] if named else [],
            "nodes": len(placement.hosts),
            "port": plan.problem.endpoint.port,
        }
        text = json.dumps(document, indent=2, sort_keys=True)
        # The program contains the JSON in a triple-quoted string, so backslashes are doubled.
        literal = text.replace("\\", "\\\\").replace("'''", "\\'\\'\\'")
        values = {"plan": literal, "entry": target.ray_entry}
        program = render("ray", "serve.py.j2", values)
        return (Artifact("ray/serve.py", program, True, JobStart("python")),)


def _has_data_parallel_ranks(problem: ServingProblem, layout: ServingLayout) -> bool:
    # The engine creates the placement groups of its data-parallel ranks itself, in an order that
    # Ray chooses: vllm-project/vllm v1/engine/utils.py, create_dp_placement_groups.
    return layout.dp > 1


def _explain_data_parallel_ranks(problem: ServingProblem, layout: ServingLayout) -> Finding:
    name, dp = problem.framework, layout.dp
    return Finding(
        f"under Ray, {dp} data-parallel ranks cannot be bound to the planned hosts",
        label=f"{name} creates the placement groups itself, in an order that Ray chooses",
        help=_start_without_ray(name),
        fix=_emit_without_ray(problem),
        causes=(Cause("layout.dp", f"dp {dp}"),),
        targets=TARGETS,
    )


def _start_without_ray(name: str) -> str:
    return (
        f"without Ray, the launch script of the target {name} starts each rank on its planned host"
    )


def _emit_without_ray(problem: ServingProblem) -> str:
    return f"emit: [{', '.join(target for target in problem.emit if target != 'ray')}]"


DATA_PARALLEL_RULE = ServingRule(
    "V15", ("emit", "layout.dp"), _has_data_parallel_ranks, _explain_data_parallel_ranks, ("dp",)
)
"""Rule that engines under Ray have dp 1."""


def _check_setup_and_environment(plan: ServingPlan, sink: Sink) -> None:
    """Report set-up commands and inherited variables, which Ray's workers would not get (L30)."""
    launch = plan.problem.launch
    help_text = "prepare the environment before `ray start` on each host, or remove the target ray"
    if launch.setup:
        text = f"ray/serve.py cannot run the {len(launch.setup)} commands of launch.setup"
        finding = Finding(text, help=help_text, targets=TARGETS)
        sink.report("L30", finding, at="launch.setup")
    if plan.problem.service.setup.pool != "both":
        finding = Finding(
            "ray/serve.py cannot set the address at which an engine offers its KV cache",
            label="each process needs the address of its host",
            help="serve.sh of the engine sets it: start the pool with slurm, kubernetes, or on the "
            "hosts themselves",
            fix="remove ray from emit",
            targets=TARGETS,
        )
        sink.report("V45", finding, at="job.pool")
    for name in launch.env_inherited:
        text = f"ray/serve.py cannot pass {name} from the environment of one host to another"
        finding = Finding(text, help=help_text, targets=TARGETS)
        sink.report("L30", finding, at=f"launch.env.{name}")


BACKEND = Ray()
