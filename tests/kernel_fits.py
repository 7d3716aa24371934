"""Kernel-time fits of GPUs in the catalog, without a cluster."""

from __future__ import annotations

from functools import cache

from parc.compiler.catalog.library import Library
from parc.compiler.cost.kernels.hardware_fit import KernelFit, build_kernel_fit
from parc.compiler.ir import Gpu


@cache
def kernel_fit_of_gpu(name: str) -> KernelFit:
    """Return the kernel-time fits of the catalog GPU ``name``; KeyError if there is no such GPU."""
    library = Library()
    entry = library.entry("gpus", name)
    # The fits depend only on data-sheet rates, so memory and capability are left at 0.
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
    return build_kernel_fit(gpu, lambda one: library.entry("kernels", one), name)
