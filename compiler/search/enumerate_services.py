"""Enumerate the serving layouts that pins and limits allow, valid or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parc.backends.base import Engine
from parc.compiler.ir import ServingLayout, ServingProblem
from parc.compiler.ir.problem import allowed

MOST_STAGES = 16
"""Largest number of pipeline stages that is tried."""
PROMPT_RANKS = (1, 2, 4, 8)
"""Degrees of prefill context parallelism that are tried if it is auto."""


def enumerate_services(problem: ServingProblem, engine: Engine) -> Iterator[ServingLayout]:
    """Yield layouts of one engine, axes ascending, tp slowest; replicas is 1 unless pinned."""
    for mesh in _meshes(problem):
        for layout in _with_experts(problem, engine, mesh):
            yield from _with_decode_context(problem, engine, layout)


def _meshes(problem: ServingProblem) -> Iterator[ServingLayout]:
    """Yield all tp, pcp, pp and dp that the GPUs allow; other axes are pinned or 1."""
    prompts = (
        (tp, pcp)
        for tp in _tensor_degrees(problem)
        for pcp in _prefill_context_degrees(problem, tp)
    )
    for tp, pcp in prompts:
        for pp in _pipeline_degrees(problem, tp * pcp):
            for dp in _data_degrees(problem, tp * pcp * pp):
                yield _layout(problem, (tp, pp, dp, pcp))


def _tensor_degrees(problem: ServingProblem) -> list[int]:
    """Return the divisors of the heads, or the pin; empty if a limit bans it."""
    heads = problem.model.attention.heads
    most = problem.cluster.gpus // (problem.pins.pcp or 1)
    pinned = problem.pins.tp
    degrees = [n for n in range(1, min(heads, most) + 1) if heads % n == 0]
    return _allowed(problem, "tp", [pinned] if pinned else degrees)


def _pipeline_degrees(problem: ServingProblem, gpus: int) -> list[int]:
    """Return the numbers of stages; ``gpus`` is the number of GPUs per stage."""
    pinned, stages = problem.pins.pp, problem.pins.stages
    if pinned is None and stages is not None:
        pinned = len(stages)
    most = min(problem.cluster.gpus // gpus, problem.model.layers, MOST_STAGES)
    return _allowed(problem, "pp", [pinned] if pinned else list(range(1, max(most, 1) + 1)))


def _data_degrees(problem: ServingProblem, gpus: int) -> list[int]:
    """Return the dp degrees; a dense model has none, because its copies are replicas."""
    if problem.pins.dp is not None:
        return _allowed(problem, "dp", [problem.pins.dp])
    most = problem.cluster.gpus // gpus if problem.model.experts else 1
    return _allowed(problem, "dp", list(range(1, max(most, 1) + 1)))


def _layout(problem: ServingProblem, degrees: tuple[int, int, int, int]) -> ServingLayout:
    """Return the layout of tp, pp, dp and pcp; other axes are pinned or 1."""
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


def _prefill_context_degrees(problem: ServingProblem, tp: int) -> list[int]:
    """Return the pin; else 1, and more if latent attention lets engines split prompts."""
    pinned = problem.pins.pcp
    if pinned is not None:
        return _allowed(problem, "pcp", [pinned])
    most = problem.cluster.gpus // tp if problem.model.attention.latent else 1
    return _allowed(problem, "pcp", [one for one in PROMPT_RANKS if one <= max(most, 1)])


def _with_decode_context(
    problem: ServingProblem, engine: Engine, layout: ServingLayout
) -> Iterator[ServingLayout]:
    """Yield ``layout`` with the dcp degrees that the engine supports, or the pinned one."""
    pinned = problem.pins.dcp
    valid = engine.cache_degrees(problem.model, layout) if pinned is None else (pinned,)
    for dcp in _allowed(problem, "dcp", list(valid)):
        yield replace(layout, dcp=dcp)


def _with_experts(
    problem: ServingProblem, engine: Engine, plain: ServingLayout
) -> Iterator[ServingLayout]:
    """Yield ``plain`` with the ep degrees that the pins leave."""
    pins = problem.pins
    valid = engine.expert_degrees(plain)
    if pins.ep == "off":
        degrees: tuple[int, ...] = (1,)
    elif isinstance(pins.ep, int):
        degrees = (pins.ep,)
    elif pins.ep == "on" or pins.redundant_experts is not None:
        degrees = valid[-1:]
    else:
        degrees = valid if problem.model.experts else (1,)
    for ep in _allowed(problem, "ep", list(degrees)):
        yield replace(plain, ep=ep)


def _allowed(problem: ServingProblem, axis: str, degrees: list[int]) -> list[int]:
    return [degree for degree in degrees if allowed(problem.goals.limits, axis, degree)]
