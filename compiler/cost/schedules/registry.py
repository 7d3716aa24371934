"""Every pipeline schedule, by name: its action table, its closed forms, the sizes it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from parc.compiler.cost.schedules import formulas
from parc.compiler.cost.schedules import in_flight as counts
from parc.compiler.cost.schedules.dualpipe import dualpipe, dualpipe_v
from parc.compiler.cost.schedules.formulas import Even
from parc.compiler.cost.schedules.orders import gpipe, interleaved, one_f_one_b
from parc.compiler.cost.schedules.simulation import simulate
from parc.compiler.cost.schedules.table import Shape, Table
from parc.compiler.cost.schedules.zero_bubble import zb_h1, zb_v


@dataclass(frozen=True, slots=True)
class Schedule:
    """One way to order forwards and backwards over pipeline ranks."""

    title: str
    table: Callable[[Shape], Table]
    seconds: Callable[[Shape, Even], float | None]
    """Closed form of the makespan; None where it has none."""
    in_flight: Callable[[Shape, int], int]
    """Peak chunks in flight on a rank."""
    refusal: Callable[[Shape], str]
    """Why the sizes make no such schedule; empty if they do."""

    def makespan_seconds(self, shape: Shape, even: Even) -> float:
        """The closed form, or the simulation where there is none.

        Raises:
            ValueError: the schedule does not take these sizes.
        """
        if reason := self.refusal(shape):
            raise ValueError(reason)
        seconds = self.seconds(shape, even)
        if seconds is not None:
            return seconds
        table = self.table(shape)
        return simulate(table, even.costs(table.depth)).makespan_seconds


def _any_size(shape: Shape) -> str:
    return "" if shape.ranks > 0 and shape.micro_batches > 0 else "needs a rank and a micro-batch"


def _whole_groups(shape: Shape) -> str:
    """The checks of Megatron-Core, forward_backward_pipelining_with_interleaving.

    Fewer micro-batches than ranks is what torch allows and Megatron-Core does not.
    """
    p, m = shape.ranks, shape.micro_batches
    if m > p and shape.run < p:
        return f"groups of {shape.run} micro-batches are shorter than {p} ranks"
    if m > p and 0 < m % shape.run < p:
        return f"the last group has {m % shape.run} micro-batches, fewer than {p} ranks"
    return _any_size(shape)


def _interleaved(shape: Shape) -> str:
    if shape.chunks < 2:
        return "interleaving needs two chunks a rank or more"
    return _whole_groups(shape)


def _zb_h1(shape: Shape) -> str:
    return _any_size(shape) if shape.chunks == 1 else _whole_groups(shape)


def _dualpipe_v(shape: Shape) -> str:
    """torch.distributed.pipelining: at least as many micro-batches as stages."""
    p, m = shape.ranks, shape.micro_batches
    return f"{m} micro-batches are fewer than {2 * p}, twice the ranks" * (m < 2 * p)


def _dualpipe(shape: Shape) -> str:
    """The assertions of DualPipe.step."""
    if shape.ranks % 2 or shape.micro_batches % 2:
        return f"{shape.ranks} ranks and {shape.micro_batches} micro-batches must both be even"
    return _dualpipe_v(shape)


SCHEDULES = {
    "gpipe": Schedule("GPipe", gpipe, formulas.gpipe_seconds, counts.gpipe_in_flight, _any_size),
    "1f1b": Schedule(
        "1F1B", one_f_one_b, formulas.one_f_one_b_seconds, counts.one_f_one_b_in_flight, _any_size
    ),
    "interleaved": Schedule(
        "interleaved 1F1B",
        interleaved,
        formulas.interleaved_seconds,
        counts.interleaved_in_flight,
        _interleaved,
    ),
    "zb-h1": Schedule(
        "zero bubble H1 (ZB1P)", zb_h1, formulas.zb_h1_seconds, counts.zb_h1_in_flight, _zb_h1
    ),
    "zb-v": Schedule(
        "zero bubble V", zb_v, formulas.zb_v_seconds, counts.zb_v_in_flight, _any_size
    ),
    "dualpipe": Schedule(
        "DualPipe", dualpipe, formulas.dualpipe_seconds, counts.dualpipe_in_flight, _dualpipe
    ),
    "dualpipe-v": Schedule(
        "DualPipeV",
        dualpipe_v,
        formulas.dualpipe_v_seconds,
        counts.dualpipe_v_in_flight,
        _dualpipe_v,
    ),
}
