"""The cheapest order of hosts that can be found in so many steps, and how near it is to a bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import prod

from parc.compiler.topology.placing.bound import Bound
from parc.compiler.topology.placing.digits import Shape
from parc.compiler.topology.placing.exhaust import every_place
from parc.compiler.topology.placing.loads import Loads
from parc.compiler.topology.placing.messages import Messages, messages
from parc.compiler.topology.placing.price import Cost, Question
from parc.compiler.topology.placing.seeds import seeds
from parc.compiler.topology.placing.swaps import improve

BOXES = "boxes"
SWAPS = "swaps"
EVERY = "every order"
MOST_NODES, MOST_SITES = 16, 24
"""Node ranks, and sites for them, of a job whose orders may be few enough to price each."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How many steps a search for an order may take."""

    every: int
    """Orders of a small job that are priced one by one; none where there are more."""
    seed_messages: int
    """Messages that are priced in orders by boxes."""
    swap_messages: int
    """Links that are looked at in swaps."""
    starts: int
    """Orders that swaps start from."""


THOROUGH = Effort(4_000, 3_000_000, 2_000_000, 3)
QUICK = Effort(0, 600_000, 0, 0)
"""For the many layouts of a search: named orders and the likeliest boxes."""


@dataclass(frozen=True, slots=True)
class Found:
    """One order that was priced."""

    way: str
    """BOXES, SWAPS, EVERY, or what the caller calls it."""
    nested: tuple[Shape, ...]
    place: tuple[int, ...]
    cost: Cost


@dataclass(frozen=True, slots=True)
class Choice:
    """The best order beyond the named ones, if any is better, and what is known of the optimum."""

    better: Found | None
    bound_seconds: float
    """No order exposes less."""
    every: bool
    """Whether every order was priced, so that the best of all is optimal whatever the bound."""


def choose(question: Question, bound: Bound, named: Iterable[Found], effort: Effort) -> Choice:
    """Look for an order that is cheaper than the ``named`` ones.

    Stops where the bound is met. Small jobs are priced in full; else orders by boxes are priced,
    and the best of all are improved by swaps. The budget counts messages, not seconds, so that
    every machine finds the same order.
    """
    start = list(named)
    least = min(start, key=lambda one: one.cost)
    limit = bound.exposed_seconds
    if least.cost.exposed_seconds <= limit:
        return Choice(None, limit, False)
    whole = _every(question, effort.every) if effort.every else None
    if whole is not None:
        return Choice(whole if whole.cost < least.cost else None, limit, True)
    flows = [messages(one, question.nodes) for one in question.flows]
    found = [*start]
    found += _boxes(question, bound, flows, effort)
    found.sort(key=lambda one: one.cost)
    if effort.starts and found[0].cost.exposed_seconds > limit:
        found += _swapped(question, flows, found, effort)
    best = min(found, key=lambda one: one.cost)
    return Choice(best if best.cost < least.cost else None, limit, False)


def _every(question: Question, most: int) -> Found | None:
    """The best of all orders; None where there are more than ``most``."""
    if question.nodes > MOST_NODES or len(question.sites.sizes) > MOST_SITES:
        return None
    best: tuple[Cost, tuple[int, ...]] | None = None
    for count, place in enumerate(every_place(question.nodes, question.sites)):
        if count == most:
            return None
        cost = question.cost(place)
        if best is None or cost < best[0]:
            best = (cost, tuple(place))
    return Found(EVERY, (), best[1], best[0]) if best else None


def _boxes(
    question: Question, bound: Bound, flows: list[Messages], effort: Effort
) -> Iterator[Found]:
    """Orders by boxes, until the budget is used up or the bound is met."""
    most = effort.seed_messages // (_messages(question) * (1 + len(question.sites.tiers)))
    seen = set()
    for seed in islice(seeds(question, bound.digits, flows), max(most, 4)):
        if seed.place in seen:
            continue
        seen.add(seed.place)
        found = Found(BOXES, seed.nested, seed.place, question.cost(seed.place))
        yield found
        if found.cost.exposed_seconds <= bound.exposed_seconds:
            return


def _swapped(
    question: Question, flows: list[Messages], found: list[Found], effort: Effort
) -> Iterator[Found]:
    """The best different orders, each improved by swaps; of a large job only the best."""
    tiers = question.sites.tiers
    zones = sum(len(tier.bytes_per_s) for tier in tiers) + question.sites.wide * question.nodes
    start = 4 * _messages(question) * (len(tiers) + question.sites.wide)
    starts = max(1, min(effort.starts, effort.swap_messages // start))
    left = max(effort.swap_messages - starts * start, effort.swap_messages // 10)
    trials = left // (starts * (20 + zones) * len(flows))
    seen: set[Cost] = set()
    for one in found:
        if len(seen) == starts:
            return
        if one.cost in seen:
            continue
        seen.add(one.cost)
        loads = Loads(question, flows, one.place)
        improve(loads, trials)
        place = tuple(loads.place[: question.nodes])
        yield Found(SWAPS, one.nested, place, question.cost(place))


def _messages(question: Question) -> int:
    """Messages and members of all flows."""
    flows = question.flows
    return sum(len(one.senders) + sum(map(len, one.meetings)) for one in flows) + question.nodes


def box_sizes(nested: tuple[Shape, ...]) -> tuple[int, ...]:
    """Node ranks of a box, the narrowest first."""
    return tuple(map(prod, nested))
