"""Minserve as an engine: members of the protocol ``Engine`` in PARC's ``backends/base.py``.

``PlainEngine`` has the members in which Minserve is like most engines: its constants, defaults,
number formats, mesh, groups and environment.
"""

from __future__ import annotations

from typing import ClassVar

from parc.backends.plain_engine import PlainEngine
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Artifact, ServingPlan
from parc.compiler.ir.serving_plan import ServingProblem, ServingRule
from parc_minserve.rules import RULES
from parc_minserve.script import PATH, flags, processes, serve_script


class Minserve(PlainEngine):
    """Backend ``minserve``, an engine of serving jobs."""

    name = "minserve"
    versions = ("0.1", "0.2")
    strategies: ClassVar[dict[str, str]] = {
        "tp": "--tensor-parallel",
        "dp": "--data-parallel",
        "etp": "experts are split by --tensor-parallel x --data-parallel",
    }
    """PARC refuses layouts with other strategies (E08): Minserve has no pipelines, for example."""
    formats = ("bf16", "fp8")
    host_script = PATH
    health_path = "/ready"

    def rules(self, problem: ServingProblem) -> tuple[ServingRule, ...]:
        """Return all rules; they are the same for all versions."""
        del problem
        return RULES

    def command(self, plan: ServingPlan, executor: str) -> tuple[str, ...]:
        """Return the words that start an engine, without the flags that differ by process."""
        del executor
        return ("minserve", "serve", *(word for flag in flags(plan) for word in flag))

    def api_ports(self, plan: ServingPlan) -> tuple[tuple[int, int], ...]:
        """Return (node rank, port) of each API server: the first process of an engine runs it."""
        return tuple((one.node, one.port) for one in processes(plan) if one.first_rank == 0)

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report settings of the spec that Minserve would ignore."""
        super().check_serving(plan, sink)
        if plan.problem.launch.args:
            finding = Finding(
                "Minserve has no flags besides those of the plan", targets=(self.name,)
            )
            sink.report("F01", finding, at="launch.args")

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """Return ``minserve/serve.sh``."""
        return (serve_script(plan, self.environment(plan)),)


BACKEND = Minserve()
