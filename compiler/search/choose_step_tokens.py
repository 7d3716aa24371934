"""Choice of the largest number of tokens per engine step.

A step computes the next token of every running request and a part of the waiting prompts. With
fewer tokens per step, prompts take longer, but they delay the running requests less (Sarathi-Serve,
arXiv:2403.02310). In a pipeline, prompts are also spread over more micro-batches, which wait for
each other. Engines have one default for all services; the best value depends on the limits and on
the number of stages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from parc.backends.base import Engine, StepTokenSearch
from parc.compiler.evaluate.evaluate_service import (
    estimate_at,
    evaluate_service,
    first_missed_limit,
    objective_value,
    request_seconds,
)
from parc.compiler.evaluate.service_rules import service_rules
from parc.compiler.ir import ServingEstimate, ServingLayout, ServingProblem
from parc.compiler.ir.serving_plan import StepTokens
from parc.compiler.search.simulate_finalists import SAMPLES, adjust_to_limits

LAYOUTS = 2
"""Number of layouts for which other numbers of tokens per step are tried: the best one in the
simulation, and then the best ones of the closed-form formulas."""
LEAST_GAIN = 1.03
"""Smallest factor by which a service must be better than with the engine's default."""


def choose_step_tokens(
    problem: ServingProblem,
    engine: Engine,
    order: Sequence[ServingEstimate],
    simulated: Sequence[ServingEstimate],
) -> tuple[StepTokens | None, list[ServingEstimate]]:
    """Return (tokens per step, simulated estimates, best first); None keeps the default.

    ``order`` contains the estimates with the engine's default, sorted by ``rank_services``, and
    ``simulated`` those that meet all limits. Other numbers are tried if neither the spec sets one
    nor ``engine`` lacks them, and chosen if the best service improves by 3 %, or if no layout
    meets the limits with the default.
    """
    chosen, best = None, list(simulated)
    layouts = [replace(one.layout, replicas=1) for one in (*simulated[:1], *order)]
    tried = list(dict.fromkeys(layouts))[:LAYOUTS]
    seeds = list(SAMPLES)
    value = start = objective_value(problem, best[0])[0] if best else math.inf
    for tokens in _step_tokens_to_try(problem, engine):
        changed = with_step_tokens(problem, tokens)
        possible = _possible(changed, engine, tried)
        found = adjust_to_limits(changed, possible, value / LEAST_GAIN, seeds)
        if found:
            best, value = found, objective_value(problem, found[0])[0]
            default = problem.service.setup.max_batched_tokens or 0
            chosen = StepTokens(tokens, default, start / value if simulated else None)
        elif chosen:
            break  # the best value is between numbers that are worse
    return chosen, best


def choose_step_tokens_of_pipeline(
    problem: ServingProblem, engine: Engine, found: ServingEstimate
) -> tuple[StepTokens | None, ServingEstimate]:
    """Return (tokens per step, estimate) of the layout of ``found``; None keeps the default.

    The spec limits no latency. Without pipeline stages, the engine's default is kept.
    """
    chosen, best = None, found
    start = value = _pipeline_value(problem, found)
    tokens_to_try = _step_tokens_to_try(problem, engine) if found.layout.pp > 1 else ()
    for tokens in tokens_to_try:
        changed = with_step_tokens(problem, tokens)
        if not _valid_layouts(changed, engine, [found.layout]):
            continue
        other = estimate_at(changed, found.layout, found.solved_request_rate)
        if other.waiting <= found.waiting and _pipeline_value(changed, other) < value / LEAST_GAIN:
            best, value = other, _pipeline_value(changed, other)
            default = problem.service.setup.max_batched_tokens or 0
            chosen = StepTokens(tokens, default, start / value)
    return chosen, best


def _pipeline_value(problem: ServingProblem, found: ServingEstimate) -> float:
    """Return the value to minimize for a layout: seconds of a request, or that of the goal."""
    if problem.minimizes_gpus:  # the layout, and with it the number of GPUs, is given
        return request_seconds(problem, found)
    return objective_value(problem, found)[0]


def with_step_tokens(problem: ServingProblem, tokens: int) -> ServingProblem:
    """Return the problem with at most ``tokens`` tokens per step.

    Each running request needs a token per step, and one per draft token, so that fewer requests may
    run at a time.
    """
    setup = problem.service.setup
    running = min(setup.max_running or tokens, tokens // (1 + setup.draft_tokens))
    setup = replace(setup, max_batched_tokens=tokens, max_running=running)
    return replace(problem, service=replace(problem.service, setup=setup))


def _step_tokens_to_try(problem: ServingProblem, engine: Engine) -> tuple[int, ...]:
    """Return numbers of tokens per step other than the default, in ascending order."""
    setup, pins = problem.service.setup, problem.pins
    # In a pool of one phase, prompts delay no tokens.
    if pins.max_num_batched_tokens is not None or setup.pool != "both":
        return ()
    if not isinstance(engine, StepTokenSearch):
        return ()
    least, default = (pins.max_num_seqs or 1) * (1 + setup.draft_tokens), setup.max_batched_tokens
    return tuple(n for n in engine.step_tokens_to_try(problem) if n >= least and n != default)


def _possible(
    problem: ServingProblem, engine: Engine, layouts: Sequence[ServingLayout]
) -> list[ServingEstimate]:
    """Return the estimates of the ``layouts`` that are valid and meet the limits on means."""
    valid = _valid_layouts(problem, engine, layouts)
    found = [evaluate_service(problem, one) for one in valid]
    return [one for one in found if first_missed_limit(problem, one) is None]


def _valid_layouts(
    problem: ServingProblem, engine: Engine, layouts: Sequence[ServingLayout]
) -> list[ServingLayout]:
    """Return the ``layouts`` that violate no rule."""
    rules = service_rules(problem, engine)
    return [one for one in layouts if not any(rule.broken(problem, one) for rule in rules)]
