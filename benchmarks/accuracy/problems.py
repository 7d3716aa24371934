"""Training problem of a published measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from parc.backends.megatron.backend import Megatron
from parc.backends.shared.torch.traffic import transformers_traffic, under_deepspeed
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Cluster, Goals, Model, Pins, Problem, ProgramTraffic
from parc.compiler.ir.program_memory import GradientExchange, ProgramMemory
from parc.compiler.resolve.resolve_launch import resolve_launch
from parc.compiler.resolve.resolve_problem import resolve_job
from parc.compiler.resolve.resolve_targets import Targets
from parc.compiler.spec.job_spec import JobSpec
from parc.compiler.spec.launch_spec import LaunchSpec


class PublishedProgram(Megatron):
    """Megatron, but with the sharding of torch and JAX programs at ZeRO stages 2 and 3.

    No published run uses Megatron-FSDP, so rows of these stages are from other programs.
    """

    gradient_exchange = GradientExchange()

    def training_memory_model(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of Megatron, which does not depend on the ZeRO stage here."""
        return replace(super().training_memory_model(problem), fully_sharded=None)


MEGATRON = PublishedProgram()


@dataclass(frozen=True)
class TorchProgram(PublishedProgram):
    """Program of torch whose element-wise kernels no compiler fuses."""

    traffic: Callable[[Model], ProgramTraffic]
    """Return the memory traffic of the program that trains a model."""

    def program_traffic(self, problem: Problem) -> ProgramTraffic:
        """Return the memory traffic of the program's element-wise kernels."""
        return self.traffic(problem.model)


def _transformers_under_deepspeed(model: Model) -> ProgramTraffic:
    return under_deepspeed(transformers_traffic(model))


PROGRAMS: dict[str, PublishedProgram] = {
    "transformers-fsdp": TorchProgram(transformers_traffic),
    "transformers-deepspeed": TorchProgram(_transformers_under_deepspeed),
    "transformers-pipeline": TorchProgram(_transformers_under_deepspeed),
}
"""Framework of a run -> its program, if its kernels are not the fused ones of ``MEGATRON``."""


def problem_of(name: str, model: Model, cluster: Cluster, spec: JobSpec) -> Problem:
    """Return the problem of a job whose layout is known: no memory headroom, no limits, no pins.

    Options of the job that the source does not state have the defaults of the spec.
    """
    job = resolve_job(spec, Sink())
    assert job is not None  # the batch is given in sequences, so no rule can reject it
    targets = Targets((), "megatron", (("megatron", MEGATRON.default_version),))
    return Problem(
        name=name,
        model=model,
        cluster=cluster,
        job=job,
        goals=Goals("throughput", 0.0, 0.01, "allow", ()),
        pins=Pins(),
        launch=resolve_launch(LaunchSpec(), targets),
        emit=targets.emit,
        framework=targets.framework,
        versions=targets.versions,
        digest="",
        calibration=(),
    )
