"""Parameters of the cost model that measurements of the user can replace.

A calibrated value has the name of a field of ``Efficiency``, such as ``gemm``, or of a constant of
one collective inside a host, such as ``all_reduce.bus_gb_per_s``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from parc.compiler.cost.fitting import ParameterPrior
from parc.compiler.cost.kernels.collective_time import OPERATIONS, Operation
from parc.compiler.cost.kernels.hardware_fit import KernelFit
from parc.compiler.ir import Efficiency, Generation, Gpu, KernelStack, Problem
from parc.compiler.ir.frozen import frozen

Values = tuple[tuple[str, float], ...]


@frozen
class EfficiencyParameter:
    """Spread and bounds of one efficiency parameter, and the runs that determine it."""

    spread: float
    """Standard deviation of the parameter's logarithm between machines."""
    low: float
    high: float
    seen_in: str
    """Description of the runs that determine the parameter."""


PARAMETERS: dict[str, EfficiencyParameter] = {
    "gemm": EfficiencyParameter(
        spread=0.08, low=0.5, high=4.0, seen_in="16-bit runs of large models"
    ),
    "gemm_low": EfficiencyParameter(
        spread=0.10, low=0.5, high=4.0, seen_in="fp8, mxfp8 or nvfp4 runs of large models"
    ),
    "attention": EfficiencyParameter(
        spread=0.25, low=0.2, high=8.0, seen_in="runs with long and with short sequences"
    ),
    "stream": EfficiencyParameter(
        spread=0.25, low=0.2, high=8.0, seen_in="runs of narrow and of wide models"
    ),
    "launch_seconds": EfficiencyParameter(
        spread=0.5, low=1e-8, high=5e-4, seen_in="small models, few tokens per micro-batch"
    ),
    "tp": EfficiencyParameter(spread=0.3, low=0.05, high=4.0, seen_in="one model with several tp"),
    "network": EfficiencyParameter(
        spread=0.2, low=0.05, high=1.1, seen_in="runs over several hosts, or --nccl"
    ),
    "hop_seconds": EfficiencyParameter(
        spread=0.7, low=1e-6, high=1e-2, seen_in="small messages over many hosts, or --nccl"
    ),
    "dp_overlap": EfficiencyParameter(
        spread=0.3, low=0.02, high=1.0, seen_in="runs with few micro-batches and large dp"
    ),
    "pp": EfficiencyParameter(
        spread=0.4, low=0.02, high=8.0, seen_in="one model with several pp and vpp"
    ),
    "ep": EfficiencyParameter(
        spread=0.2, low=0.02, high=8.0, seen_in="mixture-of-experts runs with ep > 1"
    ),
    "step_seconds": EfficiencyParameter(
        spread=0.8, low=1e-4, high=2.0, seen_in="runs with short steps"
    ),
    "straggler": EfficiencyParameter(
        spread=0.8, low=1e-5, high=0.1, seen_in="one layout on few and on many hosts"
    ),
    "accumulate": EfficiencyParameter(
        spread=0.7, low=0.05, high=8.0, seen_in="one layout with several micro-batch sizes"
    ),
}
"""Fitted field of ``Efficiency`` -> spread and bounds of its prior. The spreads are those observed
between published runs."""
OTHER = EfficiencyParameter(spread=0.3, low=1e-6, high=1e3, seen_in="more runs of other kinds")

TERMS: dict[str, tuple[float, float]] = {
    "bus_gb_per_s": (1e-3, 1e5),
    "latency_seconds": (0.0, 1.0),
    "rank_seconds": (0.0, 1.0),
    "ramp_seconds": (0.0, 1.0),
}
"""Constant of a collective that ``--nccl`` measures -> (lowest valid value, highest valid
value)."""


def hardware_class(gpu: Gpu, stack: KernelStack) -> str:
    """Return ``generation/stack``, the name of the efficiency parameters for ``gpu``."""
    return f"{gpu.generation}/{stack.name}"


def efficiency_for_stack(generation: Generation, stack: KernelStack) -> Efficiency:
    """Return the efficiency parameters of the software ``stack`` on a GPU generation.

    Raises:
        LookupError: the catalog has no parameters for this combination. ``resolve_problem`` reports
            such a gap earlier, as an incomplete catalog file (K08).
    """
    row = stack.efficiency_for(generation)
    if row is None:
        raise LookupError(
            f"GPU generation {generation.name} has no efficiency parameters for stack {stack.name}"
        )
    return row


def numeric_efficiency_parameters(row: Efficiency) -> dict[str, float]:
    """Return {name: value} of all numeric efficiency parameters in ``row``.

    Flags and counts are left out.
    """
    values = {field.name: getattr(row, field.name) for field in fields(Efficiency)}
    return {name: value for name, value in values.items() if isinstance(value, float)}


def valid_parameter_range(name: str) -> tuple[float, float] | None:
    """Return (lowest valid value, highest valid value) of the parameter ``name``.

    The result is None if there is no such parameter.
    """
    operation, _, term = name.partition(".")
    if term:
        return TERMS.get(term) if operation in OPERATIONS else None
    if name not in {field.name for field in fields(Efficiency) if field.type == "float"}:
        return None
    parameter = PARAMETERS.get(name, OTHER)
    return parameter.low, parameter.high


def parameter_prior(name: str, center: float) -> ParameterPrior:
    """Return the prior of the parameter ``name``.

    ``center`` is the value of the parameter in the catalog. The prior is centered on this value, or
    on the nearest bound of the parameter.
    """
    parameter = PARAMETERS.get(name, OTHER)
    inside = min(max(center, parameter.low), parameter.high)
    return ParameterPrior(inside, parameter.spread, parameter.low, parameter.high)


def calibrated_efficiency(row: Efficiency, values: Values) -> Efficiency:
    """Return the efficiency parameters ``row``, overwritten by the calibrated ``values``."""
    # Names with a dot are terms of a collective (``calibrated_kernels``).
    own: dict[str, Any] = {name: value for name, value in values if "." not in name}
    return replace(row, **own) if own else row


def calibrated_kernels(kernels: KernelFit, problem: Problem) -> KernelFit:
    """Return ``kernels`` with the calibrated constants of collectives.

    The calibration of ``problem`` contains the constants that were measured on the cluster.
    """
    terms = calibrated_collective_constants(problem.calibration)
    if not terms:
        return kernels
    link = problem.cluster.node.link_gb_per_s
    collectives = dict(kernels.collectives)
    for operation, own in terms.items():
        changes: dict[str, Any] = dict(own)
        # First scaled to this cluster's link, because terms that were not measured keep the fitted
        # value.
        collectives[operation] = replace(collectives[operation].scaled_to_link(link), **changes)
    return replace(kernels, collectives=collectives)


def calibrated_collective_constants(values: Values) -> Mapping[Operation, dict[str, float]]:
    """Return the calibrated constants of collectives as {operation: {constant: value}}."""
    found: dict[Operation, dict[str, float]] = {}
    for operation in OPERATIONS:
        start = f"{operation}."
        own = {name.removeprefix(start): value for name, value in values if name.startswith(start)}
        if own:
            found[operation] = own
    return found
