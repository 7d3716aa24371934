"""Timeline of one training step of a pipeline: actions and idle time of each rank."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from parc.backends.registry import framework_of_problem
from parc.compiler.cost.schedules.registry import SCHEDULES
from parc.compiler.cost.schedules.table import Action, OverlappedPair
from parc.compiler.cost.step.schedule_preview import SchedulePreview, preview_schedule
from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir import Plan
from parc.compiler.report.formatting import format_percent, format_seconds
from parc.compiler.report.page.figure import (
    Canvas,
    Figure,
    svg_number,
    text_css_class,
    tick_distance,
)
from parc.compiler.resolve.resolve_kernels import cost_model_for

WIDTH = 1080
LEFT, TOP, BREAK = 58, 6, 26
MAX_BOXES = 4_096
"""Number of boxes of 16 stages with 32 micro-batches and 4 model chunks, forward and backward. Of
more boxes, about this many are drawn: the ranks are sampled."""
MAX_ROWS = 16
"""Largest number of ranks in the figure."""
MAX_NUMBERS = 1_000
"""Largest number of boxes for which micro-batch numbers are drawn."""
INKS = {"F": "f", "B": "b", "I": "b", "W": "w"}
"""Kind of action -> prefix of its CSS class. The digit 0 or 1 follows, see
``_action_css_class``."""
WORDS = {
    "F": "forward",
    "B": "backward",
    "I": "gradient of inputs",
    "W": "gradient of weights",
}


class TimelineChart(NamedTuple):
    """Figure of the timeline with its legend and caption, as values for the page template."""

    figure: Figure
    legend: tuple[tuple[str, str], ...]
    """(meaning, CSS class) of each color."""
    caption: str
    micro_batches: dict[str, list[int]]
    """CSS class and height of the boxes of one SVG path, such as ``f0 22`` -> their micro-batches
    in the order of the path."""


class _TimeAxis(NamedTuple):
    """Scale of the time axis, from seconds to SVG units.

    If ``broken`` is true, the axis has a gap at the time ``cut``, and later times are drawn to the
    right of the gap.
    """

    scale: float
    cut: float
    broken: bool

    def x_of_time(self, at_seconds: float) -> float:
        """Return the x coordinate of the time ``at_seconds``, in SVG units from the left edge."""
        moved = BREAK if self.broken and self.is_after_gap(at_seconds) else 0
        return LEFT + at_seconds * self.scale + moved

    def is_after_gap(self, at_seconds: float) -> bool:
        """Return True if the time ``at_seconds`` is to the right of the gap in the time axis."""
        return at_seconds >= self.cut


def timeline_chart(plan: Plan) -> TimelineChart | None:
    """Draw the pipeline schedule of ``plan`` to scale; return None if ``plan`` has no pipeline."""
    if plan.layout.pp == 1:
        return None
    # The plan has only the totals of the step, so the schedule is simulated again for the figure.
    cost_model = cost_model_for(plan.problem, framework_of_problem(plan.problem))
    shown = preview_schedule(cost_model, plan.layout)
    ranks = _ranks_to_draw(shown)
    makespan = shown.timeline.makespan_seconds
    broken = shown.left_out > 0
    axis = _TimeAxis(
        (WIDTH - LEFT - (BREAK if broken else 0)) / makespan, _gap_seconds(shown), broken
    )
    height = 22 if len(ranks) <= 8 else 16
    canvas = Canvas(WIDTH)
    bottom = TOP + len(ranks) * (height + 3)
    _draw_time_axis(canvas, axis, makespan, bottom)
    for row, rank in enumerate(ranks):
        _draw_rank(canvas, shown, axis, (rank, TOP + row * (height + 3), height))
    if broken:
        _draw_gap(canvas, axis, shown.left_out, bottom)
    title = f"{SCHEDULES[plan.layout.schedule].title} of {plan.layout.pp} pipeline ranks"
    return TimelineChart(
        figure=canvas.build_figure(title, bottom + 36),
        legend=_timeline_legend(shown),
        caption=_timeline_caption(plan, shown, len(ranks)),
        micro_batches=_micro_batches_by_path(shown, axis, ranks, height),
    )


def _micro_batches_by_path(
    shown: SchedulePreview, axis: _TimeAxis, ranks: list[int], height: float
) -> dict[str, list[int]]:
    """Return ``TimelineChart.micro_batches`` for the rows ``ranks`` of the height ``height``."""
    found: dict[str, list[int]] = {}
    for rank in ranks:
        starts = shown.timeline.start_seconds[rank]
        for item, start in zip(shown.table.rows[rank], starts, strict=True):
            actions = _parallel_actions(item)
            for action in actions:
                key = f"{_action_css_class(shown, action)} {svg_number(height / len(actions))}"
                found.setdefault(key, []).append(_micro_batch(shown, axis, action, start))
    return found


def _parallel_actions(item: Action | OverlappedPair) -> tuple[Action, ...]:
    return tuple(item) if isinstance(item, OverlappedPair) else (item,)


def _micro_batch(shown: SchedulePreview, axis: _TimeAxis, action: Action, start: float) -> int:
    """Return the micro-batch of an action in the whole step; the figure leaves some out."""
    return action.micro_batch + (shown.left_out if axis.is_after_gap(start) else 0)


def _timeline_caption(plan: Plan, shown: SchedulePreview, rows: int) -> str:
    """Return the caption: the schedule, its bubble, and what the figure leaves out."""
    layout, time = plan.layout, plan.estimate.time
    whole = shown.micro_batches + shown.left_out
    chunks = f" of {layout.vpp} model chunks" if layout.vpp > 1 else ""
    text = (
        f"Schedule: {SCHEDULES[layout.schedule].title}, "
        f"{format_count(layout.pp, 'stage')}{chunks} and "
        f"{whole:,} micro-batches, simulated event by event. The bubble takes "
        f"{format_seconds(time.bubble_seconds)}, "
        f"{format_percent(time.bubble_seconds / time.total_seconds)} of "
        "the step."
    )
    if shown.left_out:
        text += (
            f" The figure shows warm-up, part of the steady state and cool-down; "
            f"{shown.left_out:,} micro-batches are left out at the dotted lines."
        )
    if rows < layout.pp:
        text += f" The figure shows {rows} of {layout.pp} stages."
    return text


def _ranks_to_draw(shown: SchedulePreview) -> list[int]:
    """Return the pipeline ranks to draw: all ranks, or an evenly spaced sample of them.

    The sample includes the first and the last rank. Its size limits the rows to MAX_ROWS and the
    boxes to about MAX_BOXES.
    """
    count = len(shown.table.rows)
    # At least four rows show how the pipeline fills and drains, even if the boxes become many.
    most = max(4, min(MAX_ROWS, MAX_BOXES // max(map(len, shown.table.rows))))
    if count <= most:
        return list(range(count))
    return sorted({round(index * (count - 1) / (most - 1)) for index in range(most)})


def _gap_seconds(shown: SchedulePreview) -> float:
    """Return the time, in seconds, at which the time axis has its gap.

    At this time, near the middle of the step, an action of pipeline rank 0 starts.
    """
    starts = shown.timeline.start_seconds[0]
    middle = bisect_left(starts, shown.timeline.makespan_seconds / 2)
    return starts[min(middle, len(starts) - 1)]


def _draw_rank(
    canvas: Canvas, shown: SchedulePreview, axis: _TimeAxis, at: tuple[int, float, float]
) -> None:
    """Draw the actions of one pipeline rank on a background in the color of idle time.

    ``at`` is (rank, top, height).
    """
    rank, y, height = at
    end = axis.x_of_time(shown.timeline.makespan_seconds)
    canvas.write_text(
        LEFT - 8, y + height - (height - 10) / 2 - 1, f"stage {rank}", "end", role="small stage"
    )
    canvas.draw_box("idle", LEFT, y, end - LEFT, height)
    for item, start in zip(shown.table.rows[rank], shown.timeline.start_seconds[rank], strict=True):
        actions = _parallel_actions(item)
        # The two actions of a pair run at the same time, so each gets half of the height.
        part_height = height / len(actions)
        for part, action in enumerate(actions):
            _draw_action(
                canvas,
                shown,
                axis,
                (action, start, _action_seconds(shown, item), y + part * part_height, part_height),
            )


def _draw_action(
    canvas: Canvas,
    shown: SchedulePreview,
    axis: _TimeAxis,
    at: tuple[Action, float, float, float, float],
) -> None:
    """Draw one action as a box, with the number of its micro-batch if the number fits.

    ``at`` is (action, start in seconds, duration in seconds, top, height).
    """
    action, start, spent, y, height = at
    end = start + spent
    # An action across the break ends at the break.
    if axis.broken and not axis.is_after_gap(start):
        end = min(end, axis.cut)
    x, ink = axis.x_of_time(start), _action_css_class(shown, action)
    # Very short actions keep a width of 0.3 units, so that they stay visible.
    width = max((end - start) * axis.scale - 0.7, 0.3)  # a gap of 0.7 separates actions
    canvas.draw_bar(ink, x, y, width, height)
    # A text element needs far more bytes than a box, so large figures have no numbers.
    many = sum(map(len, shown.table.rows)) > MAX_NUMBERS
    number = f"{_micro_batch(shown, axis, action, start)}"
    if width > max(14, 7 * len(number)) and not many:
        canvas.write_text(
            x + width / 2, y + height / 2 + 3.5, number, "middle", role=text_css_class(ink)
        )


def _action_seconds(shown: SchedulePreview, item: Action | OverlappedPair) -> float:
    if isinstance(item, OverlappedPair):
        return shown.costs.pair_seconds(item)
    stage = shown.costs.stages[item.stage % shown.table.depth]
    return {
        "F": stage.forward,
        "B": stage.backward,
        "I": stage.input_gradient,
        "W": stage.weight_gradient,
    }[item.computation]


def _action_css_class(shown: SchedulePreview, action: Action) -> str:
    """Return the CSS class of an action: a letter for its kind, and 0 or 1.

    The digit is 1 for the second half of a rank's model chunks, which get a different shade.
    """
    later = action.stage % shown.table.depth >= shown.table.depth / 2
    split = shown.table.depth > len(shown.table.rows)
    return f"{INKS[action.computation]}{int(later and split)}"


def _timeline_legend(shown: SchedulePreview) -> tuple[tuple[str, str], ...]:
    kinds = {action.computation for action in shown.table.actions(0)}
    split = shown.table.depth > len(shown.table.rows)
    entries = []
    for kind, text in WORDS.items():
        if kind in kinds:
            entries.append((text + ", early chunks" * split, f"{INKS[kind]}0"))
            entries += [(text + ", late chunks", f"{INKS[kind]}1")] * split
    return (*entries, ("idle (bubble)", "idle"))


def _draw_time_axis(canvas: Canvas, axis: _TimeAxis, makespan: float, y: float) -> None:
    """Draw the ticks of the time axis, with labels.

    If the axis has a gap, labels to the left of the gap count from the start of the step, and
    labels to the right of it count back from the end.
    """
    step = tick_distance(makespan, 10)
    until = axis.cut if axis.broken else makespan
    for index in range(int(until / step) + 1):
        at = index * step
        if not axis.broken or axis.cut - at > step / 4 or index == 0:
            _draw_tick(canvas, axis.x_of_time(at), y, format_seconds(at) if at else "0")
    if axis.broken:
        for index in range(int((makespan - axis.cut) / step) + 1):
            at = makespan - index * step
            if at - axis.cut > step / 4 or index == 0:
                label = f"end \u2212 {format_seconds(index * step)}" if index else "end"
                _draw_tick(canvas, axis.x_of_time(at), y, label)


def _draw_tick(canvas: Canvas, x: float, y: float, text: str) -> None:
    canvas.draw_line("grid", x, TOP, x, y + 4)
    canvas.write_text(
        min(x, WIDTH - 1), y + 16, text, "end" if x > WIDTH - 40 else "middle", role="small"
    )


def _draw_gap(canvas: Canvas, axis: _TimeAxis, left_out: int, y: float) -> None:
    x = LEFT + axis.cut * axis.scale + BREAK / 2
    for side in (-4, 4):
        canvas.draw_line("cut", x + side, TOP - 4, x + side, y + 2)
    batches = "micro-batch" if left_out == 1 else "micro-batches"
    canvas.write_text(x, y + 31, f"{left_out:,} more {batches} like these", "middle", role="small")
