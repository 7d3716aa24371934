"""Event simulation of a pipeline schedule: start time of each action, busy time of each rank.

A rank runs its actions in order; an action starts when the rank is free and its input has arrived.
A hop between ranks delays the input but occupies neither rank (asynchronous sends).
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import NamedTuple

from parc.compiler.cost.schedules.table import ActionTable, Computation, OverlappedPair
from parc.compiler.ir.frozen import frozen


class DeadlockError(ValueError):
    """Error of a simulation in which ranks wait for each other, so that the step never ends."""


class StageSeconds(NamedTuple):
    """Seconds of one micro-batch on one stage; a rank may run several stages."""

    forward: float
    input_gradient: float
    weight_gradient: float

    @property
    def backward(self) -> float:
        """Return the time in seconds of the full backward: input gradient plus weight gradient."""
        return self.input_gradient + self.weight_gradient

    @property
    def total(self) -> float:
        """Return the time in seconds of the forward plus the full backward."""
        return self.forward + self.backward


class StageCosts(NamedTuple):
    """Seconds of all stages of the model, in the order of its layers."""

    stages: tuple[StageSeconds, ...]
    hop_seconds: float = 0.0
    """Time to send an activation, or its gradient, from one rank to the next."""
    overlap: float = 0.0
    """Fraction of the shorter half of an ``OverlappedPair`` that the longer half hides; 0: the pair
    takes the sum of both times, 1: the maximum."""

    def pair_seconds(self, pair: OverlappedPair) -> float:
        """Return the time in seconds of a forward and a backward that overlap on one rank."""
        depth = len(self.stages)
        forward = self.stages[pair.forward.stage % depth].forward
        backward = self.stages[pair.backward.stage % depth].backward
        return forward + backward - self.overlap * min(forward, backward)


@frozen
class Timeline:
    """Result of a simulation: the time of the step, and busy time and start times per rank."""

    makespan_seconds: float
    busy_seconds: tuple[float, ...]
    start_seconds: tuple[tuple[float, ...], ...]
    """Start time of each item in each row of the action table."""


def simulate_schedule(table: ActionTable, costs: StageCosts) -> Timeline:
    """Return the start time of each action and the busy time of each rank in one step.

    Args:
        table: Actions of all ranks; every micro-batch must pass all stages forward and backward.
        costs: Seconds of each of the ``table.depth`` stages.

    Raises:
        DeadlockError: ranks wait for each other, or for an action that the table lacks.
    """
    run = _SimulationState(table, costs)
    # Only ranks whose awaited input has appeared are visited again, so that each action is tried
    # about once.
    ready = deque(range(len(table.rows)))
    while ready:
        rank = ready.popleft()
        run.run_until_blocked(rank)
        ready.extend(run.unblock_neighbors(rank))
    if stuck := [r for r, row in enumerate(table.rows) if len(run.starts[r]) < len(row)]:
        raise DeadlockError(f"deadlock: ranks {stuck} wait for inputs that never arrive")
    return Timeline(max(run.clocks), tuple(run.busy), tuple(map(tuple, run.starts)))


@frozen
class _ComputationTimes:
    """Times of one type of computation, in lists by stage and then by micro-batch."""

    inputs: list[list[float]]
    """Time at which the input of the computation leaves the rank that computes it; infinite until
    the input has been computed."""
    hops: list[float]
    ends: list[list[float]]
    seconds: list[float]


class _SimulationState:
    """State of a simulation: clock, busy seconds and start times of every rank."""

    def __init__(self, table: ActionTable, costs: StageCosts) -> None:
        ranks = len(table.rows)
        self.table = table
        self.costs = costs
        self.times = _times_by_computation(table, costs)
        self.clocks = [0.0] * ranks
        self.busy = [0.0] * ranks
        self.starts: list[list[float]] = [[] for _ in range(ranks)]
        self.neighbors = _communicating_ranks(table)
        self.waits: list[tuple[list[float], int] | None] = [None] * ranks

    def run_until_blocked(self, rank: int) -> None:
        """Run the actions of ``rank`` in order until one of them lacks an input or none is left."""
        clock, busy, starts = self.clocks[rank], self.busy[rank], self.starts[rank]
        times, row = self.times, self.table.rows[rank]
        self.waits[rank] = None
        # Local variables instead of attributes for speed: the loop runs once per action.
        for index in range(len(starts), len(row)):
            item = row[index]
            if isinstance(item, OverlappedPair):
                stop = self._start_pair(item, rank, clock)
                if stop is None:
                    break
                start, end = stop
            else:
                # Inlined for speed: the simulation spends most of its time here.
                stage, computation, micro_batch = item
                own = times[computation]
                source = own.inputs[stage]
                start = source[micro_batch] + own.hops[stage]
                if start == inf:
                    self.waits[rank] = (source, micro_batch)
                    break
                start = max(start, clock)
                own.ends[stage][micro_batch] = end = start + own.seconds[stage]
            starts.append(start)
            busy += end - start
            clock = end
        self.clocks[rank], self.busy[rank] = clock, busy

    def _start_pair(
        self, pair: OverlappedPair, rank: int, clock: float
    ) -> tuple[float, float] | None:
        """Run the overlapped ``pair`` and return its (start time, end time).

        ``clock`` is the time from which ``rank`` is free. The result is None if an input of the
        forward or of the backward is missing.
        """
        start = clock
        for action in pair:
            own = self.times[action.computation]
            source = own.inputs[action.stage]
            start = max(start, source[action.micro_batch] + own.hops[action.stage])
            if start == inf:
                self.waits[rank] = (source, action.micro_batch)
                return None
        end = start + self.costs.pair_seconds(pair)
        for action in pair:
            self.times[action.computation].ends[action.stage][action.micro_batch] = end
        return start, end

    def unblock_neighbors(self, rank: int) -> list[int]:
        """Return the ranks that waited for an input that ``rank`` has now computed."""
        found = []
        for other in self.neighbors[rank]:
            wait = self.waits[other]
            if wait and wait[0][wait[1]] < inf:
                self.waits[other] = None
                found.append(other)
        return found


def _times_by_computation(
    table: ActionTable, costs: StageCosts
) -> dict[Computation, _ComputationTimes]:
    """Return the input, hop, end and duration times for each type of computation.

    The types are F (forward), B (full backward), I (input gradient) and W (weight gradient). A
    forward waits for the previous stage. A backward waits for the next stage; on the last stage, it
    waits for the forward of the same stage.
    """
    # Lists are shared: the end times of one stage are the input times of the stage that waits for
    # it, so that no time is copied.
    stages, depth = len(table.owners), table.depth
    # Every rank runs all micro-batches, so that the first rank shows how many there are.
    count = 1 + max(action.micro_batch for action in table.actions(0))
    forward, gradient, weight = (
        [[inf] * count for _ in range(stages)] for _ in ("forward", "gradient", "weight")
    )
    # The first stage can start every micro-batch at once: data loading is not simulated.
    available = [0.0] * count
    first = [stage % depth == 0 for stage in range(stages)]
    last = [stage % depth == depth - 1 for stage in range(stages)]
    before = [available if first[s] else forward[s - 1] for s in range(stages)]
    after = [forward[s] if last[s] else gradient[s + 1] for s in range(stages)]
    hop_in = [0.0 if first[s] else _hop_seconds_after(table, costs, s - 1) for s in range(stages)]
    hop_back = [0.0 if last[s] else _hop_seconds_after(table, costs, s) for s in range(stages)]
    seconds = [costs.stages[stage % depth] for stage in range(stages)]
    return {
        "F": _ComputationTimes(before, hop_in, forward, [item.forward for item in seconds]),
        "B": _ComputationTimes(after, hop_back, gradient, [item.backward for item in seconds]),
        "I": _ComputationTimes(
            after, hop_back, gradient, [item.input_gradient for item in seconds]
        ),
        "W": _ComputationTimes(
            gradient, [0.0] * stages, weight, [item.weight_gradient for item in seconds]
        ),
    }


def _hop_seconds_after(table: ActionTable, costs: StageCosts, stage: int) -> float:
    """Return the time in seconds to send a message from ``stage`` to the next stage.

    The result is 0 if one rank runs both stages.
    """
    same = table.owners[stage] == table.owners[stage + 1]
    return 0.0 if same else costs.hop_seconds


def _communicating_ranks(table: ActionTable) -> list[tuple[int, ...]]:
    """Return, for each rank, the ranks that it exchanges activations or gradients with."""
    found: list[set[int]] = [set() for _ in table.rows]
    for stage in range(len(table.owners) - 1):
        # With two copies of the model (DualPipe), the last stage of one copy is not a neighbor of
        # the other.
        if (stage + 1) % table.depth:
            near, far = table.owners[stage], table.owners[stage + 1]
            found[near].add(far)
            found[far].add(near)
    return [tuple(sorted(ranks)) for ranks in found]
