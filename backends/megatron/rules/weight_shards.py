"""Rules on weights that data-parallel ranks share (generalized tensor parallelism)."""

from __future__ import annotations

from typing import NamedTuple

from parc.backends.megatron.capabilities import core_version
from parc.backends.megatron.memory import stores_low_precision_weights
from parc.backends.shared.common_rules import Conflict, conflict_rule
from parc.backends.shared.valid_values import format_setting, nearest_value
from parc.backends.shared.versions import parse_version
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import format_values
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.rule import WORLD_FIELDS, Rule

SINCE = (0, 19)
"""First version of Megatron-Core with ``--tensor-parallel-num-weight-shards``."""


class _SharingAxis(NamedTuple):
    """Axis over which data-parallel ranks share weights; its size must divide theirs."""

    axis: str
    size: int
    data_axis: str
    ranks: int
    """Size of ``data_axis``."""


def _sharing_axes(layout: Layout) -> tuple[_SharingAxis, ...]:
    """Return the axes of the dense weights and of the experts."""
    return (
        _SharingAxis("gtp", layout.gtp, "dp", layout.dp),
        _SharingAxis("egtp", layout.egtp, "edp", layout.edp),
    )


def _violates_divisibility(problem: Problem, layout: Layout) -> bool:
    # A layout is built with dp, so that the product of its parts differs if gtp does not divide dp.
    return layout.dp % layout.gtp != 0 or layout.edp % layout.egtp != 0


def _explain_divisibility(problem: Problem, layout: Layout) -> Finding:
    axis, size, whole, ranks = next(one for one in _sharing_axes(layout) if one.ranks % one.size)
    valid = divisors(ranks)
    return Finding(
        message=f"{whole}={ranks} is not divisible by {axis}={size}",
        label=f"{ranks} % {size} = {ranks % size}, must be 0",
        help=f"valid {axis} with {whole} {ranks}: {format_values(valid)}",
        fix=format_setting(f"layout.{axis}", nearest_value(valid, size)),
        causes=(Cause("layout.dp", f"{whole} is {ranks}"),) if axis == "gtp" else (),
    )


def _sharing_conflict(problem: Problem, layout: Layout) -> Conflict | None:
    """Return the setting with which sharing cannot work; None if it works or is not used."""
    if not layout.shares_weights:
        return None
    job, version = problem.job, core_version(problem)
    axis = "gtp" if layout.gtp > 1 else "egtp"
    off = f"layout.{axis}: 1"
    if layout.egtp > 1 and problem.model.experts is None:
        return Conflict("egtp above 1, but no experts", "egtp 1", "layout.egtp: 1")
    if parse_version(version) < SINCE:
        newest = ".".join(map(str, SINCE))
        text = f"version {version}, which has no flag for it"
        return Conflict(text, f"version {newest} or newer", off)
    # The wrapper of Megatron-FSDP shards every weight itself, over all data-parallel ranks.
    if layout.zero_stage > 1:
        stage = f"zero_stage {layout.zero_stage}, which shards weights or gradients by itself"
        return Conflict(stage, "zero_stage 0 or 1", off)
    # initialize_model_parallel: one instance of the distributed optimizer.
    if layout.zero_stage > 0 and layout.dp_replicate > 1:
        copies = f"{layout.dp_replicate} copies of the optimizer state"
        valid = "dp_shard auto, one copy of the optimizer state"
        return Conflict(copies, valid, "layout.dp_shard: auto")
    # validate_args: weights in mxfp8 and nvfp4 are gathered as they are stored.
    stored = layout.zero_stage > 0 and stores_low_precision_weights(job)
    if job.precision in ("mxfp8", "nvfp4") and not stored:
        needs = "zero_stage 1" + (", moment_precision fp32" if job.precision == "nvfp4" else "")
        return Conflict(f"precision {job.precision}, with 16-bit weights", needs, off)
    return None


def _explain_sharing(problem: Problem, layout: Layout, conflict: Conflict) -> Finding:
    return Finding(
        message="Megatron cannot share weights among data-parallel ranks: the plan has "
        f"{conflict.found}",
        label="generalized tensor parallelism does not work with this setting",
        help=f"valid with gtp or egtp above 1: {conflict.valid}",
        fix=conflict.fix,
        causes=(Cause("job.precision", f"the precision is {problem.job.precision}"),)
        if "precision" in conflict.found
        else (),
    )


WEIGHT_SHARD_RULES = (
    Rule(
        "D24",
        ("layout.gtp", "layout.egtp", "layout.dp"),
        _violates_divisibility,
        _explain_divisibility,
        ("ep", "etp", "egtp", *WORLD_FIELDS),
    ),
    conflict_rule(
        "D25",
        ("layout.gtp", "layout.egtp", "versions", "job.precision"),
        _sharing_conflict,
        _explain_sharing,
        ("egtp", "zero_stage", *WORLD_FIELDS),
    ),
)
