"""Arrival times and lengths of the requests that the simulation serves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import count
from math import exp, log
from random import Random
from threading import Lock

from parc.compiler.cost.serving.lognormal_lengths import lognormal_parameters
from parc.compiler.cost.serving.simulation.scheduler import Request
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import Lengths, Trace, Traffic

TRACE_BLOCK = 512
"""Prompt tokens per block identifier of a trace (Mooncake, arXiv:2407.00079)."""

DRAWN_TOGETHER = 256
"""Number of requests of a sample that are drawn at a time."""
RequestAt = Callable[[float], Request]
"""Function that returns a new request that arrives at the given time."""


class RequestSample:
    """Lengths of requests, and times between their arrivals, drawn from a random generator.

    Simulations of other layouts and rates need the same numbers again, so they are kept.
    """

    def __init__(self, traffic: Traffic, seed: int | str) -> None:
        """Create a sample of ``traffic``; equal seeds give equal samples."""
        random, shape = Random(seed), traffic.burstiness
        lengths = traffic.lengths
        self._draw_input = _length_drawer(
            lengths, traffic.input_tokens, lengths.input_cv, random, lengths.input_most
        )
        self._draw_output = _length_drawer(
            lengths, traffic.output_tokens, lengths.output_cv, random
        )
        self._draw_gap: Callable[[], float] | None = None
        if traffic.request_rate is not None:
            # The times have a gamma distribution whose shape is the burstiness, as in ``vllm bench
            # serve``. The mean is 1, because rates differ between simulations.
            self._draw_gap = (
                partial(random.expovariate, 1.0)
                if shape == 1
                else partial(random.gammavariate, shape, 1 / shape)
            )
        self._drawn: list[tuple[float, int, int]] = []
        self._lock = Lock()

    def __iter__(self) -> Iterator[tuple[float, int, int]]:
        """Yield (time since the arrival before, prompt tokens, output tokens) without end.

        The unit of the time is the mean time between arrivals; it is 0 in a closed loop.
        """
        drawn, start = self._drawn, 0
        while True:
            if start == len(drawn):
                self._draw_after(start)
            stop = len(drawn)
            yield from drawn[start:stop]
            start = stop

    def _draw_after(self, start: int) -> None:
        """Draw more requests, unless there are more than ``start``."""
        with self._lock:  # a sweep can use threads, which share the sample
            if start == len(self._drawn):
                self._drawn += [self._draw() for _ in range(DRAWN_TOGETHER)]

    def _draw(self) -> tuple[float, int, int]:
        gap = self._draw_gap() if self._draw_gap is not None else 0.0
        return gap, self._draw_input(), self._draw_output()


def request_sample(traffic: Traffic, seed: int) -> RequestSample:
    """Return the sample of ``traffic`` with ``seed``, which other simulations may have drawn."""
    # The rate and the hits of the prefix cache do not change what is drawn.
    rate = None if traffic.request_rate is None else 1.0
    drawn = Traffic(traffic.input_tokens, traffic.output_tokens, request_rate=rate)
    return _cached_sample(
        replace(drawn, burstiness=traffic.burstiness, lengths=traffic.lengths), seed
    )


@lru_cache(maxsize=4)
def _cached_sample(traffic: Traffic, seed: int) -> RequestSample:
    return RequestSample(traffic, seed)


def open_arrivals(rate: float, sample: RequestSample, request_at: RequestAt) -> Iterator[Request]:
    """Yield requests without end, at ``rate`` requests per second."""
    now = 0.0
    for gap, _, _ in sample:
        now += gap / rate
        yield request_at(now)


def trace_arrivals(trace: Trace, rate: float, request_at: RequestAt) -> Iterator[Request]:
    """Yield requests at the recorded times, which are scaled to ``rate`` requests per second.

    After its last request, the trace starts again.
    """
    # The time between two passes is the mean time between arrivals, so a pass takes count / rate.
    scale, period = (trace.count - 1) / (trace.seconds * rate), trace.count / rate
    for turn in count():
        for request in trace.requests:
            yield request_at(turn * period + request.seconds * scale)


@frozen
class PrefixCaches:
    """Sizes of the prefix caches, in which the blocks of a trace are looked up."""

    tokens: float
    """Number of tokens in GPU memory."""
    host_tokens: float = 0.0
    """Number of tokens in host memory."""
    reload_seconds: float = 0.0
    """Time in seconds to load one token from host memory."""


def request_maker(
    traffic: Traffic, sample: RequestSample, longest: int, caches: PrefixCaches
) -> RequestAt:
    """Return a function that creates requests with the lengths of ``traffic``.

    Requests are cut to ``longest`` tokens, and to the maximum length of a request.
    """
    if traffic.trace is not None:
        return _trace_maker(traffic.trace, longest, caches)
    drawn, most = iter(sample), traffic.lengths.input_most
    if most is not None:
        longest = min(longest, round(most * traffic.input_tokens + traffic.output_tokens))
    hit, loaded = traffic.prefix_hit + traffic.host_hit, traffic.host_hit

    def request_at(now: float) -> Request:
        _, prompt, output = next(drawn)
        if prompt >= longest:
            prompt = longest - 1
        # At least the last token of a prompt is computed, because it yields the first output.
        cached = min(int(prompt * hit), prompt - 1) if hit else 0
        delay = prompt * loaded * caches.reload_seconds
        return Request(now, prompt, min(output, longest - prompt), cached, delay)

    return request_at


def _length_drawer(
    lengths: Lengths, mean: float, variation: float, random: Random, most: float | None = None
) -> Callable[[], int]:
    """Return a function that draws lengths with the given mean.

    Lognormal lengths are at most ``most`` times the mean.
    """
    ratio = lengths.range_ratio
    if variation:
        location, sigma = lognormal_parameters(variation)
        mu = log(mean) + location
        # gauss is twice as fast as lognormvariate.
        if most is None:
            return lambda: max(round(exp(random.gauss(mu, sigma))), 1)
        longest = mean * most
        return lambda: max(round(min(exp(random.gauss(mu, sigma)), longest)), 1)
    if ratio:
        low, width = mean * (1 - ratio), 2 * ratio * mean
        return lambda: max(round(low + width * random.random()), 1)
    fixed = max(round(mean), 1)
    return lambda: fixed


def _trace_maker(trace: Trace, longest: int, caches: PrefixCaches) -> RequestAt:
    """Return a function that creates the requests of a trace one after another.

    Prefix hits are looked up in caches that replace the least recently used blocks: first in GPU
    memory, then in host memory, which has a copy of each computed block.
    """
    requests = trace.requests
    stored, copies = _BlockCache(caches.tokens), _BlockCache(caches.host_tokens)
    position = count()

    def request_at(now: float) -> Request:
        found = requests[next(position) % len(requests)]
        prompt = min(found.input_tokens, longest - 1)
        hits = _leading_hits(stored.blocks, found.blocks)
        loaded = _leading_hits(copies.blocks, found.blocks[hits:])
        stored.add(found.blocks)
        copies.add(found.blocks)
        cached = min((hits + loaded) * TRACE_BLOCK, prompt - 1)
        output = min(found.output_tokens, longest - prompt)
        return Request(now, prompt, output, cached, loaded * TRACE_BLOCK * caches.reload_seconds)

    return request_at


class _BlockCache:
    """Cache of blocks of a trace that replaces the least recently used ones."""

    def __init__(self, tokens: float) -> None:
        self.blocks: OrderedDict[int, None] = OrderedDict()
        self._most = max(int(tokens / TRACE_BLOCK), 1) if tokens else 0

    def add(self, blocks: Sequence[int]) -> None:
        """Add blocks, which become the most recently used ones."""
        for block in blocks if self._most else ():
            self.blocks[block] = None
            self.blocks.move_to_end(block)
        while len(self.blocks) > self._most:
            self.blocks.popitem(last=False)


def _leading_hits(stored: OrderedDict[int, None], blocks: tuple[int, ...]) -> int:
    """Return the number of leading blocks that are stored."""
    for hits, block in enumerate(blocks):
        if block not in stored:
            return hits
    return len(blocks)
