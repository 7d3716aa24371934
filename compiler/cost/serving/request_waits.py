"""Delay between the arrival of a request and the start of its own prompt.

Published times to the first token show four delays in addition to the prompt itself. First, the
front end accepts a request (``front_seconds``); simultaneous requests are accepted one after
another (``admission_seconds``), and an engine without CUDA graphs for prompts launches the kernels
of layers with routed experts slowly (``prompt_layer_seconds``). Second, a busy scheduler accepts new requests, and returns tokens,
only every few steps (``poll_steps``). Third, prompts of other requests run first.

The third delay depends on the arrival pattern. With Poisson arrivals it is the wait of an M/D/1
queue. In a closed loop, each request that ends is replaced at once. A benchmark of a closed loop
starts with all requests together, so that half of the other prompts precede a request's own prompt
in the first of ``CLOSED_LOOP_ROUNDS`` rounds. Later, requests that end in the same step return
together. An engine that interleaves prompts and decode steps spreads them, because their prompts
end in different steps. An engine that runs prompts first holds up all decoding requests until the
last prompt has ended, so that requests of equal length stay together in all rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from parc.compiler.ir import Model
from parc.compiler.ir.serving import ServingSetup, Traffic

CLOSED_LOOP_ROUNDS = 10
"""Requests per concurrent request in a benchmark of a closed loop (InferenceX sets --num-prompts to
10 x --max-concurrency). The first of each ten arrives together with all others."""

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
    behind: float = 0.0
    """Number of prompts that run between the prompt of the request and its first decode steps."""
    spread: float = 1.0
    """Fraction of the other running requests whose prompts run at any time."""

    def prompts_while_decoding(self, running: float) -> float:
        """Return the number of prompts that delay the decode steps of a request.

        ``running`` is the number of decoding requests of the rank.
        """
        return self.behind + self.spread * max(running - 1, 0.0)


def closed_loop_queue(
    setup: ServingSetup, traffic: Traffic, ranks: float, present: float
) -> RequestQueue:
    """Return the work ahead of a request if each rank always has ``present`` requests.

    The engine has ``ranks`` data-parallel ranks, which share one front end.
    """
    arrivals = setup.engine.arrivals
    others = max(present - 1, 0.0)
    everywhere = max(present * ranks - 1, 0.0)
    # Probability that the engine is busy: 0 without other requests, close to 1 with many.
    busy = everywhere / (everywhere + 1)
    first_round, later_rounds = 1 / CLOSED_LOOP_ROUNDS, 1 - 1 / CLOSED_LOOP_ROUNDS
    companions = _requests_of_same_step(setup, traffic, present) - 1
    # The prompts of a step end together, so that a request also waits for later ones in its step.
    limit = setup.max_batched_tokens or setup.engine.scheduling.max_batched_tokens
    batch = min(limit / traffic.computed_input_tokens, companions + 1)
    ahead = (companions + max(batch - 1, 0.0)) / 2
    return RequestQueue(
        prompts=first_round * others / 2 + later_rounds * ahead,
        arrivals=everywhere,
        steps=(arrivals.poll_steps + arrivals.option_steps) * busy,
        present=present,
        behind=first_round * others / 2 + later_rounds * (companions - ahead),
        spread=later_rounds * (1 - companions / others) if others else 1.0,
    )


def _requests_of_same_step(setup: ServingSetup, traffic: Traffic, present: float) -> float:
    """Return the number of requests that end in the same step, and whose prompts run together."""
    if not setup.engine.scheduling.prefill_first:
        return 1.0
    lengths = traffic.lengths
    # Width of the distribution of answer lengths divided by their mean; the width of a uniform
    # distribution is its standard deviation x sqrt(12).
    width = 2 * lengths.range_ratio or lengths.output_cv * sqrt(12)
    return max(present / max(width * traffic.output_tokens, 1.0), 1.0)


def poisson_queue(rate: float, prefill_seconds: float) -> RequestQueue:
    """Return the work ahead of a request on a rank with Poisson arrivals.

    ``rate`` is the number of requests per second per data-parallel rank. The number of prompts
    ahead is load / (2 (1 - load)) with load = rate x prefill_seconds, as in an M/D/1 queue.
    """
    load = min(rate * prefill_seconds, BUSIEST)
    # A request arrives on average in the middle of a step.
    return RequestQueue(prompts=load / (2 * (1 - load)), steps=0.5)


def seconds_outside_steps(setup: ServingSetup, model: Model) -> float:
    """Return the time in seconds that a request alone spends without delaying other requests.

    Decode pools receive prompts that other engines have computed.
    """
    arrivals = setup.engine.arrivals
    layers = 0 if setup.prefill_apart else model.moe_layers
    return arrivals.front_seconds + arrivals.prompt_layer_seconds * layers


def seconds_until_prompt_runs(
    setup: ServingSetup,
    model: Model,
    queue: RequestQueue,
    prefill_seconds: float,
    step_seconds: float,
) -> float:
    """Return the time in seconds from the arrival of a request until its prompt runs.

    The time does not include a wait for a free slot in the engine.
    """
    front = seconds_outside_steps(setup, model)
    front += setup.engine.arrivals.admission_seconds * queue.arrivals
    return front + queue.steps * step_seconds + queue.prompts * prefill_seconds
