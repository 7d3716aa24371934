"""Basis of an estimate: published runs, factors of another stack, or a calibration."""

from __future__ import annotations

from typing import Any

from parc.backends.registry import framework_of_problem, is_built_in
from parc.compiler.cost.step.step_interval import SEVERAL
from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir import AnyPlan, Plan, Problem, ServingPlan
from parc.compiler.ir.engine_constants import EngineConstants
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serialize import as_json


@frozen
class EstimateBasis:
    """Origin of the fitted parameters with which a plan was estimated."""

    kind: str
    """``calibration``: parameters of ``cluster.calibration``. ``runs``: fitted to published runs of
    the framework's own stack or engine. ``plugin``: values of a plugin. ``borrowed``: values of
    another stack."""
    name: str
    """Stack or engine whose parameters were used."""
    sources: int
    """Number of sources of the published runs of that stack on this GPU; 0 if there are none, or if
    it is unknown."""
    measured: bool
    """True if published runs of the stack on this GPU, or own runs, confirm the factors."""
    text: str
    """One sentence for readers."""


def estimate_basis(plan: AnyPlan) -> EstimateBasis:
    """Return what the estimate of ``plan`` rests on."""
    if isinstance(plan, ServingPlan):
        engine = plan.problem.service.setup.engine
        return _basis_of_engine(engine, calibrated=bool(plan.problem.calibration))
    return basis_of_training(plan.problem)


def basis_of_training(problem: Problem) -> EstimateBasis:
    """Return what the estimates of a training job rest on."""
    target = framework_of_problem(problem)
    stack, generation = target.stack, problem.cluster.generation
    name, where = stack.name, f"on {generation.name}"
    if problem.calibration:
        text = f"{name} {where}, calibrated with your own runs (cluster.calibration)"
        return EstimateBasis("calibration", name, 0, True, text)
    row, origin = stack.efficiency_for(generation), stack.origin(generation)
    gpu = problem.cluster.gpu.catalog_name
    own = row.sources_of_gpu(gpu) if row is not None else 0
    if origin == "plugin":
        text = f"factors of {name} {where} that the plugin {target.name} states"
        return EstimateBasis("plugin", name, own, own > 0, text)
    if origin == "borrowed" or not is_built_in(problem.framework):
        lender = stack.like if origin == "borrowed" else name
        sources = generation.efficiency[lender].sources_of_gpu(gpu)
        text = f"factors of {lender} {where}, borrowed: no published run of "
        text += f"{name if origin == 'borrowed' else target.name} {where}"
        return EstimateBasis("borrowed", lender, sources, False, text)
    runs = f"published runs of {format_count(own, 'source')}" if own else "no published run"
    text = f"{runs} with {name} on {gpu}"
    if own < SEVERAL:
        text += ", so the interval is wide"
    return EstimateBasis("runs", name, own, own > 0, text)


def _basis_of_engine(engine: EngineConstants, *, calibrated: bool) -> EstimateBasis:
    """Return what the estimates of a service rest on."""
    if calibrated:
        text = f"constants of {engine.name}, calibrated with your own runs (cluster.calibration)"
        return EstimateBasis("calibration", engine.name, 0, True, text)
    measured = engine.errors != type(engine.errors)()
    if measured and is_built_in(engine.name):
        text = f"constants of {engine.name}, fitted to published measurements"
        return EstimateBasis("runs", engine.name, 0, True, text)
    text = f"constants of {engine.name}: {_first_part(engine.scheduling.source)}; "
    text += _first_part(engine.errors.source) + ("" if measured else ", so the intervals are wide")
    return EstimateBasis("plugin", engine.name, 0, measured, text)


def _first_part(source: str) -> str:
    """Return the first part of a source that lists several, on one line."""
    return " ".join(source.split()).partition("; ")[0]


def basis_document(plan: AnyPlan) -> dict[str, Any]:
    """Return the basis as JSON types; for a service with the source of each group of constants."""
    document: dict[str, Any] = as_json(estimate_basis(plan))
    if isinstance(plan, Plan):
        return document
    engine = plan.problem.service.setup.engine
    groups = ("scheduling", "arrivals", "memory", "sharding", "states", "errors")
    sources = {name: " ".join(getattr(engine, name).source.split()) for name in groups}
    return {**document, "constants": sources}
