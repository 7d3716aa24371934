"""Megatron's own programs: one builds a GPTModel, the other a HybridModel from a pattern."""

from __future__ import annotations

from parc.backends.shared.versions import parse_version
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Model, Plan, Problem

PLAIN = "pretrain_gpt.py"
HYBRID = "pretrain_hybrid.py"
OLD_HYBRID = "pretrain_mamba.py"
"""Before 0.18; later it is a name for pretrain_hybrid.py, with a warning."""
HYBRID_SINCE = (0, 18)
STACK = ("megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec")
OLD_STACK = ("megatron.core.models.mamba.mamba_layer_specs", "mamba_stack_spec")

GROUPED_GEMM = (8, 0)
"""Least compute capability of the grouped GEMM kernels (validate_args)."""


def stack_of(version: str) -> tuple[str, str]:
    """Module and name that describe the layers of a pattern."""
    return STACK if parse_version(version) >= HYBRID_SINCE else OLD_STACK


def default_program(model: Model, version: str) -> str:
    """The program that builds ``model``."""
    if not model.pattern:
        return PLAIN
    return HYBRID if parse_version(version) >= HYBRID_SINCE else OLD_HYBRID


def check_program(plan: Plan, sink: Sink) -> None:
    """Report E10 where Megatron's own program would build another model than the plan's."""
    problem = plan.problem
    finding = wrong_program(problem.launch.program, problem.model, problem.version("megatron"))
    if finding is not None:
        sink.report("E10", finding, at="launch.program")


def wrong_program(program: str, model: Model, version: str) -> Finding | None:
    """What is wrong with ``program``, a path; None for one that builds ``model``, or may."""
    name = program.rpartition("/")[2]
    if name not in ((PLAIN,) if model.pattern else (HYBRID, OLD_HYBRID)):
        return None
    own = default_program(model, version)
    builds = "models without a pattern" if model.pattern else "models from a pattern alone"
    return Finding(
        message=f"{name} does not build {model.name}",
        label=f"it builds {builds}",
        help=f"legal: {own}, or a program of your own",
        fix=f"launch.program: {own}",
        causes=(Cause("model", "the model comes from here"),),
        targets=("megatron",),
    )


def has_grouped_gemm(problem: Problem) -> bool:
    """Whether the GPU can."""
    gpu = problem.cluster.gpu
    return gpu.vendor == "amd" or gpu.compute_capability >= GROUPED_GEMM
