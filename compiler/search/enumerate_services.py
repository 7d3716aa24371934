"""Every serving layout that the pins and the limits leave, legal or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parc.backends.base import Engine
from parc.compiler.ir import ServingLayout, ServingProblem
from parc.compiler.ir.problem import allowed

MOST_STAGES = 16
PROMPT_RANKS = (1, 2, 4, 8)
"""Degrees of prefill context parallelism that are tried where it is left open."""


def enumerate_services(problem: ServingProblem, engine: Engine) -> Iterator[ServingLayout]:
    """Layouts of one engine, replicas left at 1 unless pinned; axes ascending, tp the slowest."""
    for plain in _meshes(problem):
        for layout in _experts(problem, engine, plain):
            yield from _decode_context(problem, engine, layout)


def _meshes(problem: ServingProblem) -> Iterator[ServingLayout]:
    """Every tp, pcp, pp and dp that the GPUs allow, with the rest as pinned or 1."""
    prompts = ((tp, pcp) for tp in _tensor(problem) for pcp in _prefill_context(problem, tp))
    for tp, pcp in prompts:
        for pp in _pipeline(problem, tp * pcp):
            for dp in _data(problem, tp * pcp * pp):
                yield _plain(problem, (tp, pp, dp, pcp))


def _tensor(problem: ServingProblem) -> list[int]:
    """Divisors of the heads, the pin, or nothing where a limit bans it."""
    heads = problem.model.attention.heads
    most = problem.cluster.gpus // (problem.pins.pcp or 1)
    pinned = problem.pins.tp
    degrees = [n for n in range(1, min(heads, most) + 1) if heads % n == 0]
    return _allowed(problem, "tp", [pinned] if pinned else degrees)


def _pipeline(problem: ServingProblem, gpus: int) -> list[int]:
    pinned, stages = problem.pins.pp, problem.pins.stages
    if pinned is None and stages is not None:
        pinned = len(stages)
    most = min(problem.cluster.gpus // gpus, problem.model.layers, MOST_STAGES)
    return _allowed(problem, "pp", [pinned] if pinned else list(range(1, max(most, 1) + 1)))


def _data(problem: ServingProblem, gpus: int) -> list[int]:
    """A dense model has no dp inside an engine: copies of it are replicas."""
    if problem.pins.dp is not None:
        return _allowed(problem, "dp", [problem.pins.dp])
    most = problem.cluster.gpus // gpus if problem.model.experts else 1
    return _allowed(problem, "dp", list(range(1, max(most, 1) + 1)))


def _plain(problem: ServingProblem, degrees: tuple[int, int, int, int]) -> ServingLayout:
    """The layout of tp, pp, dp and pcp with everything else as pinned or 1."""
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


def _prefill_context(problem: ServingProblem, tp: int) -> list[int]:
    """The pin; else 1, and more where latent attention lets engines split prompts."""
    pinned = problem.pins.pcp
    if pinned is not None:
        return _allowed(problem, "pcp", [pinned])
    most = problem.cluster.gpus // tp if problem.model.attention.latent else 1
    return _allowed(problem, "pcp", [one for one in PROMPT_RANKS if one <= max(most, 1)])


def _decode_context(
    problem: ServingProblem, engine: Engine, layout: ServingLayout
) -> Iterator[ServingLayout]:
    pinned = problem.pins.dcp
    legal = engine.cache_degrees(problem.model, layout) if pinned is None else (pinned,)
    for dcp in _allowed(problem, "dcp", list(legal)):
        yield replace(layout, dcp=dcp)


def _experts(
    problem: ServingProblem, engine: Engine, plain: ServingLayout
) -> Iterator[ServingLayout]:
    pins = problem.pins
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
    return [degree for degree in degrees if allowed(problem.goals.limits, axis, degree)]
