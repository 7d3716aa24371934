"""Tables of the step times of a serving rank, for fast access by the event simulation.

The time of a step is linear in the context of decoding requests and in the keys that prompt tokens
attend to, so two evaluations per number of decoding requests determine it exactly. The remaining
time of prompt tokens is interpolated between grid points, each of which is evaluated on first use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from math import inf

from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.step import (
    StepBatch,
    host_floor_seconds,
    mean_visible_prompt_keys,
    seconds_through_all_stages,
)
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import StepTerms

GRID_EXACT = 8
"""Largest count of requests or prompt tokens for which every integer is a grid point."""
GRID_RATIO = 1.12
"""Ratio of neighboring grid points above ``GRID_EXACT``. The interpolation error is at most 1 %
of a step, next to the point where matrix products change from memory-bound to compute-bound."""
MOST_POINTS = 1024
"""More points than a grid can have, so that row x ``MOST_POINTS`` + column is unambiguous."""
CONTEXTS = (64.0, 4096.0)
"""Contexts at which steps of models without a sliding window are evaluated."""
MANY_KEYS = (1e6, 2e6)
"""Mean keys per prompt token from which the time per key follows. They are so large that the
output projection, which depends on the number of prompts, takes equally long."""

StepSeconds = Callable[[StepBatch], float]
Line = tuple[float, float]
"""(seconds at context 0, seconds per token of context) of a step in which requests decode."""


@frozen
class Keys:
    """Keys that the tokens of a model attend to."""

    window: float = inf
    """Context in tokens up to which all layers attend to all tokens."""
    mean_visible: Callable[[float], float] = lambda tokens: tokens / 2
    """Function: number of prompt tokens -> mean number of keys of one of them."""


class StepTimes:
    """Seconds per step, by number of decoding requests, their context, and prompt tokens."""

    def __init__(
        self,
        seconds: StepSeconds,
        prompt_tokens: float,
        keys: Keys | None = None,
        floor: Callable[[float], float] | None = None,
    ) -> None:
        """Create empty tables of the function ``seconds``.

        ``prompt_tokens`` is the mean number of tokens of a prompt. ``floor`` returns the seconds
        that a step with a number of decoding requests takes at least; the tables ignore it.
        """
        self.least_seconds = cache(floor or (lambda _: 0.0))
        self.keys = keys or Keys()
        self.window = self.keys.window
        self._seconds = seconds
        self._span = max(self.keys.mean_visible(prompt_tokens), 0.5)
        self._lines: tuple[dict[int, Line], dict[int, Line]] = {}, {}
        self._means: dict[float, float] = {}
        self._places: dict[float, tuple[int, float]] = {}
        self._segments: dict[int, Line] = {}
        self._cells: dict[tuple[int, int], float] = {}
        self._keys: dict[int, float] = {}
        self._grid = [float(n) for n in range(GRID_EXACT + 1)]
        few, many = (seconds(StepBatch(1.0, 1.0, 1.0, span)) for span in MANY_KEYS)
        self._per_key = (many - few) / (MANY_KEYS[1] - MANY_KEYS[0])

    def decode_line(self, decode: int, context: float) -> Line:
        """Return the line on which steps with ``decode`` requests of mean ``context`` lie."""
        is_beyond = context >= self.window
        lines = self._lines[is_beyond]
        line = lines.get(decode)
        if line is None:
            line = lines[decode] = self._find_line(decode, is_beyond)
        return line

    def decode_seconds(self, decode: float) -> float:
        """Return the seconds of a step with ``decode`` requests without context.

        ``decode`` can be a mean over ranks; its seconds are interpolated.
        """
        seconds = self._means.get(decode)
        if seconds is None:
            low = int(decode)
            seconds = self.decode_line(low, 0.0)[0]
            if decode > low:
                seconds += (decode - low) * (self.decode_line(low + 1, 0.0)[0] - seconds)
            self._means[decode] = seconds
        return seconds

    def _find_line(self, decode: int, is_beyond: bool) -> Line:
        low, high = CONTEXTS
        if self.window < inf:
            ends = (self.window + 1, 2 * self.window + 1), (self.window / 2, self.window)
            low, high = ends[0] if is_beyond else ends[1]
        first = self._seconds(StepBatch(decode, low))
        slope = (self._seconds(StepBatch(decode, high)) - first) / (high - low)
        return first - slope * low, slope

    def prompt_seconds(self, decode: float, tokens: float, keys: float) -> float:
        """Return the seconds that ``tokens`` prompt tokens add to a step with ``decode`` requests.

        ``keys`` is the sum of the keys to which the prompt tokens attend.
        """
        if not tokens:
            return 0.0
        places, segments = self._places, self._segments
        row, across = places.get(decode) or self._find_place(decode)
        column, along = places.get(tokens) or self._find_place(tokens)
        low, rise = segments.get(row * MOST_POINTS + column) or self._find_segment(row, column)
        found = low + along * rise
        if across:
            row += 1
            low, rise = segments.get(row * MOST_POINTS + column) or self._find_segment(row, column)
            found += across * (low + along * rise - found)
        return found + self._per_key * keys

    def _find_place(self, number: float) -> tuple[int, float]:
        """Return the last grid point up to ``number``, and the fraction of the way to the next."""
        grid = self._grid
        while grid[-1] <= number:
            grid.append(float(int(grid[-1] * GRID_RATIO) + 1))
        point = bisect_right(grid, number) - 1
        place = point, (number - grid[point]) / (grid[point + 1] - grid[point])
        self._places[number] = place
        return place

    def _find_segment(self, row: int, column: int) -> Line:
        """Return (seconds at a grid point of a row, growth until the next point of the row)."""
        low, high = self._cell(row, column), self._cell(row, column + 1)
        found = self._segments[row * MOST_POINTS + column] = low, high - low
        return found

    def _cell(self, row: int, column: int) -> float:
        found = self._cells.get((row, column))
        return self._find_cell(row, column) if found is None else found

    def _find_cell(self, row: int, column: int) -> float:
        """Evaluate a point of the grid: seconds of prompt tokens without those per key."""
        decode, tokens = self._grid[row], self._grid[column]
        found = 0.0
        if tokens:
            without = self._seconds(StepBatch(decode, CONTEXTS[0]))
            mixed = self._seconds(StepBatch(decode, CONTEXTS[0], tokens, self._span))
            found = mixed - without - self._per_key * tokens * self._span
        self._cells[row, column] = found
        return found

    def visible_keys(self, first: int, last: int) -> float:
        """Return the sum of the keys that the prompt tokens ``first`` to ``last`` attend to."""
        known = self._keys
        before, found = known.get(first), known.get(last)
        if before is None:
            before = known[first] = first * self.keys.mean_visible(first)
        if found is None:
            found = known[last] = last * self.keys.mean_visible(last)
        return found - before


def build_step_times(
    deployment: Deployment, prompt_tokens: float
) -> tuple[StepTimes, StepTimes | None]:
    """Return the step times of a rank, and of the work that all data-parallel ranks share.

    Simulations of the same layout with other numbers of replicas get the same tables.
    """
    one = replace(deployment, layout=replace(deployment.layout, replicas=1))
    return _empty_step_times(one, prompt_tokens)


@lru_cache(maxsize=8)
def _empty_step_times(
    deployment: Deployment, prompt_tokens: float
) -> tuple[StepTimes, StepTimes | None]:
    """Return the tables of ``build_step_times``.

    Data-parallel ranks run their steps together. Their attention takes as long as that of the
    slowest rank; experts and the exchange of tokens with them depend on the tokens of all ranks.
    The second result is None if there is only one data-parallel rank.
    """
    model = deployment.model
    window = model.attention.window
    keys = Keys(
        inf if window is None else float(window),
        lambda tokens: mean_visible_prompt_keys(model, tokens),
    )

    # If the host overlaps GPU steps, the GPU's part is linear in the context, but not the longer of
    # both, which the engine takes.
    overlaps = deployment.engine.scheduling.overlaps_host

    @cache
    def terms(batch: StepBatch) -> StepTerms:
        found = seconds_through_all_stages(deployment, batch)
        return replace(found, host=0.0) if overlaps else found

    def floor(decode: float) -> float:
        return host_floor_seconds(deployment, decode)

    def shared_seconds(batch: StepBatch) -> float:
        return terms(batch).shared_seconds

    def own_seconds(batch: StepBatch) -> float:
        found = terms(batch)
        return found.total_seconds - found.shared_seconds

    if deployment.layout.dp == 1:
        return StepTimes(lambda batch: terms(batch).total_seconds, prompt_tokens, keys, floor), None
    return (
        StepTimes(own_seconds, prompt_tokens, keys, floor),
        StepTimes(shared_seconds, prompt_tokens, keys),
    )
