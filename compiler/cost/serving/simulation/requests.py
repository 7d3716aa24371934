"""Arrival times and lengths of the requests that the simulation serves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from math import exp, log, sqrt
from random import Random

from parc.compiler.cost.serving.simulation.scheduler import Request
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import Trace, Traffic

TRACE_BLOCK = 512
"""Prompt tokens per block identifier of a trace (Mooncake, arXiv:2407.00079)."""

RequestAt = Callable[[float], Request]
"""Function that returns a new request that arrives at the given time."""


def open_arrivals(
    traffic: Traffic, rate: float, random: Random, request_at: RequestAt
) -> Iterator[Request]:
    """Yield requests without end, at ``rate`` requests per second.

    The times between arrivals have a gamma distribution whose shape is the burstiness, as in ``vllm
    bench serve``.
    """
    now, shape = 0.0, traffic.burstiness
    while True:
        gap = random.expovariate(rate) if shape == 1 else random.gammavariate(shape, 1 / shape)
        now += gap if shape == 1 else gap / rate
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
    traffic: Traffic, random: Random, longest: int, caches: PrefixCaches
) -> RequestAt:
    """Return a function that creates requests with the lengths of ``traffic``.

    Requests are cut to ``longest`` tokens.
    """
    if traffic.trace is not None:
        return _trace_maker(traffic.trace, longest, caches)
    draw_input = _length_drawer(traffic, traffic.input_tokens, traffic.lengths.input_cv, random)
    draw_output = _length_drawer(traffic, traffic.output_tokens, traffic.lengths.output_cv, random)
    hit, loaded = traffic.prefix_hit + traffic.host_hit, traffic.host_hit

    def request_at(now: float) -> Request:
        prompt = min(draw_input(), longest - 1)
        # At least the last token of a prompt is computed, because it yields the first output.
        cached = min(int(prompt * hit), prompt - 1) if hit else 0
        delay = prompt * loaded * caches.reload_seconds
        return Request(now, prompt, min(draw_output(), longest - prompt), cached, delay)

    return request_at


def _length_drawer(
    traffic: Traffic, mean: float, variation: float, random: Random
) -> Callable[[], int]:
    """Return a function that draws lengths with the given mean."""
    ratio = traffic.lengths.range_ratio
    if variation:
        sigma = sqrt(log(1 + variation * variation))
        mu = log(mean) - sigma * sigma / 2
        # gauss is twice as fast as lognormvariate.
        return lambda: max(round(exp(random.gauss(mu, sigma))), 1)
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
