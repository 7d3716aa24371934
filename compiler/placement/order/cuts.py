"""How few groups a set of m node ranks can cut, for families that cross like rows and columns.

Node ranks are cells of a grid. Slices of it (a pipeline stage) are grids again, of rows (expert
groups) and columns (their replicas); lines run across the slices (pipelines). A set that holds at
most h cells of any slice touches at least m / h slices, and cuts at least h lines, unless it
touches every slice; then it cuts at least h - m / slices of them.
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
class Kind:
    """Groups of one flow as the bound sees them: equal sets of node ranks that tile the job."""

    digits: tuple[int, ...]
    """Digits of the node rank that vary inside a group."""
    size: int
    """Node ranks of a group; 0 where groups are not boxes of digits, so that nothing is known."""
    least: float
    """Messages that leave a set which holds a part of one group, at least."""
    quadratic: bool
    """All-to-all: k of n node ranks send k (n - k) times as much as one of two."""
    line: bool = False
    """A pipeline: two messages over every hop, so that a part without an end sends two."""

    def remainder(self, held: int) -> float:
        """Messages that leave a set of ``held`` node ranks, at least: whole groups and a rest."""
        rest = held % self.size
        if not rest or not self.quadratic:
            return self.least if rest else 0.0
        return self.least * rest * (self.size - rest) / (self.size - 1)


def kind_of(
    groups: NodeGroups, pattern: Pattern, digits: tuple[int, ...], size: int, job: int
) -> Kind:
    """What is known of ``groups`` in a job of ``job`` node ranks.

    They vary over ``digits``, ``size`` node ranks a group. Of a ring or a line that is cut, one
    message leaves a part; of n node ranks that all talk to all, the least leaves one of them.
    """
    nodes = len(set(groups.visits[0]))
    if nodes != size or groups.size % nodes or job % nodes:
        return Kind((), 0, 0.0, quadratic=False)
    each = groups.size // nodes
    quadratic = pattern == "all-to-all"
    messages = each * each * (nodes - 1) if quadratic else 1
    least = messages * groups.count * nodes / job
    return Kind(digits, nodes, least, quadratic, pattern == "line")


@dataclass(frozen=True, slots=True)
class Slices:
    """Flows by their part in the grid, as indexes into the flows; None where there is none."""

    kinds: tuple[Kind, ...]
    across: int | None
    """Lines, one cell of every slice."""
    whole: int | None
    """Groups that are slices."""
    rows: int | None
    columns: int | None
    count: int
    """Slices."""
    shape: tuple[int, int]
    """Cells of a row and of a column; rows times columns make a slice."""

    @property
    def slice_size(self) -> int:
        """Cells of a slice."""
        return prod(self.shape)

    def least(self, held: int, weights: Sequence[float], floors: Sequence[float]) -> float:
        """Least exposed seconds of all flows where a switch holds ``held`` node ranks.

        Args:
            held: between 0 and the job, both excluded.
            weights: exposed seconds of one message of each flow over the uplink of the switch.
            floors: exposed seconds of each flow at least.
        """
        others = sum(floors) - sum(floors[one] for one in self.own)
        price = [weight * kind.least for weight, kind in zip(weights, self.kinds, strict=True)]
        best, slope = inf, inf
        for most in range(1, min(held, self.slice_size) + 1):
            slope = min(slope, self._inside(most, price) / most)
            if most * self.count < held:
                continue
            inside = max(self._floor(floors), held * slope)
            for lines, slices in self._cuts(held, most):
                spent = _at_least(self.across, lines, price, floors)
                spent += _at_least(self.whole, slices, price, floors)
                best = min(best, spent + inside)
        return others + best

    @property
    def own(self) -> list[int]:
        """Flows that have a part in the grid."""
        found = (self.across, self.whole, self.rows, self.columns)
        return [one for one in found if one is not None]

    def _cuts(self, held: int, most: int) -> list[tuple[int, int]]:
        """(lines cut, slices cut) where no slice has more than ``most`` cells of the set."""
        found = []
        touched = -(-held // most)
        full = most == self.slice_size
        if touched < self.count:
            found.append((most, int(held % most > 0) if full else touched))
        if held >= self.count:
            whole = (held - self.count) // max(most - 1, 1) if full else 0
            found.append((most - held // self.count, max(self.count - whole, 0)))
        return found

    def _inside(self, cells: int, price: Sequence[float]) -> float:
        """Least cost of rows and columns for ``cells`` of a slice, floors aside."""
        if self.rows is None or self.columns is None:
            return 0.0
        rows, columns = price[self.rows], price[self.columns]
        return min(a * rows + b * columns for a, b in grid_cuts(cells, *self.shape))

    def _floor(self, floors: Sequence[float]) -> float:
        """Rows and columns at least, whatever the switch holds."""
        return sum(floors[one] for one in (self.rows, self.columns) if one is not None)


def _at_least(flow: int | None, cut: int, price: Sequence[float], floors: Sequence[float]) -> float:
    return 0.0 if flow is None else max(floors[flow], cut * price[flow])


@cache
def grid_cuts(held: int, length: int, other_length: int) -> tuple[tuple[int, int], ...]:
    """(rows cut, columns cut) that a set of ``held`` cells of a grid can have, the least ones.

    Rows have ``length`` cells and there are ``other_length`` of them; columns the other way
    round. A set with no full line cuts every line that it touches, and what it touches is a
    rectangle that holds it. A set with a full row touches every column. With a full row and a
    full column, the same holds for what is left out.
    """
    cells = length * other_length
    if held in (0, cells):
        return ((0, 0),)
    found = [
        (other_length, int(held % other_length > 0)),
        (int(held % length > 0), length),
    ]
    for part in (held, cells - held):
        for few in range(1, isqrt(part) + 2):
            many = -(-part // few)
            found += [(few, many)] if few <= other_length and many <= length else []
            found += [(many, few)] if many <= other_length and few <= length else []
    least: list[tuple[int, int]] = []
    for rows, columns in sorted(set(found)):
        if not least or columns < least[-1][1]:
            least.append((rows, columns))
    return tuple(least)


def slices_of(kinds: tuple[Kind, ...], digits: tuple[int, ...]) -> tuple[Slices, ...]:
    """Every way to read the flows as lines, slices, rows and columns of one grid."""
    everything = set(range(len(digits)))
    known = [index for index, kind in enumerate(kinds) if kind.size > 1]
    found = []
    for across in [None, *known]:
        lines = set() if across is None else set(kinds[across].digits)
        inside = everything - lines
        count = prod(digits[index] for index in lines)
        whole = next((one for one in known if set(kinds[one].digits) == inside and lines), None)
        for rows, columns in _pairs(kinds, known, inside):
            shape = (kinds[rows].size, kinds[columns].size)
            found.append(Slices(kinds, across, whole, rows, columns, count, shape))
        if across is not None:
            shape = (prod(digits[index] for index in inside), 1)
            found.append(Slices(kinds, across, whole, None, None, count, shape))
    return tuple(found)


def _pairs(kinds: tuple[Kind, ...], known: list[int], inside: set[int]) -> list[tuple[int, int]]:
    """Flows whose groups are the rows and the columns of a slice."""
    return [
        (a, b)
        for a, b in combinations(known, 2)
        if not set(kinds[a].digits) & set(kinds[b].digits)
        and set(kinds[a].digits) | set(kinds[b].digits) == inside
    ]
