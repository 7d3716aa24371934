"""The cheapest order of hosts that can be found in so many steps, and how near it is to a bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from math import prod

from parc.compiler.placement.order.bound import Bound
from parc.compiler.placement.order.byte_bound import ByteBound
from parc.compiler.placement.order.exhaust import every_place
from parc.compiler.placement.order.loads import Loads
from parc.compiler.placement.order.messages import Messages, messages
from parc.compiler.placement.order.price import Cost, Question, rounded
from parc.compiler.placement.order.rank_boxes import Shape
from parc.compiler.placement.order.seeds import seeds
from parc.compiler.placement.order.swaps import improve

BOXES = "boxes"
SWAPS = "swaps"
EVERY = "every order"
MOST_NODES, MOST_SITES = 16, 24
"""Node ranks, and sites for them, of a job whose orders may be few enough to price each."""
SMALL = 1e-9
"""Share by which floating point may make equal costs differ."""


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
    bytes: bool
    """Whether the search goes on for fewer bytes once no order can expose less."""


THOROUGH = Effort(6_000, 3_000_000, 2_000_000, 3, bytes=True)
QUICK = Effort(0, 600_000, 0, 0, bytes=False)
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
    least: Cost
    """No order exposes less; none that ties with the least sends fewer bytes."""
    floor_seconds: float
    """Orders that expose no more than this are tied; see ``Cost.rank``."""


def least_cost(bound: Bound) -> Cost:
    """What no order of hosts can beat, every entry for itself."""
    bytes_ = ByteBound(bound)
    return Cost(bound.exposed_seconds, bytes_.busiest_bytes, bytes_.total_bytes)


def choose(question: Question, bound: Bound, named: Iterable[Found], effort: Effort) -> Choice:
    """Look for an order that is better than the ``named`` ones.

    Stops where the bounds are met. Small jobs are priced in full; else orders by boxes are priced,
    and the best of all are improved by swaps: first for what they expose, then for bytes. The
    budget counts messages, not seconds, so that every machine finds the same order.
    """
    start = list(named)
    search = _Search(question, bound, effort, least_cost(bound) if effort.bytes else None)
    if search.met(start):
        return search.choice(start, start)
    whole = search.every() if effort.every else None
    if whole:
        return search.choice_of_all(start, whole)
    found = [*start]
    found += search.boxes(found, by_bytes=False)
    found += search.swapped(found, by_bytes=False)
    found += search.boxes(found, by_bytes=True)
    found += search.swapped(found, by_bytes=True)
    return search.choice(start, found)


class _Search:
    """One question, what bounds it, and how far to go."""

    def __init__(
        self, question: Question, bound: Bound, effort: Effort, least: Cost | None
    ) -> None:
        """``least``: None where bytes are not worth a search of their own."""
        self._question, self._bound, self._effort, self._least = question, bound, effort, least

    @cached_property
    def _flows(self) -> list[Messages]:
        return [messages(one, self._question.nodes) for one in self._question.flows]

    def floor(self, found: Iterable[Found]) -> float:
        """What the least exposes, and the tie.

        The search ends at what ties with the bound, so from there on the bound stands for the
        least: whatever exposes no more than it and the tie is tied for certain.
        """
        exposed = min(one.cost.exposed_seconds for one in found)
        if self._least_exposed(found):
            exposed = self._bound.exposed_seconds
        return rounded(exposed + self._question.tie_seconds)

    def choice(self, start: Sequence[Found], found: Sequence[Found]) -> Choice:
        """The best of ``found``, where none of ``start`` is as good."""
        least = self._least or Cost(self._bound.exposed_seconds, 0.0, 0.0)
        floor = self.floor(found)
        return Choice(_better(start, found, floor), least, floor)

    def choice_of_all(self, start: Sequence[Found], found: Sequence[Found]) -> Choice:
        """The same where there are no other orders than ``found``."""
        exposed = min(one.cost.exposed_seconds for one in found)
        floor = rounded(exposed + self._question.tie_seconds)
        least = replace(_best(found, floor).cost, exposed_seconds=exposed)
        return Choice(_better(start, found, floor), least, floor)

    def met(self, found: Sequence[Found]) -> bool:
        """Whether nothing better than the best can be."""
        if self._least is None:
            return self._least_exposed(found)
        best, tie = _best(found, self.floor(found)).cost, self._question.tie_seconds
        return meets_exposed(best, self._least, tie) and meets_bytes(best, self._least)

    def _least_exposed(self, found: Iterable[Found]) -> bool:
        exposed = min(one.cost.exposed_seconds for one in found)
        return exposed <= self._bound.exposed_seconds + self._question.tie_seconds

    def every(self) -> list[Found]:
        """All orders; none where there are more than the effort allows."""
        question, most = self._question, self._effort.every
        if question.nodes > MOST_NODES or len(question.sites.sizes) > MOST_SITES:
            return []
        places = islice(every_place(question.nodes, question.sites), most + 1)
        whole = [tuple(place) for place in places]
        if len(whole) > most:
            return []
        return [Found(EVERY, (), place, question.cost(place)) for place in whole]

    def boxes(self, start: Sequence[Found], by_bytes: bool) -> list[Found]:
        """Orders by boxes, until the budget is used up or nothing better can be."""
        question, found = self._question, list[Found]()
        size = _messages(question) * (1 + len(question.sites.tiers))
        most = max(self._effort.seed_messages // size, 4)
        seen = {one.place for one in start}
        for seed in islice(seeds(question, self._bound.digits, self._flows, by_bytes), most):
            if self._done([*start, *found], by_bytes):
                break
            if seed.place not in seen:
                seen.add(seed.place)
                found.append(Found(BOXES, seed.nested, seed.place, question.cost(seed.place)))
        return found

    def swapped(self, found: Sequence[Found], by_bytes: bool) -> list[Found]:
        """The best different orders, each improved by swaps; of a large job only the best.

        ``by_bytes``: for the bytes of orders that are tied, else for what they expose.
        """
        if not self._effort.starts or self._done(found, by_bytes):
            return []
        floor = self.floor(found) if by_bytes else 0.0
        starts, trials = self._swaps()
        seen: dict[Cost, Found] = {}
        for one in sorted(found, key=lambda one: one.cost.rank(floor)):
            if len(seen) < starts:
                seen.setdefault(one.cost, one)
        return [self._improved(one, trials, floor) for one in seen.values()]

    def _done(self, found: Sequence[Found], by_bytes: bool) -> bool:
        """Whether there is nothing left to look for."""
        if by_bytes:
            return self._least is None or self.met(found)
        return self._least_exposed(found)

    def _improved(self, one: Found, trials: int, floor: float) -> Found:
        question = self._question
        loads = Loads(question, self._flows, one.place)
        improve(loads, trials, floor)
        place = tuple(loads.place[: question.nodes])
        return Found(SWAPS, one.nested, place, question.cost(place))

    def _swaps(self) -> tuple[int, int]:
        """How many orders to start from, and how many swaps to try from each."""
        question, effort = self._question, self._effort
        tiers, wide = question.sites.tiers, question.sites.wide
        zones = sum(len(tier.bytes_per_s) for tier in tiers) + wide * question.nodes
        start = 4 * _messages(question) * (len(tiers) + wide)
        starts = max(1, min(effort.starts, effort.swap_messages // start))
        left = max(effort.swap_messages - starts * start, effort.swap_messages // 10)
        return starts, left // (starts * (20 + zones) * len(self._flows))


def _best(found: Iterable[Found], floor: float) -> Found:
    """The first of the best by rank."""
    return min(found, key=lambda one: one.cost.rank(floor))


def _better(start: Iterable[Found], found: Iterable[Found], floor: float) -> Found | None:
    """The best of ``found``, if it is better than all of ``start``."""
    best, named = _best(found, floor), _best(start, floor)
    return best if best.cost.rank(floor) < named.cost.rank(floor) else None


def meets_exposed(cost: Cost, least: Cost, tie_seconds: float) -> bool:
    """Whether no order exposes less by more than a tie."""
    return cost.exposed_seconds <= (least.exposed_seconds + tie_seconds) * (1 + SMALL)


def meets_bytes(cost: Cost, least: Cost) -> bool:
    """Whether no order sends fewer bytes."""
    pairs = (
        (cost.busiest_bytes, least.busiest_bytes),
        (cost.total_bytes, least.total_bytes),
    )
    return all(sent <= fewest * (1 + SMALL) for sent, fewest in pairs)


def _messages(question: Question) -> int:
    """Messages and members of all flows."""
    flows = question.flows
    return sum(len(one.senders) + sum(map(len, one.meetings)) for one in flows) + question.nodes


def box_sizes(nested: tuple[Shape, ...]) -> tuple[int, ...]:
    """Node ranks of a box, the narrowest first."""
    return tuple(map(prod, nested))
