"""Rule on layouts of the pools of a disaggregated service, for all engines."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import ServingProblem, ServingRule

SIZES = ("pp", "pcp", "dcp")
"""Parallel sizes that split the layers or the tokens of a KV cache over ranks."""


def _splits_transferred_cache(problem: ServingProblem, layout: ServingLayout) -> bool:
    if problem.service.setup.pool == "both":
        return False
    return any(getattr(layout, name) > 1 for name in SIZES)


def _explain_split_cache(problem: ServingProblem, layout: ServingLayout) -> Finding:
    name = next(one for one in SIZES if getattr(layout, one) > 1)
    return Finding(
        "the KV cache of a pool must not be split by layers or tokens",
        label=f"{name} is {getattr(layout, name)}",
        help=f"valid {name} in a pool: 1; engines connect pools with different pp, pcp or dcp only "
        "in a few combinations, which PARC does not plan",
        fix=f"layout.{name}: 1",
        causes=(Cause("job.pool", f"the pool is {problem.service.setup.pool}"),),
    )


POOL_RULE = ServingRule(
    "V45",
    ("layout.pp", "layout.pcp", "layout.dcp", "job.pool"),
    _splits_transferred_cache,
    _explain_split_cache,
    SIZES,
)
