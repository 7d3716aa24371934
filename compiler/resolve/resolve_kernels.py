"""Load the kernel-time fits of a GPU type from the catalog, for the cost model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from parc.backends.base import Framework
from parc.backends.registry import framework, is_built_in
from parc.compiler.catalog.library import Library
from parc.compiler.cost.kernels.hardware_fit import KernelFit, build_kernel_fit
from parc.compiler.cost.setup.calibrated_parameters import calibrated_kernels, efficiency_for_stack
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Cluster, Efficiency, Gpu, Problem
from parc.compiler.resolve.resolve_calibration import Calibration, check_calibration_stack


def cost_model_for(
    problem: Problem, framework: Framework, row: Efficiency | None = None
) -> CostModel:
    """Return the cost model that evaluates layouts of ``problem``.

    ``row`` contains efficiency factors to use instead of those in the catalog.
    """
    kernels = calibrated_kernels(kernel_fit_of_cluster(problem.cluster), problem)
    stack, generation = framework.stack, problem.cluster.generation
    if row is None and stack.origin(generation) == "runs" and not is_built_in(problem.framework):
        # The runs in the catalog are those of other frameworks with this stack.
        found = efficiency_for_stack(generation, stack)
        row = replace(found, gpu_sources=(), measured_launches=False)
    return CostModel(problem, framework, kernels, row)


def has_efficiency_factors(
    name: str, cluster: Cluster, calibration: Calibration, sink: Sink
) -> bool:
    """Return True if efficiency factors exist for the GPU generation and the framework ``name``.

    Otherwise the missing factors are reported (K08). A calibration for another software stack is
    reported too (Q08).
    """
    stack, generation = framework(name).stack, cluster.generation
    check_calibration_stack(calibration, cluster.gpu, stack, sink)
    if stack.efficiency_for(generation) is not None:
        return True
    file = generation.file or f"generations/{generation.name}.yaml"
    known = ", ".join(sorted(generation.efficiency))
    finding = Finding(
        f"{file}: efficiency.{stack.name} is missing, but {name} needs this section",
        label=f"no efficiency factors for {name} on this GPU generation",
        help=f"{file} has factors for: {known}",
    )
    if not is_built_in(name):
        # A plugin cannot change the files of the catalog.
        finding = Finding(
            f"{name} has no efficiency factors for GPUs of generation {generation.name}",
            label=f"its stack {stack.name} has no row for {generation.name} and no like",
            help=f"the plugin can set rows={{{generation.name!r}: Efficiency(...)}} in its "
            f"KernelStack, or like= to one of: {known}",
            targets=(name,),
        )
    sink.report("K08", finding, at="cluster.gpu")
    return False


def kernel_fit_of_cluster(cluster: Cluster) -> KernelFit:
    """Return the kernel-time fits of the cluster's GPU.

    A GPU without measurements gets the fits of another GPU, which ``kernels_like`` of its
    generation names. These fits are applied to the data-sheet rates of the unmeasured GPU.
    """
    return _kernel_fit_of_gpu(cluster.gpu, cluster.generation.kernels_like)


@cache
def _kernel_fit_of_gpu(gpu: Gpu, like: str) -> KernelFit:
    library = Library()
    return build_kernel_fit(gpu, lambda name: library.entry("kernels", name), like)
