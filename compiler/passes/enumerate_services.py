"""Every serving layout that the pins and the limits leave, legal or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parc.backends.base import Engine
from parc.compiler.ir import ServingLayout, ServingProblem

MOST_STAGES = 16


def enumerate_services(problem: ServingProblem, engine: Engine) -> Iterator[ServingLayout]:
    """Layouts of one engine, replicas left at 1 unless pinned; tp, pp, dp and ep ascending."""
    for tp in _tensor(problem):
        for pp in _pipeline(problem, tp):
            for dp in _data(problem, tp * pp):
                yield from _experts(problem, engine, (tp, pp, dp))


def _tensor(problem: ServingProblem) -> list[int]:
    """Divisors of the heads, the pin, or nothing where a limit bans it."""
    heads, most = problem.model.attention.heads, _gpus(problem)
    pinned = problem.pins.tp
    degrees = [n for n in range(1, min(heads, most) + 1) if heads % n == 0]
    return _allowed(problem, "tp", [pinned] if pinned else degrees)


def _pipeline(problem: ServingProblem, tp: int) -> list[int]:
    pinned, stages = problem.pins.pp, problem.pins.stages
    if pinned is None and stages is not None:
        pinned = len(stages)
    most = min(_gpus(problem) // tp, problem.model.layers, MOST_STAGES)
    return _allowed(problem, "pp", [pinned] if pinned else list(range(1, max(most, 1) + 1)))


def _data(problem: ServingProblem, gpus: int) -> list[int]:
    """A dense model has no dp inside an engine: copies of it are replicas."""
    if problem.pins.dp is not None:
        return _allowed(problem, "dp", [problem.pins.dp])
    most = _gpus(problem) // gpus if problem.model.experts else 1
    return _allowed(problem, "dp", list(range(1, max(most, 1) + 1)))


def _experts(
    problem: ServingProblem, engine: Engine, degrees: tuple[int, int, int]
) -> Iterator[ServingLayout]:
    tp, pp, dp = degrees
    pins = problem.pins
    plain = ServingLayout(
        tp,
        pp,
        dp,
        1,
        pins.replicas or 1,
        pins.pcp or 1,
        pins.dcp or 1,
        pins.stages or (),
        pins.redundant_experts or 0,
    )
    legal = engine.expert_degrees(plain)
    if pins.ep == "off":
        wanted: tuple[int, ...] = (1,)
    elif isinstance(pins.ep, int):
        wanted = (pins.ep,)
    elif pins.ep == "on" or pins.redundant_experts is not None:
        wanted = legal[-1:]
    else:
        wanted = legal if problem.model.experts else (1,)
    for ep in _allowed(problem, "ep", list(wanted)):
        yield replace(plain, ep=ep)


def _allowed(problem: ServingProblem, axis: str, degrees: list[int]) -> list[int]:
    return [degree for degree in degrees if problem.goals.allow(axis, degree)]


def _gpus(problem: ServingProblem) -> int:
    return problem.cluster.gpus // (problem.pins.pcp or 1)
