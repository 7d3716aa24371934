"""Lower bounds on the groups that a set of m node ranks cuts, jointly for crossing families.

Node ranks are cells of a grid. A slice of it (a pipeline stage) is again a grid, of rows (expert
groups) and columns (their replicas); lines (pipelines) run across the slices. If a set has m cells,
at most h of them in any one slice, it touches at least m / h slices. It cuts at least h lines,
unless it touches every slice; then it cuts at least h - m / slices of them. A bound on families
taken together is sharper than the sum of single bounds, because a set that cuts few rows cuts many
columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import inf, isqrt, prod

from parc.compiler.topology.node_groups import NodeGroups
from parc.compiler.topology.uplinks import Pattern


@dataclass(frozen=True, slots=True)
class CutModel:
    """Groups of one flow as the bounds see them: disjoint node sets of equal size."""

    digits: tuple[int, ...]
    """Indexes of the digits of the node rank that vary inside a group."""
    size: int
    """Node ranks per group; 0 if the groups are not boxes of digits, which gives no bound."""
    least_messages: float
    """Least messages that leave a set of node ranks that has a part of one group."""
    quadratic: bool
    """True for all-to-all: k of n node ranks send k (n - k) / (n - 1) times as much as one."""
    line: bool = False
    """True for a pipeline: every hop carries two messages, so an inner part sends two."""

    def least_leaving(self, contained: int) -> float:
        """Return the least messages that leave a set of ``contained`` node ranks.

        The best set consists of whole groups and a remainder; only the remainder sends.
        """
        remainder = contained % self.size
        if not remainder or not self.quadratic:
            return self.least_messages if remainder else 0.0
        return self.least_messages * remainder * (self.size - remainder) / (self.size - 1)


def cut_model_of(
    groups: NodeGroups, pattern: Pattern, digits: tuple[int, ...], size: int, nodes: int
) -> CutModel:
    """Return the cut model of ``groups`` in a job of ``nodes`` node ranks.

    The groups vary over ``digits`` and have ``size`` node ranks each. If a ring or a pipeline is
    cut, at least one message leaves each part. If n node ranks exchange all-to-all, the least
    messages leave a part of one node rank.
    """
    group_nodes = len(set(groups.visits[0]))
    if group_nodes != size or groups.size % group_nodes or nodes % group_nodes:
        return CutModel((), 0, 0.0, quadratic=False)
    members = groups.size // group_nodes
    quadratic = pattern == "all-to-all"
    messages = members * members * (group_nodes - 1) if quadratic else 1
    least = messages * groups.count * group_nodes / nodes
    return CutModel(digits, group_nodes, least, quadratic, pattern == "line")


@dataclass(frozen=True, slots=True)
class GridView:
    """Reading of the flows as parts of one grid; each part is an index into the flows or None."""

    models: tuple[CutModel, ...]
    across: int | None
    """Flow whose groups are lines, with one cell in every slice."""
    whole: int | None
    """Flow whose groups are the slices."""
    rows: int | None
    columns: int | None
    count: int
    """Number of slices."""
    shape: tuple[int, int]
    """Cells per row and cells per column; their product is the size of a slice."""

    @property
    def slice_size(self) -> int:
        """Cells of a slice."""
        return prod(self.shape)

    def least(self, contained: int, weights: Sequence[float], floors: Sequence[float]) -> float:
        """Return the least cost of all flows if a switch has ``contained`` node ranks below it.

        Args:
            contained: more than 0 and less than the node ranks of the job.
            weights: cost of one message of each flow over the uplink of the switch: exposed
                seconds, or bytes.
            floors: least cost of each flow, in the same unit.
        """
        others = sum(floors) - sum(floors[one] for one in self.flows)
        price = [
            weight * model.least_messages
            for weight, model in zip(weights, self.models, strict=True)
        ]
        best, slope = inf, inf
        # ``most`` is h of the module's docstring; the set that minimizes the cost has some h.
        for most in range(1, min(contained, self.slice_size) + 1):
            # Least cost per cell inside a slice with at most ``most`` cells of the set. Slices may
            # differ in how many cells they have, so only the cost per cell can be added up.
            slope = min(slope, self._inside(most, price) / most)
            if most * self.count < contained:
                continue
            inside = max(self._inside_floor(floors), contained * slope)
            for lines, slices in self._cuts(contained, most):
                spent = _at_least(self.across, lines, price, floors)
                spent += _at_least(self.whole, slices, price, floors)
                best = min(best, spent + inside)
        return others + best

    @property
    def flows(self) -> list[int]:
        """Indexes of the flows that are a part of the grid."""
        found = (self.across, self.whole, self.rows, self.columns)
        return [one for one in found if one is not None]

    def _cuts(self, contained: int, most: int) -> list[tuple[int, int]]:
        """Return (lines cut, slices cut) if no slice has more than ``most`` cells of the set.

        Two cases: the set leaves some slice untouched, or it touches every slice.
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

    def _inside(self, cells: int, price: Sequence[float]) -> float:
        """Return the least cost of rows and columns for ``cells`` of a slice, without floors."""
        if self.rows is None or self.columns is None:
            return 0.0
        rows, columns = price[self.rows], price[self.columns]
        return min(a * rows + b * columns for a, b in grid_cuts(cells, *self.shape))

    def _inside_floor(self, floors: Sequence[float]) -> float:
        """Return the least cost of rows and columns for any number of cells."""
        return sum(floors[one] for one in (self.rows, self.columns) if one is not None)


def _at_least(flow: int | None, cut: int, price: Sequence[float], floors: Sequence[float]) -> float:
    """Return the least cost of a flow with ``cut`` cut groups; 0.0 for no flow."""
    return 0.0 if flow is None else max(floors[flow], cut * price[flow])


@cache
def grid_cuts(cells: int, row_size: int, column_size: int) -> tuple[tuple[int, int], ...]:
    """Return the smallest pairs (rows cut, columns cut) of any set of ``cells`` cells of a grid.

    The grid has ``column_size`` rows of ``row_size`` cells. A set without a full row or column
    cuts every row and column that it touches, and the rectangle of these contains it. A set with a
    full row touches every column. For a set with a full row and a full column, the same holds for
    the cells outside it. Pairs that are worse than another pair in both numbers are left out.
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


def grid_views(models: tuple[CutModel, ...], digits: tuple[int, ...]) -> tuple[GridView, ...]:
    """Return every reading of the flows as lines, slices, rows and columns of one grid."""
    everything = set(range(len(digits)))
    # A group of one node rank is never cut.
    usable = [index for index, model in enumerate(models) if model.size > 1]
    found = []
    for across in [None, *usable]:
        lines = set() if across is None else set(models[across].digits)
        inside = everything - lines
        count = prod(digits[index] for index in lines)
        whole = next((one for one in usable if set(models[one].digits) == inside and lines), None)
        for rows, columns in _row_column_pairs(models, usable, inside):
            shape = (models[rows].size, models[columns].size)
            found.append(GridView(models, across, whole, rows, columns, count, shape))
        if across is not None:
            shape = (prod(digits[index] for index in inside), 1)
            found.append(GridView(models, across, whole, None, None, count, shape))
    return tuple(found)


def _row_column_pairs(
    models: tuple[CutModel, ...], usable: list[int], inside: set[int]
) -> list[tuple[int, int]]:
    """Return the pairs of flows whose groups are the rows and the columns of a slice."""
    return [
        (a, b)
        for a, b in combinations(usable, 2)
        if not set(models[a].digits) & set(models[b].digits)
        and set(models[a].digits) | set(models[b].digits) == inside
    ]
