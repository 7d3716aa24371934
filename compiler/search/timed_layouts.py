"""Layouts of one search space: their stage splits and step times, built and computed on demand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import EqualStageGroup
from parc.compiler.ir import Layout, PipelineSplit, StepTime
from parc.compiler.placement.score_placement import (
    PlacementOfSizes,
    can_split_hosts,
    has_split_hosts,
    is_placement_relevant,
)
from parc.compiler.search.enumerate_layouts import LayoutPoint, stage_choices
from parc.compiler.search.layout_space import LayoutSpace
from parc.compiler.search.stage_shapes import StageShape
from parc.compiler.search.time_cache import MeshTimes, StepTimeCache


class TimedLayouts:
    """Layouts of one search space, with their step times."""

    def __init__(self, cost_model: CostModel, space: LayoutSpace) -> None:
        """Create an empty cache for the layouts of ``space``."""
        self.space, self._cost_model = space, cost_model
        self._time = StepTimeCache(cost_model, self.build_layout, space.levels)
        self._times_by_sizes: dict[tuple[int, ...], MeshTimes] = {}
        self._seconds: dict[LayoutPoint, float] = {}
        self._splits_by_pp: dict[int, tuple[tuple[int, PipelineSplit, StageShape], ...]] = {}
        self._splits: dict[tuple[int, int], list[tuple[PipelineSplit, StageShape]]] = {}
        """(pp, vpp) -> the splits that ``LayoutPoint.split`` numbers."""
        self._shapes: dict[tuple[int, tuple[EqualStageGroup, ...]], StageShape] = {}
        self._are_all_placed = is_placement_relevant(cost_model.problem.cluster)
        self._can_split_hosts = can_split_hosts(cost_model.problem.cluster)
        self._split_hosts: dict[tuple[int, ...], bool] = {}
        """(tp, cp, pp, dp, ep, etp) -> True if the layouts with these sizes split hosts."""
        self._placements: dict[tuple[int, ...], PlacementOfSizes] = {}
        """(tp, cp, pp, dp, ep, etp, vpp) -> placement of all layouts with these sizes."""
        self._template: tuple[tuple[int, ...], dict[str, Any]] = ((), {})
        """Last (tp, cp, pp, dp, ep, etp, vpp) of ``build_layout``, and the fields of its layout."""

    def build_layout(self, point: LayoutPoint) -> Layout:
        """Return the layout that belongs to ``point``."""
        sizes, template = self._template
        if point[:7] != sizes or point.split:
            split, _ = self._splits[point.pp, point.vpp][point.split]
            layout = self.space.build_layout(point, split)
            if not point.split:
                self._template = point[:7], layout.__dict__.copy()
            return layout
        # Copying the fields of the previous layout takes a third of the time of building them.
        layout = object.__new__(Layout)
        fields = layout.__dict__
        fields.update(template)
        fields["micro_batch"] = point.micro_batch
        fields["recompute"] = self.space.levels[point.level]
        return layout

    def step_seconds(self, point: LayoutPoint) -> float:
        """Return the seconds per step of ``point``, as ``Survivor`` defines them."""
        seconds = self._seconds.get(point)
        if seconds is None:
            (seconds,) = self.sibling_seconds(point, (point.level,))
            self._seconds[point] = seconds
        return seconds

    def sibling_seconds(self, point: LayoutPoint, levels: Iterable[int]) -> list[float]:
        """Return ``step_seconds`` of ``point`` with each of the recompute ``levels``."""
        _, shape = self._splits[point.pp, point.vpp][point.split]
        count = self._micro_batches(point)
        return self.mesh_times(point).step_seconds(point, shape, count, levels)

    def least_seconds(self, point: LayoutPoint) -> float:
        """Return a lower bound of ``step_seconds`` and ``best_split_seconds``, computed quickly."""
        _, shape = self._splits[point.pp, point.vpp][point.split]
        return self.mesh_times(point).least_seconds(point, shape, self._micro_batches(point))

    def best_split_seconds(self, point: LayoutPoint, seconds: float, layers: int = 0) -> float:
        """Return about the seconds per step of ``point`` with the best of all stage splits.

        ``seconds`` is the step time with its own split. In all splits, the longest stage has at
        least ``layers`` layers.
        """
        _, shape = self._splits[point.pp, point.vpp][point.split]
        times = self.mesh_times(point)
        return times.best_split_seconds(point, shape, self._micro_batches(point), seconds, layers)

    def with_split(self, point: LayoutPoint, split: PipelineSplit) -> LayoutPoint:
        """Return the layout ``point`` with ``split`` as its stage split."""
        known = [one for one, _ in self._splits[point.pp, point.vpp]]
        if split not in known:
            self._add_split(point.pp, point.vpp, split)
            known.append(split)
        return point._replace(split=known.index(split))

    def least_placement_seconds(self, point: LayoutPoint) -> float:
        """Return about a lower bound of the seconds that the placement of ``point`` adds to a step.

        It is the bound of the first layout with these parallel sizes and this virtual pipeline
        size, because their traffic differs little.
        """
        return (
            self._placement_of_sizes(point).least_added_seconds if self._is_placed(point) else 0.0
        )

    def usual_placement_seconds(self, point: LayoutPoint) -> float:
        """Return about the seconds that the placement of ``point`` adds to a step.

        They are those of the same layout as in ``least_placement_seconds``.
        """
        return self._placement_of_sizes(point).added_seconds if self._is_placed(point) else 0.0

    def placement_seconds(self, layout: Layout, point: LayoutPoint, time: StepTime) -> float:
        """Return the seconds that the placement of ``layout``, that is ``point``, adds to a step.

        ``time`` is its step time without them.
        """
        if not self._is_placed(point):
            return 0.0
        return self._placement_of_sizes(point).added_seconds_of(layout, time)

    def is_faster_when_placed(self, point: LayoutPoint, seconds: float, most: float) -> bool:
        """Return True if ``point`` with its placement takes less than ``most`` seconds per step.

        ``seconds`` is its step time without placement.
        """
        return (
            seconds < most
            and seconds + self.least_placement_seconds(point) < most
            and seconds + self.usual_placement_seconds(point) < most
        )

    def _is_placed(self, point: LayoutPoint) -> bool:
        """Return True if the placement of ``point`` may make its step longer."""
        if self._are_all_placed or not self._can_split_hosts:
            return self._are_all_placed
        found = self._split_hosts.get(point[:6])
        if found is None:
            found = has_split_hosts(self._cost_model, self.build_layout(point))
            self._split_hosts[point[:6]] = found
        return found

    def _placement_of_sizes(self, point: LayoutPoint) -> PlacementOfSizes:
        """Return the placement of the layouts with the sizes of ``point``; cached."""
        found = self._placements.get(point[:7])
        if found is None:
            found = PlacementOfSizes(self._cost_model, self.build_layout(point))
            self._placements[point[:7]] = found
        return found

    def _add_split(self, pp: int, vpp: int, split: PipelineSplit) -> StageShape:
        """Give ``split`` the next number of ``LayoutPoint.split``, and return its shape."""
        classes = self._cost_model.equal_stage_groups(split)
        shape = self._shapes.get((pp, classes))
        if shape is None:
            model, schedule = self.space.problem.model, self.space.schedule
            shape = StageShape.from_classes(model, pp, classes, schedule)
            self._shapes[pp, classes] = shape
        self._splits.setdefault((pp, vpp), []).append((split, shape))
        return shape

    def _micro_batches(self, point: LayoutPoint) -> int:
        """Return the number of micro-batches per step."""
        return self.space.problem.job.global_batch // (point.micro_batch * point.dp)

    def stage_splits(self, pp: int) -> tuple[tuple[int, PipelineSplit, StageShape], ...]:
        """Return (vpp, split, shape) of the framework's splits into ``pp`` stages; cached."""
        found = self._splits_by_pp.get(pp)
        if found is None:
            choices = stage_choices(self.space.problem, self._cost_model.framework, pp)
            found = tuple((vpp, split, self._add_split(pp, vpp, split)) for vpp, split in choices)
            self._splits_by_pp[pp] = found
        return found

    def mesh_times(self, point: LayoutPoint) -> MeshTimes:
        """Return the times that all layouts with the parallel sizes of ``point`` share."""
        sizes = point[:6]  # (tp, cp, pp, dp, ep, etp)
        times = self._times_by_sizes.get(sizes)
        if times is None:
            times = self._times_by_sizes[sizes] = self._time.times_of_mesh(point)
        return times
