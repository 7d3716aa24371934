"""Delay between the arrival of a request and the start of its own prompt.

Published times to the first token show three delays in addition to the prompt itself. First, the
front end accepts a request (``front_seconds``); simultaneous requests are accepted one after
another (``admission_seconds``). Second, a busy scheduler accepts new requests, and returns tokens,
only every few steps (``poll_steps``). Third, prompts of other requests run first.

The third delay depends on the arrival pattern, which no benchmark row states. With Poisson arrivals
it is the wait of an M/D/1 queue. With a fixed number of requests in the system, each of which is
replaced when it ends, all requests arrive together at the start and spread out later: half of the
other prompts precede a request's own prompt in the first of r rounds and few in later rounds, hence
a fraction 1 / (2 r) of them (``wait_share``, fitted; 0.05 would be ten rounds).
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir.engine_constants import ArrivalConstants

BUSIEST = 0.95
"""Upper limit of the load of a Poisson queue, because the queue would be infinitely long at load
1."""


@dataclass(frozen=True, slots=True)
class RequestQueue:
    """Work ahead of a request when it arrives at a data-parallel rank."""

    prompts: float = 0.0
    """Number of prompts that run before the prompt of the request."""
    arrivals: float = 0.0
    """Number of requests that the front end of the engine accepts before this request."""
    steps: float = 0.0
    """Steps until the request is accepted and its first token is returned."""
    present: float = 0.0
    """Number of requests that are always in the system of the rank; 0 under Poisson arrivals."""


def closed_loop_queue(arrivals: ArrivalConstants, ranks: float, present: float) -> RequestQueue:
    """Return the work ahead of a request if each rank always has ``present`` requests.

    The engine has ``ranks`` data-parallel ranks, which share one front end.
    """
    others = max(present - 1, 0.0)
    everywhere = max(present * ranks - 1, 0.0)
    # Probability that the engine is busy: 0 without other requests, close to 1 with many.
    busy = everywhere / (everywhere + 1)
    return RequestQueue(
        arrivals.wait_share * others, everywhere, arrivals.poll_steps * busy, present
    )


def poisson_queue(rate: float, prefill_seconds: float) -> RequestQueue:
    """Return the work ahead of a request on a rank with Poisson arrivals.

    ``rate`` is the number of requests per second per data-parallel rank. The number of prompts
    ahead is load / (2 (1 - load)) with load = rate x prefill_seconds, as in an M/D/1 queue.
    """
    load = min(rate * prefill_seconds, BUSIEST)
    # A request arrives on average in the middle of a step.
    return RequestQueue(prompts=load / (2 * (1 - load)), steps=0.5)


def seconds_until_prompt_runs(
    arrivals: ArrivalConstants, queue: RequestQueue, prefill_seconds: float, step_seconds: float
) -> float:
    """Return the time in seconds from the arrival of a request until its prompt runs.

    The time does not include a wait for a free slot in the engine.
    """
    front = arrivals.front_seconds + arrivals.admission_seconds * queue.arrivals
    return front + queue.steps * step_seconds + queue.prompts * prefill_seconds
