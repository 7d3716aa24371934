"""Front end of simulated engines, its choice of ranks, and the loop that serves requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from operator import attrgetter
from random import Random

from parc.compiler.cost.serving.simulation.engine import Engine
from parc.compiler.cost.serving.simulation.scheduler import Rank, Request
from parc.compiler.ir.engine_constants import RankBalancer

END, LOAD = attrgetter("end"), attrgetter("load")


class Balancer(ABC):
    """Choice of the engine, and of its data-parallel rank, that processes a request."""

    def load_of(self, engine: Engine) -> float:
        """Return the load of ``engine``; a request goes to the engine with the lowest load."""
        # Routers over several engines do not see the load of single ranks. Most engines have one
        # rank, and each request compares all engines.
        ranks = engine.ranks
        return ranks[0].load if len(ranks) == 1 else sum(map(LOAD, ranks))

    @abstractmethod
    def choose_rank(self, engine: Engine) -> Rank:
        """Return the rank of ``engine`` that processes the next request."""


class LeastLoaded(Balancer):
    """Balancer that chooses the rank with the lowest load (vLLM)."""

    def load_of(self, engine: Engine) -> float:
        """Return the load of the rank with the lowest load."""
        ranks = engine.ranks
        return ranks[0].load if len(ranks) == 1 else min(map(LOAD, ranks))

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

    def _push(self, time: float, request: Request, is_polled: bool) -> None:
        self._sequence += 1
        heappush(self._passed, (time, self._sequence, request, is_polled))
        if time < self.next_time:
            self.next_time = time

    def pass_next(self, engines: Sequence[Engine]) -> None:
        """Add the next request to a rank of the engine with the lowest load, unless it is busy.

        If the engine is busy, the request waits until the engine polls for new requests.
        """
        now, _, request, is_polled = heappop(self._passed)
        self.next_time = self._passed[0][0] if self._passed else inf
        balancer = self.balancer
        engine = engines[0] if len(engines) == 1 else min(engines, key=balancer.load_of)
        if is_polled or engine.end == inf:
            rank = engine.ranks[0] if len(engine.ranks) == 1 else balancer.choose_rank(engine)
            engine.add(request, rank, now)
        else:
            self._push(now + self.poll_steps * engine.decode_seconds, request, True)


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
    coming = next(arrivals, None)
    while True:
        while coming is not None and coming.arrival + front.seconds <= front.next_time:
            front.accept(coming)
            coming = next(arrivals, None)
        engine = engines[0] if len(engines) == 1 else min(engines, key=END)
        now = front.next_time
        if now <= engine.end:
            if now == inf:
                return
            front.pass_next(engines)
            continue
        done = engine.advance()
        for request in done:
            if renew is not None:
                front.accept(renew(request.finish))
            yield request
