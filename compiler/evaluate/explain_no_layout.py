"""Finding for a search without layouts, because settings and limits exclude all of them (G01)."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Pins, Problem, ServingProblem
from parc.compiler.ir.problem import is_size_allowed
from parc.compiler.ir.serving_plan import ServingPins


def explain_no_layout(problem: Problem | ServingProblem, limit: str = "") -> Finding:
    """Return the finding that no layout has the sizes that section layout and the limits ask for.

    ``limit`` is the axis of a limit without which there are layouts, if it is known.
    """
    limits, cluster = problem.goals.limits, problem.cluster
    fixed = problem.pins not in (Pins(), ServingPins())
    excluded = ["the settings of layout"] if fixed or not limits else []
    edits = ["remove a fixed size from layout"] if excluded else []
    if limits:
        excluded.append("the limits")
        edits.append("remove or relax a limit of goals.limits")
    pins = {one.axis: getattr(problem.pins, one.axis, None) for one in limits}
    outside = [
        axis
        for axis, size in pins.items()
        if isinstance(size, int) and not is_size_allowed(limits, axis, size)
    ]
    why = "".join(f"; goals.limits.{axis} excludes {axis} {pins[axis]}" for axis in outside)
    limit = limit or next(iter(outside), "")
    return Finding(
        message=f"no layout of {cluster.gpus} GPUs satisfies {' and '.join(excluded)}{why}",
        help=f"{', '.join(edits)}, or change the number of GPUs",
        fix=f"remove goals.limits.{limit}" if limit else "",
        causes=(
            Cause("cluster", f"{cluster.nodes} hosts x {cluster.node.gpus} GPUs"),
            *(Cause(f"layout.{axis}", f"{axis} {pins[axis]}") for axis in outside),
            *(
                Cause(f"goals.limits.{one.axis}", f"limits {one.axis}")
                for one in limits
                if one.axis != limit
            ),
        ),
    )
