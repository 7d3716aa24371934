"""Simulated engines, which advance many steps at once.

Between two events (an arrival, a completion, a full cache), all steps of an engine process the same
requests. The simulation therefore advances such a stretch of decode steps at once: the time of a
step is linear in the context, and the sum over the steps has a closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, sqrt

from parc.compiler.cost.serving.simulation.scheduler import Rank, Request
from parc.compiler.cost.serving.simulation.step_times import StepTimes

CACHE_BINS = 1000
"""Resolution of the recorded fraction of the cache in use."""


class Engine:
    """Engine whose data-parallel ranks run their steps together."""

    def __init__(
        self,
        ranks: Sequence[Rank],
        shared: StepTimes | None = None,
        longest_stretch: float = inf,
        *,
        records: bool = True,
    ) -> None:
        """Create an idle engine.

        ``shared`` contains the time of the work that all ranks share. ``longest_stretch`` limits
        the number of steps that are advanced at once. With ``records``, the engine records the
        lengths of queues and the use of the cache.
        """
        self.ranks, self.shared = ranks, shared
        self.clock = 0.0
        """Time at which the current stretch of steps begins, in seconds."""
        self.end = inf
        """Time at which the current stretch ends; infinite if the engine is idle."""
        self.steps = 0
        """Number of steps of the current stretch."""
        self.longest_stretch, self.records = longest_stretch, records
        self.queue_seconds: dict[int, float] = {}
        """Number of waiting requests -> rank-seconds with this number."""
        self.cache_seconds: dict[int, float] = {}
        """Used cache in units of 1 / ``CACHE_BINS`` -> rank-seconds with this use."""
        self.decode_seconds = 0.0
        """Duration of the latest step without prompts."""
        self._first = self._growth = self._recorded = 0.0

    def add(self, request: Request, rank: Rank, now: float) -> None:
        """Add a request that arrives at time ``now`` to the queue of ``rank``."""
        if not self.records:
            pass
        elif self.end == inf:
            self._record(now)
        else:
            self._record_queue(rank, now)
        rank.add(request)
        if self.end == inf:
            self.clock = now
            self.plan()
        elif self.steps > 1 and len(rank.running) < rank.limits.running:
            self._end_at_first_boundary(now)

    def _end_at_first_boundary(self, now: float) -> None:
        """Shorten the stretch so that it ends with the step that is running at time ``now``."""
        passed = now - self.clock
        half = self._growth / 2
        linear = self._first - half
        # Solve half * steps^2 + linear * steps = passed for the number of steps.
        if half > 0:
            steps = ceil((sqrt(linear * linear + 4 * half * passed) - linear) / (2 * half))
        else:
            steps = ceil(passed / self._first)
        steps = min(max(steps, 1), self.steps)
        # The square root is rounded; the boundary is the first one that is not before ``now``.
        while steps > 1 and self._stretch_seconds(steps - 1) >= passed:
            steps -= 1
        while steps < self.steps and self._stretch_seconds(steps) < passed:
            steps += 1
        self.steps = steps
        self.end = self.clock + self._stretch_seconds(steps)

    def _stretch_seconds(self, steps: int) -> float:
        """Return the seconds of the next ``steps`` steps, each ``_growth`` longer than the last."""
        return steps * (self._first + self._growth * (steps - 1) / 2)

    def plan(self) -> None:
        """Schedule the next stretch of steps, and set the time at which it ends."""
        ranks = self.ranks
        if len(ranks) == 1:
            rank = ranks[0]
            if rank.is_changed:
                rank.schedule()
            horizon, has_prompts = rank.horizon, rank.prompt_tokens > 0
            self._first = rank.base_seconds + rank.per_context * rank.context
            self._growth, least = rank.growth_seconds, rank.least_seconds
        else:
            for rank in ranks:
                if rank.is_changed:
                    rank.schedule()
            horizon, has_prompts = self._set_common_steps()
            least = max([rank.least_seconds for rank in ranks])
        if horizon == inf:
            self.end = inf
            return
        if self._first < least:
            horizon = self._wait_for_host(least, horizon)
        if not has_prompts:
            self.decode_seconds = self._first
        self.steps = int(horizon if horizon < self.longest_stretch else self.longest_stretch)
        self.end = self.clock + self._stretch_seconds(self.steps)

    def _wait_for_host(self, least: float, horizon: float) -> float:
        """Lengthen the steps to ``least`` seconds; return the number of such steps.

        There are at most ``horizon``, fewer if the growth makes later ones longer than ``least``.
        """
        if self._growth > 0:
            horizon = min(horizon, ceil((least - self._first) / self._growth))
        self._first, self._growth = least, 0.0
        return max(horizon, 1)

    def _set_common_steps(self) -> tuple[float, bool]:
        """Set the seconds of the first step and the growth per step of several ranks.

        The slowest rank determines the step time. The stretch ends when another rank becomes the
        slowest one, because its steps grow faster. The result is the number of steps, which is
        infinite without work, and True if a rank runs prompts.
        """
        horizon: float = inf
        first = growth = steepest = -1.0
        decode = tokens = 0
        for rank in self.ranks:
            if rank.horizon < horizon:
                horizon = rank.horizon
            decode += rank.active
            tokens += rank.prompt_tokens
            seconds, slope = (
                rank.base_seconds + rank.per_context * rank.context,
                rank.growth_seconds,
            )
            if slope > steepest:
                steepest = slope
            if seconds > first or (seconds == first and slope > growth):
                first, growth = seconds, slope
        if steepest > growth and horizon > 1:
            for rank in self.ranks:
                slope = rank.growth_seconds
                if slope > growth:
                    behind = first - (rank.base_seconds + rank.per_context * rank.context)
                    horizon = min(horizon, max(behind // (slope - growth) + 1, 1))
        self._growth = growth
        if self.shared is not None:
            # The shared work takes as long as for the mean of the tokens of all ranks.
            mean = decode / len(self.ranks)
            first += self.shared.decode_seconds(mean)
            if tokens:
                first += self.shared.prompt_seconds(mean, tokens / len(self.ranks), 0.0)
        self._first = first
        return horizon, tokens > 0

    def advance(self) -> list[Request]:
        """Complete the scheduled steps, and plan the next ones; return the requests that ended."""
        now, steps, done = self.end, self.steps, list[Request]()
        if self.records:
            self._record(now)
        for rank in self.ranks:
            if rank.is_changed or rank.horizon <= steps:
                rank.finish_steps(steps, now, done)
            else:
                rank.pass_steps(steps)
        self.clock = now
        self.plan()
        return done

    def clear_records(self) -> None:
        """Forget the recorded queue lengths and cache use, for example after a warm-up."""
        self.queue_seconds.clear()
        self.cache_seconds.clear()

    def _record(self, until: float) -> None:
        """Record queue length and cache use of the ranks, which are constant until ``until``."""
        seconds = until - self._recorded
        self._recorded = until
        queue, cache = self.queue_seconds, self.cache_seconds
        for rank in self.ranks:
            depth = len(rank.waiting)
            queue[depth] = queue.get(depth, 0.0) + until - rank.queue_start
            rank.queue_start = until
            used = int(CACHE_BINS * rank.used / rank.limits.cache_tokens)
            cache[used] = cache.get(used, 0.0) + seconds

    def _record_queue(self, rank: Rank, until: float) -> None:
        """Record the queue length of one rank, which is constant until ``until``."""
        depth = len(rank.waiting)
        self.queue_seconds[depth] = self.queue_seconds.get(depth, 0.0) + until - rank.queue_start
        rank.queue_start = until
