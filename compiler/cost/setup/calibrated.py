"""The parameters that a user's own measurements may replace, and the replacing.

A calibrated value has a name: that of a field of ``Efficiency`` (``gemm``), or of a term of one
collective inside a host (``all_reduce.bus_gb_per_s``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from parc.compiler.cost.fitting.fit import Prior
from parc.compiler.cost.kernels.collective_time import OPERATIONS, Operation
from parc.compiler.cost.kernels.hardware_fit import KernelFit
from parc.compiler.cost.setup.efficiency import Efficiency, efficiency
from parc.compiler.ir import Gpu, Problem

Values = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """What is believed of one parameter of a hardware class beside its shipped value."""

    spread: float
    """Standard deviation of its logarithm from machine to machine."""
    low: float
    high: float
    seen_in: str
    """The runs that show it."""


PARAMETERS: dict[str, Parameter] = {
    "gemm": Parameter(0.08, 0.5, 4.0, "16-bit runs of large models"),
    "gemm_low": Parameter(0.10, 0.5, 4.0, "fp8, mxfp8 or nvfp4 runs of large models"),
    "attention": Parameter(0.25, 0.2, 8.0, "runs with long and with short sequences"),
    "stream": Parameter(0.25, 0.2, 8.0, "runs of narrow and of wide models"),
    "layer_seconds": Parameter(0.7, 1e-6, 2e-2, "small models, few tokens a micro-batch"),
    "tp": Parameter(0.3, 0.05, 4.0, "one model with several tp"),
    "network": Parameter(0.2, 0.05, 1.1, "runs over several hosts, or --nccl"),
    "hop_seconds": Parameter(0.7, 1e-6, 1e-2, "small messages over many hosts, or --nccl"),
    "dp_overlap": Parameter(0.3, 0.02, 1.0, "runs with few micro-batches and large dp"),
    "pp": Parameter(0.4, 0.02, 8.0, "one model with several pp and vpp"),
    "ep": Parameter(0.2, 0.02, 8.0, "mixture-of-experts runs with ep > 1"),
    "experts": Parameter(0.15, 0.3, 6.0, "mixture-of-experts runs of wide experts"),
    "routed_seconds": Parameter(
        0.25, 1e-6, 5e-2, "mixture-of-experts runs, few tokens a micro-batch"
    ),
    "step_seconds": Parameter(0.8, 1e-4, 2.0, "runs with short steps"),
    "straggler": Parameter(0.8, 1e-5, 0.1, "one layout on few and on many hosts"),
    "accumulate": Parameter(0.7, 0.05, 8.0, "one layout with several micro-batch sizes"),
}
"""One row for every fitted field of ``Efficiency``; spreads are those of the published runs."""
OTHER = Parameter(0.3, 1e-6, 1e3, "more runs of other kinds")

TERMS: dict[str, tuple[float, float]] = {
    "bus_gb_per_s": (1e-3, 1e5),
    "latency_seconds": (0.0, 1.0),
    "rank_seconds": (0.0, 1.0),
    "ramp_seconds": (0.0, 1.0),
}
"""Term of a collective that ``--nccl`` measures -> lowest and highest legal value."""


def hardware_class(gpu: Gpu, stack: str = "megatron") -> str:
    """The row of the efficiency table that prices training on ``gpu`` with ``stack``."""
    return f"{gpu.generation}/{stack}"


def shipped(hardware: str) -> dict[str, float]:
    """The fitted parameters of a class as they stand in the package."""
    row = efficiency(hardware)
    values = {field.name: getattr(row, field.name) for field in fields(Efficiency)}
    return {name: value for name, value in values.items() if not isinstance(value, bool)}


def legal_range(name: str) -> tuple[float, float] | None:
    """Lowest and highest legal value of a calibrated name; None where there is no such name."""
    operation, _, term = name.partition(".")
    if term:
        return TERMS.get(term) if operation in OPERATIONS else None
    if name not in {field.name for field in fields(Efficiency) if field.type != "bool"}:
        return None
    parameter = PARAMETERS.get(name, OTHER)
    return parameter.low, parameter.high


def prior(name: str, centre: float) -> Prior:
    """The parameter of a class around ``centre``, its shipped value."""
    parameter = PARAMETERS.get(name, OTHER)
    inside = min(max(centre, parameter.low), parameter.high)
    return Prior(inside, parameter.spread, parameter.low, parameter.high)


def calibrated_row(row: Efficiency, values: Values) -> Efficiency:
    """``row`` with the calibrated parameters in their places."""
    own: dict[str, Any] = {name: value for name, value in values if "." not in name}
    return replace(row, **own) if own else row


def calibrated_kernels(kernels: KernelFit, problem: Problem) -> KernelFit:
    """``kernels`` with the collectives that were measured on the links of this cluster."""
    terms = collective_terms(problem.calibration)
    if not terms:
        return kernels
    link = problem.cluster.node.link_gb_per_s
    collectives = dict(kernels.collectives)
    for operation, own in terms.items():
        changes: dict[str, Any] = dict(own)
        collectives[operation] = replace(collectives[operation].at_link(link), **changes)
    return replace(kernels, collectives=collectives)


def collective_terms(values: Values) -> Mapping[Operation, dict[str, float]]:
    """The calibrated terms by operation."""
    found: dict[Operation, dict[str, float]] = {}
    for operation in OPERATIONS:
        start = f"{operation}."
        own = {name.removeprefix(start): value for name, value in values if name.startswith(start)}
        if own:
            found[operation] = own
    return found
