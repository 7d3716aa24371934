"""A GPU type to the times of its kernels, read from the catalog when they are asked for."""

from __future__ import annotations

from functools import cache
from typing import Any

from parc.backends.base import Framework
from parc.compiler.catalog.library import Library
from parc.compiler.cost.kernels.hardware_fit import KernelFit, kernel_fit
from parc.compiler.cost.setup.calibrated import calibrated_kernels
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.ir import Gpu, Problem


def pricing_for(problem: Problem, framework: Framework, hardware: str = "") -> Pricing:
    """The memo of ``problem`` with the kernel fits of its GPU; ``hardware`` names another class."""
    kernels = calibrated_kernels(load_fit(problem.cluster.gpu), problem)
    return Pricing(problem, framework, kernels, hardware)


@cache
def load_fit(gpu: str | Gpu) -> KernelFit:
    """The kernel fits of a GPU noun, or of a catalog name; KeyError where it names nothing."""
    library = Library()
    noun = gpu if isinstance(gpu, Gpu) else _from_catalog(gpu, library)
    return kernel_fit(noun, lambda name: library.entry("kernels", name))


def _from_catalog(name: str, library: Library) -> Gpu:
    """The noun with what the fits use; memory and capability are left open."""
    entry: dict[str, Any] = library.entry("gpus", name)
    return Gpu(
        name=name,
        vendor=entry["vendor"],
        generation=entry["generation"],
        compute_capability=(0, 0),
        memory_bytes=0,
        memory_gb_per_s=float(entry["memory_gb_per_s"]),
        peak_tflops=tuple(sorted(entry["peak_tflops"].items())),
        source=str(entry["source"]),
    )
