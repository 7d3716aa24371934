"""Expected time of a run with failures, the best checkpoint interval, and useful spare hosts.

Failures are a Poisson process: the times between them are independent and exponential. All times
are in seconds.

Sources: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17
(1974); J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps,
FGCS 22 (2006). This module uses Daly's complete model, of which both estimates are approximations.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, expm1, inf, sqrt

MAX_EXPONENT = 500.0
"""Largest ratio of a segment to the mean time between failures that is computed; exp(500) is a
float, exp(710) is not. Such a segment never ends in practice."""


@dataclass(frozen=True, slots=True)
class FailureTimes:
    """Times that determine how much of a run failures cost, in seconds."""

    between: float
    """Mean time between two failures that stop the job."""
    restart: float
    """Time from a failure until training continues: detection, start-up, and reading the
    checkpoint. A failure during this time starts it again."""
    save: float
    """Time per checkpoint during which training stops."""
    late: float = 0.0
    """Time after the stop until the checkpoint is complete, while training continues; 0 if training
    waits for the whole checkpoint. A failure in this time goes back one checkpoint further."""

    def wall_seconds(self, work: float) -> float:
        """Return the expected time for ``work`` seconds of training and one checkpoint after them.

        Daly's complete model: M e^(R/M) (e^((w + d)/M) - 1), with M between failures, R restart,
        d save. A failure loses on average ``late`` seconds more, because a checkpoint is complete
        that much later; they count as part of the restart. The result is infinite if it is too
        large for a float.
        """
        segment = (work + self.save) / self.between
        restart = (self.restart + self.late) / self.between
        if segment + restart > MAX_EXPONENT:
            return inf
        return self.between * exp(restart) * expm1(segment)

    def effective_share(self, work: float) -> float:
        """Return the share of the time spent on training that no later failure destroys.

        The run saves a checkpoint after every ``work`` seconds of training.
        """
        return work / self.wall_seconds(work)

    @property
    def first_order_interval(self) -> float:
        """Seconds of training between two checkpoints by Young's approximation, sqrt(2 d M)."""
        return sqrt(2 * self.save * self.between)

    @property
    def best_interval(self) -> float:
        """Seconds of training between two checkpoints that make the run shortest.

        Solves (1 - x) e^x = e^(-d/M) for x = w/M, where the derivative of the wall time per second
        of training is 0. The left side falls from 1 to 0 for x from 0 to 1, so bisection finds the
        only solution.
        """
        target = exp(-self.save / self.between)
        low, high = 0.0, 1.0
        for _ in range(60):  # halves the interval to the precision of a float
            middle = (low + high) / 2
            low, high = (middle, high) if (1 - middle) * exp(middle) > target else (low, middle)
        return high * self.between

    def best_interval_steps(self, step_seconds: float, most: int) -> int:
        """Return the number of steps between two checkpoints that makes the run shortest.

        The result is between 1 and ``most``. If several numbers are equally good, the result is the
        smallest of them. A checkpoint starts only after the one before it is complete.
        """
        below = int(self.best_interval / step_seconds)
        least = max(ceil(self.late / step_seconds), 1)
        near = [min(max(steps, least), most) for steps in (below, below + 1)]
        # The wall time per step has one minimum, so it is at one of the two neighbors.
        return min(near, key=lambda steps: (self.wall_seconds(steps * step_seconds) / steps, steps))


def waiting_share(load: float, spares: int) -> float:
    """Return the share of the time that a job spends waiting for a host because no spare is left.

    ``load`` is the mean number of hosts in repair: failures per second that need another host,
    times the seconds of a repair. The job waits while more than ``spares`` hosts are in repair, and
    no host of a waiting job fails. The number of hosts in repair is then a birth-death process with
    the stationary distribution of Erlang's loss formula for ``spares`` + 1 servers.
    """
    share = 1.0
    for servers in range(1, spares + 2):
        share = load * share / (servers + load * share)
    return share


def best_spares(load: float, hosts: int) -> int:
    """Return the number of spare hosts that makes the host-hours of a run on ``hosts`` smallest.

    Spare hosts cost as much as other hosts, and shorten the run by the time that it would spend
    waiting. The result is at most ``hosts``.
    """
    running = 1 - waiting_share(load, 0)
    for spares in range(hosts):
        more = 1 - waiting_share(load, spares + 1)
        # Each further spare saves less than the one before, so the first that costs more is last.
        if (hosts + spares + 1) / more >= (hosts + spares) / running:
            return spares
        running = more
    return hosts
