"""Factors of the serving cost model that measurements of a service replace.

A factor multiplies a group of shipped constants. Few factors with priors are fitted, because a user
has few measurements: three rows have at most nine numbers. docs/accuracy.md lists the errors before
and after a calibration with three rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from parc.compiler.cost.setup.calibrated_parameters import EfficiencyParameter, Values
from parc.compiler.ir import Cluster, ServingEfficiency
from parc.compiler.ir.engine_constants import (
    ArrivalConstants,
    EngineConstants,
    SchedulingConstants,
)

SERVICE_FACTORS: dict[str, EfficiencyParameter] = {
    "memory": EfficiencyParameter(
        spread=0.1, low=0.2, high=5.0, seen_in="few requests at a time, which read all weights"
    ),
    "compute": EfficiencyParameter(
        spread=0.1, low=0.2, high=5.0, seen_in="long prompts, or many requests at a time"
    ),
    "overhead": EfficiencyParameter(
        spread=0.15,
        low=0.05,
        high=20.0,
        seen_in="small models, and few and many requests at a time",
    ),
    "front": EfficiencyParameter(
        spread=0.2, low=0.02, high=50.0, seen_in="short prompts, and one request at a time"
    ),
}
"""Factor -> spread and bounds of its prior, which is centered on 1. The spreads are chosen so that
a calibration with three rows increases no median error of an engine on published benchmarks;
python -m benchmarks.accuracy.serving.calibration evaluates them."""


def calibrated_service(
    cluster: Cluster, engine: EngineConstants, values: Values
) -> tuple[Cluster, EngineConstants]:
    """Return the cluster and the engine constants with the calibrated factors ``values``."""
    if not values:
        return cluster, engine
    factors = {name: 1.0 for name in SERVICE_FACTORS} | dict(values)
    generation = cluster.generation
    serving = _calibrated_rates(generation.serving, factors)
    return (
        replace(cluster, generation=replace(generation, serving=serving)),
        replace(
            engine,
            scheduling=_calibrated_steps(engine.scheduling, factors),
            arrivals=_calibrated_arrivals(engine.arrivals, factors),
        ),
    )


def _calibrated_rates(row: ServingEfficiency, factors: Mapping[str, float]) -> ServingEfficiency:
    memory, compute = factors["memory"], factors["compute"]
    return replace(
        row,
        memory=row.memory * memory,
        memory_fp4=row.memory_fp4 * memory,
        gemm=row.gemm * compute,
        gemm_fp8=row.gemm_fp8 * compute,
        gemm_fp4=row.gemm_fp4 * compute,
        attention=row.attention * compute,
        kernel_seconds=row.kernel_seconds * factors["overhead"],
    )


def _calibrated_steps(
    row: SchedulingConstants, factors: Mapping[str, float]
) -> SchedulingConstants:
    overhead = factors["overhead"]
    return replace(
        row,
        step_seconds=row.step_seconds * overhead,
        sequence_seconds=row.sequence_seconds * overhead,
        routed_layer_seconds=row.routed_layer_seconds * overhead,
    )


def _calibrated_arrivals(row: ArrivalConstants, factors: Mapping[str, float]) -> ArrivalConstants:
    front = factors["front"]
    return replace(
        row,
        front_seconds=row.front_seconds * front,
        admission_seconds=row.admission_seconds * front,
        prompt_expert_seconds=row.prompt_expert_seconds * front,
        poll_steps=row.poll_steps * front,
    )
