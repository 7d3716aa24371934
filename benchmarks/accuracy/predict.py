"""Evaluate cases with the shipped parameters of the cost model or with others in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace

from benchmarks.accuracy.cases import MEGATRON, Case
from benchmarks.accuracy.hardware_classes import class_row
from parc.compiler.cost.fitting.fit import Prior
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.step.offload import host_rate
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.ir import Efficiency, StepTime
from parc.compiler.resolve.resolve_kernels import pricing_for

Parameters = Mapping[str, float]


def shipped(generation: str) -> dict[str, float]:
    """The parameters of a hardware class as they stand in the package."""
    return asdict(class_row(generation))


def priors(generation: str) -> dict[str, Prior]:
    """What is known before any training run is seen: shares of peak and latencies, wide.

    They do not depend on the shipped values, so that a row that is left out cannot come back
    through them.
    """
    return {**PRIORS, **STACK_PRIORS.get(generation.partition("/")[2], {})}


PRIORS: dict[str, Prior] = {
    "gemm": Prior(1.10, 0.08, 0.7, 2.5),
    "gemm_low": Prior(1.15, 0.10, 0.7, 3.0),
    "attention": Prior(1.2, 0.25, 0.3, 8.0),
    "stream": Prior(1.3, 0.25, 0.3, 8.0),
    "layer_seconds": Prior(6e-4, 0.7, 2e-5, 5e-3),
    "tp": Prior(0.8, 0.3, 0.05, 3.0),
    "network": Prior(0.75, 0.2, 0.1, 1.1),
    "hop_seconds": Prior(30e-6, 0.7, 2e-6, 2e-3),
    "dp_overlap": Prior(0.7, 0.3, 0.1, 1.0),
    "pp": Prior(0.6, 0.4, 0.05, 5.0),
    "ep": Prior(1.0, 0.2, 0.02, 4.0),
    "experts": Prior(1.3, 0.15, 0.5, 4.0),
    "routed_seconds": Prior(2e-3, 0.25, 1e-4, 2e-2),
    "step_seconds": Prior(0.02, 0.8, 1e-3, 0.5),
    "straggler": Prior(0.003, 0.8, 1e-4, 0.03),
    "accumulate": Prior(1.0, 0.7, 0.05, 8.0),
}
"""Name -> (centre, log spread, lowest, highest)."""

STACK_PRIORS = {
    "bigscience": {
        "accumulate": Prior(3.0, 0.7, 0.05, 8.0),
        "network": Prior(0.5, 0.3, 0.1, 1.1),
    }
}
"""What is known of one stack. DeepSpeed casts a gradient to fp32, adds that and clears its source,
about 18 bytes where one kernel moves 6 or 10 (its ``bf16_optimizer.py``). The adapters of
Omni-Path leave the protocol to the host's cores, so that GPUs get less of their rate; how much less
was set after its own runs, which pull the common prior down."""


_APPLIED: dict[str, Efficiency] = {}
"""Rows that replace the shipped ones at the moment, by hardware class."""


@contextmanager
def applied(generation: str, parameters: Parameters) -> Iterator[None]:
    """The cost model with ``parameters`` in place of the shipped ones."""
    before = _APPLIED.get(generation)
    _APPLIED[generation] = replace(before or class_row(generation), **parameters)
    try:
        yield
    finally:
        if before is None:
            del _APPLIED[generation]
        else:
            _APPLIED[generation] = before


def pricing_of(case: Case) -> Pricing:
    """Return the memo of a case, with the parameters that its class has at the moment."""
    row = _APPLIED.get(case.generation) or class_row(case.generation)
    pricing = pricing_for(case.problem, MEGATRON, row)
    pricing.efficiency = with_overlap(pricing.efficiency, case.run.overlap)
    return pricing


GRAPH = 0.1
"""What a graph of the whole iteration leaves of the host's launch time."""
PART = 0.6
"""The same for graphs of attention, router and preprocessing alone."""


def with_overlap(row: Efficiency, words: str) -> Efficiency:
    """What a run that states these overlaps leaves exposed."""
    if "unfused-core" in words:
        row = replace(row, unfused=True)
    if "fused-experts" in words:
        row = replace(row, fused_experts=True)
    if "tp-overlap" in words:
        row = replace(row, tp=row.tp * 0.5)
    if "cuda-graph" in words:
        launch = row.layer_seconds * GRAPH, row.routed_seconds * GRAPH
        row = replace(row, layer_seconds=launch[0], routed_seconds=launch[1])
    elif "part-graph" in words:
        row = replace(row, routed_seconds=row.routed_seconds * PART)
    if "token-drop" in words or "unfused-routing" in words:
        row = replace(row, fused_routing=False)
    return row


def price(case: Case) -> StepTime:
    """The terms of a step."""
    found = step_time(pricing_of(case), case.layout)
    if "host-checkpoints" not in case.run.overlap:
        return found
    return replace(found, recompute_seconds=found.recompute_seconds + host_seconds(case))


def host_seconds(case: Case) -> float:
    """Inputs of the layers to the host and back, a tensor rank its part (DeepSpeed)."""
    layout, model, job = case.layout, case.problem.model, case.problem.job
    samples = layout.micro_batch * layout.micro_batches(job.global_batch)
    kept = 2 * samples * job.sequence_length / layout.cp * model.hidden / layout.tp
    return 2 * kept * model.layers / layout.pp / host_rate(case.problem)


def predict(cases: Sequence[Case], parameters: Parameters | None = None) -> list[float]:
    """Seconds of a step; ``parameters`` are those of the one hardware class of all ``cases``."""
    if parameters is None or not cases:
        return [price(case).total_seconds for case in cases]
    with applied(cases[0].generation, parameters):
        return [price(case).total_seconds for case in cases]
