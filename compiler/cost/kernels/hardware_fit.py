"""Kernel and collective fits of a GPU type, from the catalog entry of this or a similar GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parc.compiler.cost.kernels.attention import PrefillFit
from parc.compiler.cost.kernels.collective_time import OPERATIONS, CollectiveFit, Operation
from parc.compiler.cost.kernels.gemm import CastFit, GemmFit, HostLaunchFloors
from parc.compiler.cost.kernels.recurrence import ScanFit
from parc.compiler.ir import Gpu
from parc.compiler.ir.frozen import frozen

KernelEntry = Mapping[str, Any]
"""Entry of one GPU type in the kernel catalog: terms by section and precision."""
ReadEntry = Callable[[str], KernelEntry]
"""Function from the name of a GPU to its entry in the kernel catalog; KeyError if it has none."""

OPERAND_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625}
"""Bytes per element by precision, with scales; nvfp4 has one byte of scale per 16 elements."""
NEAREST = {
    "bf16": ("bf16",),
    "fp16": ("bf16",),
    "fp8": ("fp8", "fp8_block", "bf16"),
    "mxfp8": ("fp8", "fp8_block", "bf16"),
    "fp8_block": ("fp8_block", "fp8", "bf16"),
    "nvfp4": ("nvfp4", "fp8", "bf16"),
    "mxfp4": ("nvfp4", "fp8", "bf16"),
}
"""Precision of a job -> measured precisions whose fits can be used for it, best first."""
PEAKS = {"fp8_block": "fp8", "bf16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4"}
"""Measured precision -> precision of its peak in the data sheet."""


@frozen
class KernelFit:
    """Constants of all kernels and collectives of the cost model, for one GPU type."""

    gpu: str
    fitted: bool
    """True if the constants are fitted to measurements of this GPU type. Otherwise the constants of
    another GPU type are scaled by the data sheets."""
    gemms: Mapping[str, GemmFit]
    prefill: PrefillFit
    scan: ScanFit
    collectives: Mapping[Operation, CollectiveFit]

    def gemm_fit(self, precision: str) -> GemmFit:
        """Return the GEMM fit for ``precision``.

        If this precision has no fit, the first available substitute in ``NEAREST`` is used. A fit
        for bf16 always exists.
        """
        names = NEAREST.get(precision, ("bf16",))
        return next((self.gemms[name] for name in names if name in self.gemms), self.gemms["bf16"])


def build_kernel_fit(gpu: Gpu, read: ReadEntry, kernels_like: str) -> KernelFit:
    """Return the kernel and collective fits of ``gpu``.

    A fit multiplies the data-sheet numbers of the GPU by efficiency factors, which ``read`` reads
    from the kernel catalog. The key ``like`` of a catalog entry names the entry from which missing
    sections are copied. If the GPU has no entry, all sections are copied from the entry
    ``kernels_like``.
    """
    try:
        own = read(gpu.catalog_name)
    except KeyError:
        own = {"like": kernels_like, "fitted": False}
    entry = _fill_missing_sections(own, read)
    # Data-sheet numbers that every kernel fit needs; the fits are shares of these.
    core: dict[str, Any] = {
        "sms": int(entry["sms"]),
        "flops_per_second": _flops_per_second(gpu, "bf16") or 1e12,
        "bytes_per_second": gpu.memory_gb_per_s * 1e9,
    }
    return KernelFit(
        gpu=gpu.name,
        fitted=bool(own["fitted"]),
        gemms=_gemm_fits(gpu, core, entry),
        prefill=PrefillFit(**core, **_with_peak_share(entry, entry["prefill"]["terms"])),
        scan=ScanFit(**core, **entry["scan"]["terms"]),
        collectives={op: _collective_fit(op, entry["collectives"]) for op in OPERATIONS},
    )


def _fill_missing_sections(entry: KernelEntry, read: ReadEntry) -> KernelEntry:
    """Return ``entry`` with missing sections copied from the entry named by its key ``like``."""
    if "like" not in entry:
        return entry
    return {**_fill_missing_sections(read(entry["like"]), read), **entry}


def _flops_per_second(gpu: Gpu, precision: str) -> float | None:
    """Return the dense peak of ``gpu`` at ``precision`` in FLOP/s.

    The result is None if the data sheet has no peak at this precision. For bf16, the fp16 peak is
    accepted as well.
    """
    peak = gpu.peak_rate(PEAKS[precision])
    if peak is None and precision == "bf16":
        peak = gpu.peak_rate("fp16")
    return None if peak is None else peak * 1e12


def _gemm_fits(gpu: Gpu, core: Mapping[str, Any], entry: KernelEntry) -> dict[str, GemmFit]:
    """Return the GEMM fits of the catalog entry, by precision.

    ``core`` contains the data-sheet numbers that all fits need. Precisions that the GPU does not
    support are left out, except bf16.
    """
    fits = {}
    # A precision without tensor-core peak on this GPU has no fit, except bf16: every lookup may end
    # there.
    for precision, fit in entry["gemm"].items():
        flops_per_second = _flops_per_second(gpu, precision)
        if flops_per_second is None and precision != "bf16":
            continue
        own = _with_peak_share(entry, fit["terms"])
        terms = {**core, **own, "operand_bytes": OPERAND_BYTES[precision]}
        terms["flops_per_second"] = flops_per_second or core["flops_per_second"]
        terms |= {"cast": CastFit(**fit["cast"])} if "cast" in fit else {}
        terms |= {"floors": HostLaunchFloors(**fit["floors"])} if "floors" in fit else {}
        fits[precision] = GemmFit(**terms)
    return fits


def _with_peak_share(entry: KernelEntry, terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``terms`` with the share of the peak that the matrix units of this GPU achieve.

    GEMMs and attention use the same matrix units, so that the factor applies to both.
    """
    share = terms["peak_share"] * entry.get("peak_share_factor", 1.0)
    return {**terms, "peak_share": share}


def _collective_fit(operation: Operation, section: KernelEntry) -> CollectiveFit:
    """Return the fit of collective ``operation`` from the catalog section ``collectives``."""
    terms = section[operation]["terms"]
    return CollectiveFit(operation=operation, link_gb_per_s=section["link_gb_per_s"], **terms)
