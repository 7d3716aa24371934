"""Enumeration of the serving layouts that the spec and its limits allow, valid or not."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.base import Engine
from parc.compiler.ir import ServingLayout, ServingProblem
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.problem import is_size_allowed

MOST_STAGES = 16
"""Largest number of pipeline stages that is tried."""
PREFILL_CONTEXT_SIZES = (1, 2, 4, 8)
"""Prefill context-parallel sizes that are tried if the spec does not fix one."""


def enumerate_serving_layouts(
    problem: ServingProblem, engine: Engine, widest_tp: int | None = None
) -> Iterator[ServingLayout]:
    """Yield the serving layouts to try, sorted by tp first; sizes ascend on each axis.

    The number of replicas is 1 unless the spec fixes it. Layouts with tp above ``widest_tp`` are
    left out, unless the spec fixes tp.
    """
    for mesh in _enumerate_meshes(problem, widest_tp):
        for layout in _with_expert_parallel_sizes(problem, engine, mesh):
            yield from _with_decode_context_sizes(problem, engine, layout)


def _enumerate_meshes(problem: ServingProblem, widest_tp: int | None) -> Iterator[ServingLayout]:
    """Yield a layout for each combination of tp, pcp, pp and dp that fits on the GPUs.

    Sizes that the spec fixes might not fit. The sizes of all other axes are those of the spec, or 1
    if the spec does not fix them.
    """
    prompts = (
        (tp, pcp)
        for tp in _tensor_parallel_sizes(problem, widest_tp)
        for pcp in _prefill_context_sizes(problem, tp)
    )
    for tp, pcp in prompts:
        for pp in _pipeline_parallel_sizes(problem, tp * pcp):
            for dp in _data_parallel_sizes(problem, tp * pcp, pp):
                yield _build_layout(problem, (tp, pp, dp, pcp))


def _tensor_parallel_sizes(problem: ServingProblem, widest: int | None) -> list[int]:
    """Return the tensor-parallel sizes to try, within ``goals.limits``.

    If the spec does not fix tp, the sizes are the divisors of the number of attention heads, up to
    ``widest``.
    """
    heads = problem.model.attention.heads
    most = min(problem.cluster.gpus // (problem.pins.pcp or 1), widest or heads)
    pinned = problem.pins.tp
    degrees = list(divisors(heads, most))
    return _sizes_within_limits(problem, "tp", [pinned] if pinned else degrees)


def _pipeline_parallel_sizes(problem: ServingProblem, gpus: int) -> list[int]:
    """Return the pipeline sizes to try if each stage needs ``gpus`` GPUs."""
    pinned, stages = problem.pins.pp, problem.pins.stages
    # A fixed split over stages also fixes the number of stages.
    if pinned is None and stages is not None:
        pinned = len(stages)
    most = min(problem.cluster.gpus // gpus, problem.model.layers, MOST_STAGES)
    return _sizes_within_limits(
        problem, "pp", [pinned] if pinned else list(range(1, max(most, 1) + 1))
    )


def _data_parallel_sizes(problem: ServingProblem, stage_gpus: int, pp: int) -> list[int]:
    """Return the data-parallel sizes to try.

    One stage of one data-parallel rank uses ``stage_gpus`` GPUs. If the model is dense and the spec
    does not fix dp, only size 1 is tried, because copies of a dense model run as separate replicas.
    """
    if problem.pins.dp is not None:
        return _sizes_within_limits(problem, "dp", [problem.pins.dp])
    experts, most = problem.model.experts, 1
    # Data-parallel ranks of one engine share the experts; without experts they share nothing.
    if experts is not None:
        # Each GPU of a stage stores a whole expert, or at least one column of each.
        shares = max(experts.count + (problem.pins.redundant_experts or 0), experts.size)
        most = min(problem.cluster.gpus // (stage_gpus * pp), shares // stage_gpus)
    return _sizes_within_limits(problem, "dp", list(range(1, max(most, 1) + 1)))


def _build_layout(problem: ServingProblem, degrees: tuple[int, int, int, int]) -> ServingLayout:
    """Return the layout with the parallel sizes ``degrees``, a tuple (tp, pp, dp, pcp).

    The sizes of all other axes are those of the spec, or 1 if the spec does not fix them.
    """
    (tp, pp, dp, pcp), pins = degrees, problem.pins
    return ServingLayout(
        tp,
        pp,
        dp,
        replicas=pins.replicas or 1,
        pcp=pcp,
        stages=pins.stages or (),
        redundant_experts=pins.redundant_experts or 0,
    )


def _prefill_context_sizes(problem: ServingProblem, tp: int) -> list[int]:
    """Return the prefill context-parallel sizes to try.

    If the spec does not fix the size, sizes above 1 are tried only for models with latent
    attention, because engines cannot split the prompts of other models.
    """
    pinned = problem.pins.pcp
    if pinned is not None:
        return _sizes_within_limits(problem, "pcp", [pinned])
    most = problem.cluster.gpus // tp if problem.model.attention.latent else 1
    return _sizes_within_limits(
        problem, "pcp", [one for one in PREFILL_CONTEXT_SIZES if one <= max(most, 1)]
    )


def _with_decode_context_sizes(
    problem: ServingProblem, engine: Engine, layout: ServingLayout
) -> Iterator[ServingLayout]:
    """Yield a copy of ``layout`` for each decode context-parallel size (dcp) to try.

    If the spec does not fix dcp, all sizes that the engine supports are tried.
    """
    pinned = problem.pins.dcp
    valid = engine.decode_context_sizes(problem.model, layout) if pinned is None else (pinned,)
    for dcp in _sizes_within_limits(problem, "dcp", list(valid)):
        yield layout if dcp == layout.dcp else _copy_layout(layout, layout.ep, dcp)


def _with_expert_parallel_sizes(
    problem: ServingProblem, engine: Engine, plain: ServingLayout
) -> Iterator[ServingLayout]:
    """Yield a copy of the layout ``plain`` for each expert-parallel size to try."""
    pins = problem.pins
    valid = engine.expert_parallel_sizes(plain)
    if pins.ep == "off":
        degrees: tuple[int, ...] = (1,)
    elif isinstance(pins.ep, int):
        degrees = (pins.ep,)
    elif pins.ep == "on" or pins.redundant_experts is not None:
        degrees = valid[-1:]  # the largest size: the engine shards experts over all ranks
    else:
        degrees = valid if problem.model.experts else (1,)
    for ep in _sizes_within_limits(problem, "ep", list(degrees)):
        yield plain if ep == plain.ep else _copy_layout(plain, ep, plain.dcp)


def _copy_layout(layout: ServingLayout, ep: int, dcp: int) -> ServingLayout:
    """Return a copy of ``layout`` with the sizes ``ep`` and ``dcp``."""
    # dataclasses.replace takes several times as long, and large clusters have many layouts.
    return ServingLayout(
        layout.tp,
        layout.pp,
        layout.dp,
        ep,
        layout.replicas,
        layout.pcp,
        dcp,
        layout.stages,
        layout.redundant_experts,
    )


def _sizes_within_limits(problem: ServingProblem, axis: str, degrees: list[int]) -> list[int]:
    """Return the sizes in ``degrees`` that ``goals.limits`` allows for ``axis``."""
    limits = problem.goals.limits
    return [one for one in degrees if is_size_allowed(limits, axis, one)] if limits else degrees
