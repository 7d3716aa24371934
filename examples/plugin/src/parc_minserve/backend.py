"""Minserve as an engine: members of the protocol ``Engine`` in PARC's ``backends/base.py``."""

from __future__ import annotations

from collections.abc import Mapping

from parc.backends.engine_constants import load_engine_constants
from parc.backends.shared.network import network_environment
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Artifact, Gpu, GroupFamily, Mesh, Model, ServingLayout, ServingPlan
from parc.compiler.ir.engine_constants import EngineConstants
from parc.compiler.ir.serving_plan import Service, ServingProblem, ServingRule
from parc_minserve.rules import RULES
from parc_minserve.script import PATH, flags, processes, serve_script

FORMATS = ("bf16", "fp8")


class Minserve:
    """Backend ``minserve``, an engine of serving jobs."""

    name = "minserve"
    versions = ("0.1", "0.2")
    default_version = "0.2"
    strategies: Mapping[str, str] = {
        "tp": "--tensor-parallel",
        "dp": "--data-parallel",
        "etp": "experts are split by --tensor-parallel x --data-parallel",
    }
    """PARC refuses layouts with other strategies (E08): Minserve has no pipelines, for example."""
    long_context_setting = ""
    ray_entry = None
    host_script = PATH
    health_path = "/ready"

    def image(self, version: str, vendor: str) -> str:
        """Return no image: Minserve publishes none."""
        del version, vendor
        return ""

    def constants(self) -> EngineConstants:
        """Return the constants in ``constants.yaml``."""
        return load_engine_constants(self.name, __package__ or "")

    def default_batch(self, gpu: Gpu) -> tuple[int, int]:
        """Return the default numbers of requests and of tokens per step, equal on all GPUs."""
        del gpu
        scheduling = self.constants().scheduling
        return scheduling.max_running, scheduling.max_batched_tokens

    def context_tokens(self, model: Model) -> int:
        """Return the context length in the model's config; Minserve does not scale it."""
        return model.position.max_positions

    def check_formats(self, service: Service, gpu: Gpu, sink: Sink) -> None:
        """Report R03 for GPUs and number formats without kernels, E11 for quantization."""
        weights, valid = service.setup.weights, f"valid values: {', '.join(FORMATS)}"
        if gpu.vendor != "nvidia":
            sink.report("R03", f"Minserve has no kernels for {gpu.name}", at="cluster")
        if weights not in FORMATS:
            message = f"Minserve has no kernels for {weights} weights"
            finding = Finding(message, help=valid, fix="job.precision: bf16")
            sink.report("R03", finding, at="job.precision")
        if service.quantize:
            message = "Minserve does not quantize a checkpoint while it loads"
            finding = Finding(message, help="use a quantized checkpoint", fix="job.quantize: false")
            sink.report("E11", finding, at="job.quantize")

    def expert_parallel_sizes(self, layout: ServingLayout) -> tuple[int, ...]:
        """Return 1: every rank stores a part of each expert."""
        del layout
        return (1,)

    def decode_context_sizes(self, model: Model, layout: ServingLayout) -> tuple[int, ...]:
        """Return 1: ranks do not share the cache of a request."""
        del model, layout
        return (1,)

    def rules(self, problem: ServingProblem) -> tuple[ServingRule, ...]:
        """Return all rules; they are the same for all versions."""
        del problem
        return RULES

    def mesh(self, layout: ServingLayout) -> Mesh:
        """Return the mesh: rank = dp TP + tp in an engine, and engines in sequence."""
        sizes = {"tp": layout.tp, "cp": layout.pcp, "pp": layout.pp, "dp": layout.dp}
        return Mesh.from_sizes((*sizes.items(), ("replica", layout.replicas)))

    def group_families(
        self, problem: ServingProblem, layout: ServingLayout
    ) -> tuple[GroupFamily, ...]:
        """Return the groups of Minserve, each of which is a column of the rank map."""
        del problem, layout
        return tuple(
            GroupFamily(axis, "dense", (axis,), column=True) for axis in ("replica", "dp", "tp")
        )

    def command(self, plan: ServingPlan, executor: str) -> tuple[str, ...]:
        """Return the words that start an engine, without the flags that differ by process."""
        del executor
        return ("minserve", "serve", *(word for flag in flags(plan) for word in flag))

    def environment(self, plan: ServingPlan) -> tuple[tuple[str, str, str], ...]:
        """Return the variables of the network and of ``launch.env``."""
        problem = plan.problem
        own = ((name, value, "set by launch.env") for name, value in problem.launch.env)
        return (*network_environment(problem.cluster, problem.launch), *own)

    def api_ports(self, plan: ServingPlan) -> tuple[tuple[int, int], ...]:
        """Return (node rank, port) of each API server: the first process of an engine runs it."""
        return tuple((one.node, one.port) for one in processes(plan) if one.first_rank == 0)

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report settings of the spec that Minserve would ignore."""
        problem = plan.problem
        if problem.launch.args:
            finding = Finding(
                "Minserve has no flags besides those of the plan", targets=(self.name,)
            )
            sink.report("F01", finding, at="launch.args")
        if problem.endpoint.load_balancer != "internal":
            message = f"Minserve has no {problem.endpoint.load_balancer} load balancing"
            fix = "launch.load_balancer: internal"
            sink.report("E11", Finding(message, fix=fix), at="launch.load_balancer")

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """Return ``minserve/serve.sh``."""
        return (serve_script(plan, self.environment(plan)),)


BACKEND = Minserve()
