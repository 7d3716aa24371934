"""Registry of pipeline schedules by name: action table, closed formulas and valid sizes."""

from __future__ import annotations

from collections.abc import Callable

from parc.compiler.cost.schedules import formulas
from parc.compiler.cost.schedules.action_tables import (
    dualpipe_table,
    dualpipe_v_table,
    gpipe_table,
    interleaved_table,
    one_f_one_b_table,
    zb_h1_table,
    zb_v_table,
)
from parc.compiler.cost.schedules.formulas import EqualStages
from parc.compiler.cost.schedules.simulation import simulate_schedule
from parc.compiler.cost.schedules.table import ActionTable, PipelineShape
from parc.compiler.ir.frozen import frozen


@frozen
class PipelineSchedule:
    """Pipeline schedule: the order of forwards and backwards on each rank, and its formulas."""

    title: str
    table: Callable[[PipelineShape], ActionTable]
    seconds: Callable[[PipelineShape, EqualStages], float | None]
    """Closed formula of the seconds of a step. The function returns None if no formula is known for
    the sizes."""
    in_flight: Callable[[PipelineShape, int], int]
    """Function that returns the peak number of chunks in flight on a rank."""
    size_error: Callable[[PipelineShape], str]
    """Function that returns the reason why the sizes are invalid, or an empty text if they are
    valid."""

    def makespan_seconds(self, shape: PipelineShape, stages: EqualStages) -> float:
        """Return the time of a step in seconds.

        The step is simulated if no formula is known for its sizes.

        Raises:
            ValueError: the sizes are invalid for the schedule.
        """
        if reason := self.size_error(shape):
            raise ValueError(reason)
        # The formula is much faster than the simulation and gives the same result.
        seconds = self.seconds(shape, stages)
        if seconds is not None:
            return seconds
        table = self.table(shape)
        return simulate_schedule(table, stages.simulation_costs(table.depth)).makespan_seconds


def _empty_pipeline_error(shape: PipelineShape) -> str:
    """Return an error text if the pipeline has no rank or no micro-batch, else an empty text."""
    return (
        ""
        if shape.ranks > 0 and shape.micro_batches > 0
        else "a pipeline needs at least one rank and one micro-batch"
    )


def _group_size_error(shape: PipelineShape) -> str:
    """Return an error text if a group has fewer micro-batches than there are ranks.

    Steps that have at most as many micro-batches as ranks are valid. For valid sizes the text is
    empty.
    """
    # Megatron-Core rejects small groups (forward_backward_pipelining_with_interleaving). It also
    # rejects steps with few micro-batches, which torch allows.
    p, m = shape.ranks, shape.micro_batches
    if m > p and shape.group_size < p:
        return f"groups of {shape.group_size} micro-batches are smaller than {p} ranks"
    if m > p and 0 < m % shape.group_size < p:
        return f"the last group has {m % shape.group_size} micro-batches, fewer than {p} ranks"
    return _empty_pipeline_error(shape)


def _interleaved_size_error(shape: PipelineShape) -> str:
    """Return an error text if the sizes are invalid for interleaved 1F1B, else an empty text."""
    if shape.chunks < 2:
        return f"interleaving needs at least two chunks per rank, the shape has {shape.chunks}"
    return _group_size_error(shape)


def _zb_h1_size_error(shape: PipelineShape) -> str:
    """Return an error text if the sizes are invalid for ZB-H1, else an empty text."""
    return _empty_pipeline_error(shape) if shape.chunks == 1 else _group_size_error(shape)


def _dualpipe_v_size_error(shape: PipelineShape) -> str:
    """Return an error text if there are fewer than two micro-batches per rank, else an empty text.

    torch rejects such a step of DualPipeV.
    """
    p, m = shape.ranks, shape.micro_batches
    return (
        f"{m} micro-batches are fewer than {2 * p}, twice the number of ranks" if m < 2 * p else ""
    )


def _dualpipe_size_error(shape: PipelineShape) -> str:
    """Return an error text if the sizes are invalid for DualPipe, else an empty text.

    DualPipe.step has the same checks.
    """
    # DualPipe mirrors the two halves of the ranks, and each direction gets half of the
    # micro-batches.
    if shape.ranks % 2 or shape.micro_batches % 2:
        return f"{shape.ranks} ranks and {shape.micro_batches} micro-batches must both be even"
    return _dualpipe_v_size_error(shape)


SCHEDULES = {
    "gpipe": PipelineSchedule(
        "GPipe",
        gpipe_table,
        formulas.gpipe_seconds,
        formulas.gpipe_chunks_in_flight,
        _empty_pipeline_error,
    ),
    "1f1b": PipelineSchedule(
        "1F1B",
        one_f_one_b_table,
        formulas.one_f_one_b_seconds,
        formulas.one_f_one_b_chunks_in_flight,
        _empty_pipeline_error,
    ),
    "interleaved": PipelineSchedule(
        "interleaved 1F1B",
        interleaved_table,
        formulas.interleaved_seconds,
        formulas.interleaved_chunks_in_flight,
        _interleaved_size_error,
    ),
    "zb-h1": PipelineSchedule(
        "zero bubble H1 (ZB1P)",
        zb_h1_table,
        formulas.zb_h1_seconds,
        formulas.zb_h1_chunks_in_flight,
        _zb_h1_size_error,
    ),
    "zb-v": PipelineSchedule(
        "zero bubble V",
        zb_v_table,
        formulas.zb_v_seconds,
        formulas.zb_v_chunks_in_flight,
        _empty_pipeline_error,
    ),
    "dualpipe": PipelineSchedule(
        "DualPipe",
        dualpipe_table,
        formulas.dualpipe_seconds,
        formulas.dualpipe_chunks_in_flight,
        _dualpipe_size_error,
    ),
    "dualpipe-v": PipelineSchedule(
        "DualPipeV",
        dualpipe_v_table,
        formulas.dualpipe_v_seconds,
        formulas.dualpipe_v_chunks_in_flight,
        _dualpipe_v_size_error,
    ),
}
