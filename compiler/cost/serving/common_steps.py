"""Steps of an engine whose data-parallel ranks run them together.

Each step takes as long as on the slowest rank, and a prompt on one rank delays the requests of all
ranks. The engines give a new request to the rank with the fewest requests or to the next rank in
turn, so that the K prompts of a step are in W = ceil(K / ranks) waves. A wave takes as long as the
slowest of its prompts takes on its own rank. Experts, and the exchange of tokens with them, are
shared by all ranks and take a time proportional to K:

    S = d + W p_own L + K p_shared

Here d is the time of a step without prompts, and L the time of the slowest prompt of a wave,
divided by the mean time. K has a Poisson distribution:

- Poisson arrivals: the prompts of a step arrive during the step before, so that the mean of K is
  rate x S. Steps with prompts are long, and therefore follow one another: the two states "no
  prompts" and "prompts" form a Markov chain, whose stationary distribution gives the mean of S and
  of S^2.
- A closed loop: the prompts of a step replace requests that have ended. Requests of different
  lengths end after different numbers of steps, so that the mean of K is the same for short and long
  steps: the number of other requests divided by the number of steps of a request.

``tests/cost/serving`` compares the results with the event simulation.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import ceil, erfc, exp, expm1, log, sqrt

from parc.compiler.cost.serving.slowest_prompt import slowest_moments
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import Lengths

MANY_PROMPTS = 32.0
"""Mean of a Poisson distribution above which a normal distribution replaces it."""
WIDEST = 6.0
"""Standard deviations from the mean at which a distribution is cut off."""
CHAIN_ROUNDS = 12
"""Iterations to find the stationary share of steps with prompts."""
CHAIN_TOLERANCE = 1e-3
"""Relative error of this share."""
GRID_LOW = 0.01
"""Mean number of prompts below which a step has at most one."""
GRID_RATIO = 1.05
"""Ratio of neighboring numbers of prompts for which numbers of waves are tabulated."""
LOG_RATIO = log(GRID_RATIO)


@frozen(slots=False)  # without slots, so that the values of a single prompt can be cached
class CommonSteps:
    """Prompts that run on the data-parallel ranks of one engine."""

    ranks: int
    own_seconds: float
    """Mean seconds that a prompt adds on its own rank."""
    shared_seconds: float
    """Seconds that it adds to the work that all ranks share."""
    step_prompts: float
    """Largest number of mean prompts per step and rank; below 1 if a prompt takes several steps."""
    lengths: Lengths
    """Distribution of the prompt lengths."""
    quadratic: float
    """Fraction of ``own_seconds`` that is proportional to the square of the length: attention."""
    is_closed: bool = False
    """True in a closed loop, False under Poisson arrivals."""

    def slowest_of(self, prompts: float) -> float:
        """Return the mean time of the slowest of ``prompts`` prompts, divided by the mean time."""
        return self._slowest_moments(prompts)[0]

    def _slowest_moments(self, prompts: float) -> tuple[float, float]:
        """Return the mean of this time and of its square, in units of the mean time."""
        low = min(max(int(prompts), 1), self.ranks)
        part = min(max(prompts - low, 0.0), 1.0)
        one = self._moments_of_one[0]
        mean, square = self._moments_of_one if low == 1 else self._moments(low)
        if part and low < self.ranks:
            many = self._moments(low + 1)
            mean += part * (many[0] - mean)
            square += part * (many[1] - square)
        return mean / one, square / (one * one)

    def _moments(self, prompts: int) -> tuple[float, float]:
        quadratic = round(self.quadratic, 2)
        return slowest_moments(self.lengths, prompts, self.step_prompts, quadratic)

    @cached_property
    def _moments_of_one(self) -> tuple[float, float]:
        return self._moments(1)

    @cached_property
    def _chunks(self) -> float:
        """Mean number of steps in which the prompt of one request runs."""
        # The mean length that runs in one step, divided by the mean length of a prompt.
        return 1 / slowest_moments(self.lengths, 1, self.step_prompts, 0.0)[0]

    def added_seconds(self, decode: float, starts: float) -> float:
        """Return the seconds that prompts add to a mean step.

        ``decode`` is the time of a step without prompts, and ``starts`` the mean number of prompts
        that start per step on all ranks.
        """
        share, added, _ = self._busy_steps(decode, starts)
        # Each rank computes its own prompts in any case, even if that takes all of its steps.
        least = starts * (self.own_seconds / self.ranks + self.shared_seconds)
        return max(share * added, least)

    def seen_seconds(self, decode: float, starts: float) -> float:
        """Return the mean duration E[S^2] / E[S] of the step in which a request arrives."""
        share, added, square = self._busy_steps(decode, starts)
        mean = decode + share * added
        return (decode * decode + share * (2 * decode * added + square)) / mean

    def _busy_steps(self, decode: float, starts: float) -> tuple[float, float, float]:
        """Return the share of steps with prompts, and the seconds that they add to such a step.

        The third number is the mean square of these seconds.
        """
        if starts <= 0:
            return 0.0, 0.0, 0.0
        chunks = self._chunks
        prompts = starts * chunks
        share = -expm1(-prompts)
        if self.is_closed:
            waves = mean_waves(prompts, self.ranks) / share
            return share, *self._seconds_together(prompts / share, waves, chunks)
        added = square = 0.0
        for _ in range(CHAIN_ROUNDS):
            together = max(prompts / share, 1.0)
            waves = mean_waves(together, self.ranks) / -expm1(-together)
            added, square = self._seconds_together(together, waves, chunks)
            mean = decode + share * added
            # Probabilities that prompts follow a step without prompts, and a step with prompts.
            after_idle = -expm1(-prompts * decode / mean)
            after_busy = -expm1(-prompts * (decode + added) / mean)
            # Prompts of several steps continue in the next one.
            after_busy = max(after_busy, 1 - 1 / chunks)
            found = after_idle / (1 - after_busy + after_idle)
            if abs(found - share) < CHAIN_TOLERANCE * share:
                break
            share = 0.5 * (share + found)
        return share, added, square

    def _seconds_together(
        self, together: float, waves: float, chunks: float
    ) -> tuple[float, float]:
        """Return the mean seconds that prompts add to a step, and the mean of their square.

        The step has ``together`` prompts in ``waves`` waves, on average. Each prompt runs in
        ``chunks`` steps.
        """
        most = self.step_prompts * chunks
        waves = min(waves, max(most, 1.0))
        one, squared = self._slowest_moments(min(together / waves, self.ranks))
        # The sum of the prompts of one rank varies less than a single prompt.
        slowest = min(waves * (1 + (one - 1) / sqrt(waves)), most)
        own = self.own_seconds * slowest / chunks
        added = own + self.shared_seconds * together / chunks
        return added, added * added + own * own * (squared / one**2 - 1) / waves


def mean_waves(prompts: float, ranks: int, *, complete: bool = False) -> float:
    """Return the mean of ceil(K / ranks), where K has a Poisson distribution of mean ``prompts``.

    With ``complete``, only full waves count: the result is the mean of floor(K / ranks). The result
    is interpolated in a table.
    """
    if prompts <= GRID_LOW:
        return 0.0 if complete else prompts
    row = int(log(prompts / GRID_LOW) / LOG_RATIO)
    first, low = _waves_in_row(row, ranks, complete)
    second, high = _waves_in_row(row + 1, ranks, complete)
    return low + (high - low) * (prompts - first) / (second - first)


@lru_cache(maxsize=16384)
def _waves_in_row(row: int, ranks: int, complete: bool) -> tuple[float, float]:
    """Return (mean number of prompts, mean number of waves) of a row of the table."""
    prompts = GRID_LOW * GRID_RATIO**row
    first = ranks - 1 if complete else 0
    if prompts > MANY_PROMPTS:
        # The mean is the sum over waves of the probability that K > first + wave x ranks.
        count = (prompts + WIDEST * sqrt(prompts)) / ranks + 1
        deviation = sqrt(2 * prompts)
        return prompts, sum(
            erfc((first + wave * ranks + 0.5 - prompts) / deviation) / 2
            for wave in range(ceil(count))
        )
    probability, mean = exp(-prompts), 0.0
    for number in range(int(prompts + WIDEST * (sqrt(prompts) + 1)) + 1):
        mean += probability * ((number + ranks - 1 - first) // ranks)
        probability *= prompts / (number + 1)
    return prompts, mean
