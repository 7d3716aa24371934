"""What stands between a request's arrival and its own prompt.

Three things are seen in published times to the first token, beside the prompt itself:

- the front end takes a request in (``front_seconds``), and many that come at a time one after
  another (``admission_seconds``);
- a busy scheduler looks for new requests, and hands tokens out, every few steps (``poll_steps``);
- prompts of others are before one's own.

The last depends on arrivals, which no benchmark row says. With Poisson arrivals it is the queue of
an M/D/1 server. With a fixed number of requests in the system, where each that ends is replaced,
all of them arrive together at the start and spread out later: half of the prompts of the others
stand before one's own in the first of r rounds, few in later ones, hence a share 1 / (2 r) of
them (``wait_share``: fitted, 0.05 would be ten rounds).
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.serving.constants import Engine

BUSIEST = 0.95
"""Load of the prompt queue above which a Poisson queue is taken for this load."""


@dataclass(frozen=True, slots=True)
class Queue:
    """What a request finds when it arrives at a DP rank."""

    prompts: float = 0.0
    """Prompts that run before its own."""
    arrivals: float = 0.0
    """Requests that the front end of the engine takes in before it."""
    steps: float = 0.0
    """Steps until it is looked at, and its first token is handed out."""
    present: float = 0.0
    """Requests that are always in the system of the rank; 0 where arrivals are open."""


def closed_queue(engine: Engine, ranks: float, present: float) -> Queue:
    """``present`` requests at all times on each of ``ranks`` DP ranks behind one front end."""
    others = max(present - 1, 0.0)
    everywhere = max(present * ranks - 1, 0.0)
    busy = everywhere / (everywhere + 1)
    return Queue(engine.wait_share * others, everywhere, engine.poll_steps * busy, present)


def open_queue(rate: float, prefill_seconds: float) -> Queue:
    """Poisson arrivals at ``rate`` a second and DP rank: load / (2 (1 - load)), as in M/D/1."""
    load = min(rate * prefill_seconds, BUSIEST)
    return Queue(prompts=load / (2 * (1 - load)), steps=0.5)


def waited_seconds(
    engine: Engine, queue: Queue, prefill_seconds: float, step_seconds: float
) -> float:
    """From arrival until one's own prompt runs, where a slot is free."""
    front = engine.front_seconds + engine.admission_seconds * queue.arrivals
    return front + queue.steps * step_seconds + queue.prompts * prefill_seconds
