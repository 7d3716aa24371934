"""Base class of serving engines: everything that most engines have in common, as default.

A backend overrides the members in which its engine differs. ``docs/plugins.md`` lists the defaults.
"""

from __future__ import annotations

from typing import ClassVar

from parc.backends.base import RayEntry
from parc.backends.engine_constants import load_engine_constants
from parc.backends.shared.network import network_environment
from parc.backends.shared.serving.engine_mesh import engine_families, engine_mesh
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Gpu, GroupFamily, Mesh, Model, ServingLayout, ServingPlan
from parc.compiler.ir.engine_constants import EngineConstants
from parc.compiler.ir.serving_plan import Service, ServingProblem, ServingRule


class PlainEngine:
    """An engine with tensor-parallel ranks next to each other, and one engine after another.

    A subclass defines ``name``, ``versions``, ``strategies``, ``formats`` or ``check_formats``,
    ``host_script``, ``command``, ``api_ports`` and ``emit_serving``, and its package contains
    ``constants.yaml``.
    """

    name: ClassVar[str]
    versions: ClassVar[tuple[str, ...]]
    order: ClassVar[str] = "tp-cp-pp-dp-replica"
    """Order of the axes of the mesh of all ranks, the fastest-varying axis first."""
    strategies: ClassVar[dict[str, str]]
    formats: ClassVar[tuple[str, ...]]
    """Number formats of weights and KV cache for which the engine has kernels."""
    vendors: ClassVar[tuple[str, ...]] = ("nvidia",)
    """Vendors of GPUs on which the engine runs."""
    long_context_setting = ""
    ray_entry: RayEntry | None = None
    health_path = "/health"

    @property
    def default_version(self) -> str:
        """The newest of ``versions``."""
        return self.versions[-1]

    def image(self, version: str, vendor: str) -> str:
        """Return no image, because none is published."""
        return ""

    def constants(self) -> EngineConstants:
        """Return the constants in ``constants.yaml`` of the package of the subclass.

        Raises:
            UndeclaredConstantsError: the file is missing or incomplete (reported as V32).
        """
        return load_engine_constants(self.name, type(self).__module__.rpartition(".")[0])

    def default_batch(self, gpu: Gpu) -> tuple[int, int]:
        """Return the limits in ``constants.yaml``, which are the same on all GPUs."""
        scheduling = self.constants().scheduling
        return scheduling.max_running, scheduling.max_batched_tokens

    def context_tokens(self, model: Model) -> int:
        """Return the context length in the model's config, without scaling."""
        return model.position.max_positions

    def check_formats(self, service: Service, gpu: Gpu, sink: Sink) -> None:
        """Report GPUs and formats without kernels (R03), and quantization while loading (E11)."""
        if gpu.vendor not in self.vendors:
            sink.report("R03", f"{self.name} has no kernels for {gpu.name}", at="cluster")
        found = {"precision": service.setup.weights, "kv_precision": service.setup.kv}
        for field, value in found.items():
            if value not in self.formats:
                what = "weights" if field == "precision" else "KV cache"
                finding = Finding(
                    f"{self.name} has no kernels for {value} {what}",
                    help=f"valid values: {', '.join(self.formats)}",
                    fix=f"job.{field}: {self.formats[0]}",
                    targets=(self.name,),
                )
                sink.report("R03", finding, at=f"job.{field}")
        if service.quantize:
            finding = Finding(
                f"{self.name} does not quantize a checkpoint while it loads",
                help="use a quantized checkpoint",
                fix="job.quantize: false",
                targets=(self.name,),
            )
            sink.report("E11", finding, at="job.quantize")

    def expert_parallel_sizes(self, layout: ServingLayout) -> tuple[int, ...]:
        """Return 1 (a part of each expert on every rank), and all ranks of a stage.

        The second size is left out if ``strategies`` lacks ``ep``.
        """
        stage = layout.tp * layout.pcp * layout.dp
        return (1, stage) if "ep" in self.strategies and stage > 1 else (1,)

    def decode_context_sizes(self, model: Model, layout: ServingLayout) -> tuple[int, ...]:
        """Return 1: ranks do not share the cache of a request."""
        return (1,)

    def rules(self, problem: ServingProblem) -> tuple[ServingRule, ...]:
        """Return no rules."""
        return ()

    def mesh(self, layout: ServingLayout) -> Mesh:
        """Return the device mesh of all ranks, with its axes in the order ``order``."""
        return engine_mesh(layout, self.order)

    def group_families(
        self, problem: ServingProblem, layout: ServingLayout
    ) -> tuple[GroupFamily, ...]:
        """Return one family per axis and, with expert parallelism, that of the experts."""
        return engine_families(problem.model.experts is not None and layout.ep > 1)

    def environment(self, plan: ServingPlan) -> tuple[tuple[str, str, str], ...]:
        """Return the variables of the network and of ``launch.env``."""
        launch = plan.problem.launch
        own = ((name, value, "set by launch.env") for name, value in launch.env)
        return (*network_environment(plan.problem.cluster, launch), *own)

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report load balancing inside an engine that the engine does not have (E11)."""
        balancer = plan.problem.endpoint.load_balancer
        if balancer != "internal":
            finding = Finding(
                f"{self.name} has no {balancer} load balancing",
                fix="launch.load_balancer: internal",
                targets=(self.name,),
            )
            sink.report("E11", finding, at="launch.load_balancer")


def scaled_context_tokens(model: Model) -> int:
    """Return the longest sequence, in tokens, of an engine that applies the scaling of positions.

    Only the scalings "linear" and "dynamic" multiply the length: for llama3, longrope and yarn, the
    config already contains the multiplied length.
    """
    position = model.position
    factor = position.scaling_factor if position.scaling in ("linear", "dynamic") else 1
    return int(position.max_positions * factor)
