"""Lower bounds on the process groups that a switch cuts, jointly for several parallel axes.

A switch cuts a group if only a part of the group is below it. Let a set of m node ranks be below
the switch. Node ranks are the cells of a grid. A slice of the grid (a pipeline stage) is again a
grid, of rows (expert groups) and columns (their replicas). Lines (pipelines) run across the slices,
with one cell in each. Let h be the largest number of cells of the set in one slice. Then the set
touches at least m / h slices. It cuts at least h lines if it leaves some slice untouched, and
otherwise at least h - m / slices lines. Bounding all axes together is sharper than adding up the
bound of each axis, because a set that cuts few rows cuts many columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from math import inf, isqrt, prod

from parc.compiler.ir.frozen import frozen
from parc.compiler.topology.node_groups import NodeGroups
from parc.compiler.topology.uplinks import Pattern


@frozen
class CutModel:
    """Process groups of one parallel axis, disjoint and of equal size, for lower bounds."""

    node_axes: tuple[int, ...]
    """Indexes of the axes of the grid of node ranks along which the members of a group differ."""
    size: int
    """Node ranks per group; 0 if no bound is known, because the groups are not boxes of the
    grid."""
    least_messages: float
    """Least number of messages that leave a set of node ranks if the set contains only a part of
    one process group."""
    quadratic: bool
    """True for all-to-all: a part of k of n node ranks sends k (n - k) / (n - 1) times as many
    messages as a part of one node rank."""
    line: bool = False
    """True for a pipeline. Each hop carries two messages, so a part that contains neither end of
    the pipeline sends two messages."""

    def least_messages_out(self, contained: int) -> float:
        """Return the least number of messages that leave a set of ``contained`` node ranks.

        The best set consists of whole process groups and a part of one more group. Only this part
        sends messages out of the set.
        """
        remainder = contained % self.size
        if not remainder or not self.quadratic:
            return self.least_messages if remainder else 0.0
        return self.least_messages * remainder * (self.size - remainder) / (self.size - 1)

    @property
    def least_messages_of_cut_host(self) -> float:
        """Least number of messages that some node rank sends to other parts of a cut group.

        In an all-to-all, a node rank of the smallest part, which has at most half of the node
        ranks, sends messages to all node ranks outside of this part.
        """
        if not self.quadratic:
            return self.least_messages
        return self.least_messages * ((self.size + 1) // 2) / (self.size - 1)


def cut_model_of(
    groups: NodeGroups, pattern: Pattern, node_axes: tuple[int, ...], size: int, nodes: int
) -> CutModel:
    """Return the cut model of one parallel axis, for bounds on its messages that leave a switch.

    The bound of the result is 0 if the process groups do not have ``size`` node ranks each, or do
    not fill hosts evenly.

    Args:
        groups: process groups of the axis.
        pattern: ring, pipeline (line) or all-to-all.
        node_axes: axes of the grid of node ranks along which the members of a group differ.
        size: node ranks per group.
        nodes: node ranks of the job.
    """
    # The bounds need groups that are boxes of digits with the same number of ranks on every host.
    group_nodes = len(set(groups.visits[0]))
    if group_nodes != size or groups.size % group_nodes or nodes % group_nodes:
        return CutModel((), 0, 0.0, quadratic=False)
    members = groups.size // group_nodes
    quadratic = pattern == "all-to-all"
    messages = members * members * (group_nodes - 1) if quadratic else 1
    least = messages * groups.count * group_nodes / nodes
    return CutModel(node_axes, group_nodes, least, quadratic, pattern == "line")


@frozen
class GridView:
    """Grid of node ranks in which lines, slices, rows and columns are process groups.

    ``across``, ``whole``, ``rows`` and ``columns`` are phases (traffic of one parallel axis), given
    by their index in ``models``. A phase is None if the grid has no such process groups.
    """

    models: tuple[CutModel, ...]
    across: int | None
    """Phase whose process groups are lines, with one cell in every slice."""
    whole: int | None
    """Phase whose process groups are the slices."""
    rows: int | None
    columns: int | None
    count: int
    """Number of slices."""
    shape: tuple[int, int]
    """Cells per row and cells per column; their product is the size of a slice."""

    @property
    def slice_size(self) -> int:
        """Return the number of node ranks (cells) in a slice of the grid."""
        return prod(self.shape)

    def least_cost(
        self, contained: int, weights: Sequence[float], floors: Sequence[float]
    ) -> float:
        """Return the least cost of all phases if ``contained`` node ranks are below a switch.

        A phase is the traffic of one parallel axis. The cost is in the unit of ``weights``: exposed
        seconds or bytes.

        Args:
            contained: more than 0 and less than the number of node ranks of the job.
            weights: for each phase, the cost of one message over the uplink of the switch.
            floors: for each phase, the least cost in any order of hosts.
        """
        # Phases outside this grid cost at least their own floor.
        others = sum(floors) - sum(floors[one] for one in self.phases)
        cut_costs = [
            weight * model.least_messages
            for weight, model in zip(weights, self.models, strict=True)
        ]
        best, slope = inf, inf
        # ``most`` is h of the module's docstring; the set that minimizes the cost has some h.
        for most in range(1, min(contained, self.slice_size) + 1):
            # Least cost per cell inside a slice with at most ``most`` cells of the set. Slices may
            # differ in how many cells they have, so only the cost per cell can be added up.
            slope = min(slope, self._cost_inside_switch_range(most, cut_costs) / most)
            if most * self.count < contained:
                continue
            inside = max(self._least_cost_of_rows_and_columns(floors), contained * slope)
            for lines, slices in self._least_cuts(contained, most):
                spent = _least_cost_of_phase(self.across, lines, cut_costs, floors)
                spent += _least_cost_of_phase(self.whole, slices, cut_costs, floors)
                best = min(best, spent + inside)
        return others + best

    @property
    def phases(self) -> list[int]:
        """Return the indexes of the phases whose process groups are part of this grid.

        A phase is the traffic of one parallel axis. Its process groups are the lines, slices, rows
        or columns of the grid.
        """
        found = (self.across, self.whole, self.rows, self.columns)
        return [one for one in found if one is not None]

    def _least_cuts(self, contained: int, most: int) -> list[tuple[int, int]]:
        """Return pairs (least lines cut, least slices cut) for sets of ``contained`` grid cells.

        Only sets with at most ``most`` cells in each slice are considered. A line or slice is cut
        if only some of its cells are in the set. One pair is for sets that leave a slice empty, the
        other pair for sets with cells in every slice. A pair is omitted if no such set exists.
        """
        found = []
        touched = -(-contained // most)
        full = most == self.slice_size
        if touched < self.count:
            found.append((most, int(contained % most > 0) if full else touched))
        if contained >= self.count:
            whole = (contained - self.count) // max(most - 1, 1) if full else 0
            found.append((most - contained // self.count, max(self.count - whole, 0)))
        return found

    def _cost_inside_switch_range(self, cells: int, cut_costs: Sequence[float]) -> float:
        """Return the least cost of the rows and columns that ``cells`` cells of a slice cut.

        A row or column is cut if only some of its cells are in the set. ``cut_costs`` contains the
        cost of one cut process group of each phase.
        """
        if self.rows is None or self.columns is None:
            return 0.0
        rows, columns = cut_costs[self.rows], cut_costs[self.columns]
        return min(a * rows + b * columns for a, b in smallest_grid_cuts(cells, *self.shape))

    def _least_cost_of_rows_and_columns(self, floors: Sequence[float]) -> float:
        """Return the least cost of the phases whose process groups are the rows and the columns.

        ``floors`` contains the least cost of each phase.
        """
        return sum(floors[one] for one in (self.rows, self.columns) if one is not None)


def _least_cost_of_phase(
    flow: int | None, cut: int, cut_costs: Sequence[float], floors: Sequence[float]
) -> float:
    """Return the least cost of the phase ``flow`` if ``cut`` of its process groups are cut.

    A process group is cut if only a part of it is below a switch. ``cut_costs`` contains the cost
    of one cut group of each phase, ``floors`` the least cost of each phase. The cost is 0.0 if
    ``flow`` is None.
    """
    return 0.0 if flow is None else max(floors[flow], cut * cut_costs[flow])


@cache
def smallest_grid_cuts(cells: int, row_size: int, column_size: int) -> tuple[tuple[int, int], ...]:
    """Return the least (rows cut, columns cut) for sets of ``cells`` cells of a grid.

    The grid has ``column_size`` rows of ``row_size`` cells. A row or column is cut if only some of
    its cells are in the set. The result contains a pair only if no other pair is better in one
    number and at least as good in the other.

    There are four kinds of sets. A set without a full row or column fits into a rectangle and cuts
    each row and column of the rectangle. A set with a full row touches every column. A set with a
    full column touches every row. If a set has a full row and a full column, the cells outside of
    the set form a set of the first kind, which cuts the same rows and columns.
    """
    total = row_size * column_size
    if cells in (0, total):
        return ((0, 0),)
    found = [
        (column_size, int(cells % column_size > 0)),
        (int(cells % row_size > 0), row_size),
    ]
    for part in (cells, total - cells):
        # The shorter side is at most the square root; both orientations are added.
        for few in range(1, isqrt(part) + 2):
            many = -(-part // few)
            found += [(few, many)] if few <= column_size and many <= row_size else []
            found += [(many, few)] if many <= column_size and few <= row_size else []
    least: list[tuple[int, int]] = []
    for rows, columns in sorted(set(found)):
        if not least or columns < least[-1][1]:
            least.append((rows, columns))
    return tuple(least)


def grid_views(
    models: tuple[CutModel, ...], node_axis_sizes: tuple[int, ...]
) -> tuple[GridView, ...]:
    """Return all grids of node ranks whose lines, slices, rows and columns are process groups.

    For example, if each slice of a grid is a pipeline stage, each line across the slices is a
    pipeline.
    """
    everything = set(range(len(node_axis_sizes)))
    # A group of one node rank is never cut.
    usable = [index for index, model in enumerate(models) if model.size > 1]
    found = []
    for across in [None, *usable]:
        lines = set() if across is None else set(models[across].node_axes)
        inside = everything - lines
        count = prod(node_axis_sizes[index] for index in lines)
        whole = next(
            (one for one in usable if set(models[one].node_axes) == inside and lines), None
        )
        for rows, columns in _row_column_pairs(models, usable, inside):
            shape = (models[rows].size, models[columns].size)
            found.append(GridView(models, across, whole, rows, columns, count, shape))
        if across is not None:
            shape = (prod(node_axis_sizes[index] for index in inside), 1)
            found.append(GridView(models, across, whole, None, None, count, shape))
    return tuple(found)


def _row_column_pairs(
    models: tuple[CutModel, ...], usable: list[int], inside: set[int]
) -> list[tuple[int, int]]:
    """Return the pairs of phases whose process groups can be the rows and columns of a slice.

    A phase is the traffic of one parallel axis, given by its index in ``models``.
    """
    return [
        (a, b)
        for a, b in combinations(usable, 2)
        if not set(models[a].node_axes) & set(models[b].node_axes)
        and set(models[a].node_axes) | set(models[b].node_axes) == inside
    ]
