"""Load the kernel timings of a GPU type from the catalog, and evaluate problems with them."""

from __future__ import annotations

from functools import cache
from typing import Any

from parc.backends.base import Framework
from parc.compiler.catalog.library import Library
from parc.compiler.cost.kernels.hardware_fit import KernelFit, kernel_fit
from parc.compiler.cost.setup.calibrated import calibrated_kernels
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.ir import Cluster, Efficiency, Gpu, Problem


def pricing_for(problem: Problem, framework: Framework, row: Efficiency | None = None) -> Pricing:
    """Return the memo that evaluates layouts of ``problem``.

    ``row`` replaces the efficiency factors that the GPU generation has for the framework's stack.
    """
    kernels = calibrated_kernels(cluster_fit(problem.cluster), problem)
    return Pricing(problem, framework, kernels, row)


def cluster_fit(cluster: Cluster) -> KernelFit:
    """Return the kernel fits of the cluster's GPU, or of the GPU that its generation refers to."""
    return _gpu_fit(cluster.gpu, cluster.generation.kernels_like)


@cache
def load_fit(name: str) -> KernelFit:
    """Return the kernel fits of a GPU of the catalog; KeyError for an unknown name."""
    entry: dict[str, Any] = Library().entry("gpus", name)
    # The fits use data-sheet rates only, so that memory and capability are not filled in.
    gpu = Gpu(
        name=name,
        vendor=entry["vendor"],
        generation=entry["generation"],
        compute_capability=(0, 0),
        memory_bytes=0,
        memory_gb_per_s=float(entry["memory_gb_per_s"]),
        peak_tflops=tuple(sorted(entry["peak_tflops"].items())),
        source=str(entry["source"]),
    )
    return _gpu_fit(gpu, name)


@cache
def _gpu_fit(gpu: Gpu, like: str) -> KernelFit:
    library = Library()
    return kernel_fit(gpu, lambda name: library.entry("kernels", name), like)
