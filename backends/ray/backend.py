"""Ray: engines in placement groups whose bundles are pinned to hosts."""

from __future__ import annotations

import json

from parc.backends.registry import engine
from parc.backends.shared.render import render
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Artifact, ServingPlan

TARGETS = ("ray",)


class Ray:
    """Backend ``ray``, for jobs that serve."""

    name = "ray"
    versions = ("2",)
    """The series of Ray whose placement groups are used; they are the same in all of it."""

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """V15 where an engine has data-parallel ranks, whose groups vLLM makes itself."""
        dp = plan.layout.dp
        if dp == 1:
            return
        free = plan.problem.pins.dp is None
        one = free and any(other.layout.dp == 1 for other in plan.search.ranked)
        without = [name for name in plan.problem.emit if name != "ray"]
        finding = Finding(
            f"{dp} data-parallel ranks cannot be pinned to hosts under Ray",
            label="vLLM makes their placement groups itself, in an order that Ray draws",
            help="the multiprocessing launch of the vllm target pins them",
            fix="layout.dp: 1" if one else f"emit: [{', '.join(without)}]",
            causes=(Cause("layout.dp", f"dp {dp}"),),
            targets=TARGETS,
        )
        sink.report("V15", finding, at="emit")

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """``ray/serve.py`` with the plan's ranks and command in it."""
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
        # A Python string in three quotes: JSON escapes quotes, and a backslash must stay one.
        literal = text.replace("\\", "\\\\").replace("'''", "\\'\\'\\'")
        return (Artifact("ray/serve.py", render("ray", "serve.py.j2", {"plan": literal}), True),)


BACKEND = Ray()
"""The one instance."""
