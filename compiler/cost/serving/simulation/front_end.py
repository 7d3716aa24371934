"""Front end of simulated engines, its choice of ranks, and the loop that serves requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain, repeat
from math import inf
from operator import attrgetter
from random import Random

from parc.compiler.cost.serving.simulation.engine import Engine
from parc.compiler.cost.serving.simulation.scheduler import Rank, Request
from parc.compiler.ir.engine_constants import RankBalancer

LOAD = attrgetter("load")


class Balancer(ABC):
    """Choice of the engine, and of its data-parallel rank, that processes a request."""

    def load_of(self, loads: Iterable[int]) -> int:
        """Return the load of an engine, given those of its ranks."""
        return sum(loads)  # routers over several engines do not see the load of single ranks

    def choose_engine(self, engines: Sequence[Engine]) -> int:
        """Return the position of the engine with the lowest load; the first one of several."""
        if len(engines[0].ranks) == 1:
            loads = [engine.ranks[0].load for engine in engines]
        else:
            loads = [self.load_of(map(LOAD, engine.ranks)) for engine in engines]
        return loads.index(min(loads))

    @abstractmethod
    def choose_rank(self, engine: Engine) -> Rank:
        """Return the rank of ``engine`` that processes the next request."""


class LeastLoaded(Balancer):
    """Balancer that chooses the rank with the lowest load (vLLM)."""

    def load_of(self, loads: Iterable[int]) -> int:
        """Return the lowest load of the ranks."""
        return min(loads)

    def choose_rank(self, engine: Engine) -> Rank:
        """Return the rank with the lowest load; the first one of several."""
        return min(engine.ranks, key=LOAD)


class RoundRobin(Balancer):
    """Balancer that gives the ranks of an engine one request each in turn, whatever their load."""

    def __init__(self) -> None:
        """Create a balancer that begins with the first rank of each engine."""
        self._passed: Counter[Engine] = Counter()

    def choose_rank(self, engine: Engine) -> Rank:
        """Return the rank after that of the previous request."""
        turn = self._passed[engine]
        self._passed[engine] += 1
        return engine.ranks[turn % len(engine.ranks)]


class RandomRank(Balancer):
    """Balancer that chooses each rank with the same probability."""

    def __init__(self, seed: int = 0) -> None:
        """Create a balancer; equal seeds give equal choices."""
        # A generator of its own, so that the requests of a sample do not depend on the balancer.
        self._random = Random(seed)

    def choose_rank(self, engine: Engine) -> Rank:
        """Return a random rank."""
        return self._random.choice(engine.ranks)


def create_balancer(name: RankBalancer, seed: int = 0) -> Balancer:
    """Return the balancer called ``name``; equal seeds give equal choices."""
    if name == "random":
        return RandomRank(seed)
    return RoundRobin() if name == "round_robin" else LeastLoaded()


class FrontEnd:
    """API servers, which accept requests one after another and pass them to the scheduler."""

    def __init__(
        self,
        seconds: float,
        admission_seconds: float,
        poll_steps: float = 0.0,
        balancer: Balancer | None = None,
    ) -> None:
        """Create a front end.

        Each request spends ``seconds`` in it, and simultaneous requests follow each other after
        ``admission_seconds``. A busy engine accepts a request ``poll_steps`` decode steps
        later. ``balancer`` selects the data-parallel rank; None selects the least loaded one.
        """
        self.seconds, self.admission_seconds = seconds, admission_seconds
        self.poll_steps = poll_steps
        self.balancer = LeastLoaded() if balancer is None else balancer
        self._passed: list[tuple[float, int, Request, bool]] = []
        self._last = -inf
        self._sequence = 0
        self.next_time = inf
        """Time at which the next request reaches a scheduler."""

    def accept(self, request: Request) -> None:
        """Accept a request. Requests must be in the order of their arrivals."""
        self._last = max(request.arrival + self.seconds, self._last + self.admission_seconds)
        self._push(self._last + request.delay, request, self.poll_steps == 0)

    def accept_all(self, requests: Iterable[Request]) -> None:
        """Accept requests that arrive in this order."""
        for request in requests:
            self.accept(request)

    def _push(self, time: float, request: Request, is_polled: bool) -> None:
        self._sequence += 1
        heappush(self._passed, (time, self._sequence, request, is_polled))
        if time < self.next_time:
            self.next_time = time

    def pass_next(self, engines: Sequence[Engine]) -> int:
        """Add the next request to a rank of the engine with the lowest load, unless it is busy.

        If the engine is busy, the request waits until the engine polls for new requests. The result
        is the position of the engine.
        """
        now, _, request, is_polled = heappop(self._passed)
        self.next_time = self._passed[0][0] if self._passed else inf
        number = 0 if len(engines) == 1 else self.balancer.choose_engine(engines)
        engine = engines[number]
        if is_polled or engine.end == inf:
            ranks = engine.ranks
            engine.add(
                request, ranks[0] if len(ranks) == 1 else self.balancer.choose_rank(engine), now
            )
        else:
            self._push(now + self.poll_steps * engine.decode_seconds, request, True)
        return number


def serve(
    engines: Sequence[Engine],
    front: FrontEnd,
    arrivals: Iterator[Request],
    renew: Callable[[float], Request] | None = None,
) -> Iterator[Request]:
    """Yield the requests in the order in which they end.

    ``arrivals`` are the requests in the order of their arrival times; they may be endless. If
    ``renew`` is set, each ended request is replaced by the request that ``renew`` returns for this
    time (closed loop).
    """
    outside, ends = front.seconds, [engine.end for engine in engines]
    arrivals = chain(arrivals, repeat(Request(inf, 1, 1)))  # after the last one, none arrives
    coming = next(arrivals)
    passed = coming.arrival + outside
    while True:
        while passed <= front.next_time and passed < inf:
            front.accept(coming)
            coming = next(arrivals)
            passed = coming.arrival + outside
        end = min(ends)
        if end < front.next_time:
            number = ends.index(end)
            done = engines[number].advance()
            if renew is not None:
                front.accept_all(renew(request.finish) for request in done)
            yield from done
        elif front.next_time < inf:
            number = front.pass_next(engines)
        else:
            return
        ends[number] = engines[number].end
