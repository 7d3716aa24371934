"""Verifier of a framework that numbers its ranks along axes in a fixed order.

This module shares no code with the meshes that PARC places, so that it detects mistakes in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from parc.backends.verifier import (
    NO_FILES,
    DerivedGroups,
    FamilyGroups,
    FileDependencies,
    FrameworkVerifier,
    LauncherNumber,
)
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.device_mesh import groups_along, positive_sizes

DENSE, EXPERT = ("pp", "dp", "cp", "tp"), ("ep", "edp")
COLUMNS = (*DENSE, *EXPERT)
"""Groups along one axis each: those of dense layers, then those of experts."""


@frozen(slots=False)
class RankOrderVerifier(FrameworkVerifier):
    """Verifier that derives groups from parallel sizes and the order of the axes.

    The groups are those of ``PlainFramework`` (``backends/plain_framework.py``).
    """

    file: str
    builder: str
    """Name of the framework in findings."""
    read_sizes: Callable[[str], Mapping[str, int]]
    """Function that returns the sizes in the text of ``file``: tp, and of cp, pp, dp, ep and etp
    those that are not 1; etp is tp if there is no ep. Raises MalformedFileError for any other
    text."""
    read_order: Callable[[str], str]
    """Function that returns the rank order that the framework uses with the text of ``file``:
    ``tp-cp-ep-dp-pp``, the fastest-varying axis first."""
    files: FileDependencies = NO_FILES
    launcher: tuple[LauncherNumber, ...] = ()

    def derive_groups(
        self, artifacts: Mapping[str, str], world: int, sink: Sink
    ) -> DerivedGroups | None:
        """Return the sizes in ``file`` and their groups; None after reporting wrong sizes (A05)."""
        text = artifacts[self.file]
        given = positive_sizes(self.file, self.read_sizes(text))
        sizes = dict.fromkeys(("tp", "cp", "pp", "dp", "ep", "etp"), 1) | given
        if "ep" not in given and "etp" not in given:
            sizes["etp"] = sizes["tp"]  # as in the layouts of models without experts
        ranks = sizes["tp"] * sizes["cp"] * sizes["pp"] * sizes["dp"]
        inner = sizes["etp"] * sizes["ep"] * sizes["pp"]
        if ranks != world or world % inner:
            wrong = f"the rank map has {world} ranks, but {self.file} configures {ranks}"
            if ranks == world:
                wrong = f"etp x ep x pp = {inner} in {self.file} does not divide {world} ranks"
            sink.report("A05", Finding(wrong), span=Span(self.file, 1, 1))
            return None
        sizes["edp"] = world // inner
        order = self.read_order(text)
        outer = tuple(reversed(order.split("-")))
        dense = tuple((axis, sizes[axis]) for axis in outer if axis != "ep")
        names = {"tp": "etp", "dp": "edp", "ep": "ep", "pp": "pp"}
        expert = tuple((names[axis], sizes[names[axis]]) for axis in outer if axis in names)
        families: dict[str, FamilyGroups] = {
            **{axis: groups_along(dense, (axis,)) for axis in DENSE},
            **{axis: groups_along(expert, (axis,)) for axis in EXPERT},
        }
        shown = {axis: sizes[axis] for axis in ("pp", "dp", "cp", "tp", "ep", "edp")}
        return DerivedGroups(self.file, self.builder, order, shown, families, COLUMNS)
