"""Rules on divisibility: of tensor dims by tp and etp, and of the ranks by the meshes."""

from __future__ import annotations

from typing import NamedTuple

from parc.backends.shared.common_rules import GPU_COUNT, HEADS
from parc.backends.shared.valid_degrees import tp_sizes_within_domain, valid_tp
from parc.backends.shared.valid_values import filter_valid, format_setting, nearest_value
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import (
    describe_indivisible,
    describe_uncopied_heads,
    format_values,
)
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.rule import WORLD_FIELDS, Rule


def _violates_kv_heads(problem: Problem, layout: Layout) -> bool:
    attention, tp = problem.model.attention, layout.tp
    if attention.latent is not None:
        return False
    return attention.kv_heads % tp != 0 and tp % attention.kv_heads != 0


def _explain_kv_heads(problem: Problem, layout: Layout) -> Finding:
    attention, tp = problem.model.attention, layout.tp
    kv = attention.kv_heads
    good = valid_tp(problem)
    return Finding(
        message=describe_uncopied_heads(kv, tp),
        label=f"{kv} % {tp} = {kv % tp} and {tp} % {kv} = {tp % kv}, one must be 0",
        help=f"valid tp within one NVLink domain: {format_values(good)}",
        fix=format_setting("layout.tp", nearest_value(good, tp)),
        causes=(Cause("model.kv_heads", f"{kv} key-value heads"),),
    )


class ShardedWidth(NamedTuple):
    """Width of a part of the model that is split over ranks."""

    what: str
    """Part of the model with its article, for findings."""
    width: int
    axis: str
    """Parallel axis whose ranks share the part: tp or etp."""
    ranks: int
    """Size of the axis."""


def sharded_widths(problem: Problem, layout: Layout) -> tuple[ShardedWidth, ...]:
    """Return all widths that are split over ranks, except attention heads."""
    model = problem.model
    widths = []
    if model.ffn.size and model.dense_layers:
        widths.append(ShardedWidth("the dense MLP", model.ffn.size, "tp", layout.tp))
    if model.experts is not None:
        widths.append(ShardedWidth("a routed expert", model.experts.size, "etp", layout.etp))
        if model.experts.shared_size:
            shared = model.experts.shared_size
            widths.append(ShardedWidth("the shared experts", shared, "tp", layout.tp))
    return tuple(widths)


def _violates_tensor_widths(problem: Problem, layout: Layout) -> bool:
    return any(part.width % part.ranks for part in sharded_widths(problem, layout))


def _explain_tensor_widths(problem: Problem, layout: Layout) -> Finding:
    uneven = (part for part in sharded_widths(problem, layout) if part.width % part.ranks)
    what, width, axis, degree = next(uneven)
    good = (
        [n for n in tp_sizes_within_domain(problem) if width % n == 0]
        if axis == "etp"
        else valid_tp(problem)
    )
    return Finding(
        message=describe_indivisible(width, what, f"{axis}={degree}"),
        label=f"{width} % {degree} = {width % degree}, must be 0",
        help=f"valid {axis} within one NVLink domain: {format_values(good)}",
        fix=format_setting(f"layout.{axis}", nearest_value(good, degree)),
        causes=(Cause("model", f"the width of {what} is {width}"),),
    )


def _violates_expert_mesh(problem: Problem, layout: Layout) -> bool:
    # cp is not a factor: expert parallelism folds over the context- and data-parallel ranks.
    return layout.world % (layout.etp * layout.ep * layout.pp) != 0


def _explain_expert_mesh(problem: Problem, layout: Layout) -> Finding:
    world, pp, etp, ep = layout.world, layout.pp, layout.etp, layout.ep
    block = pp * etp * ep
    experts = problem.model.experts.count if problem.model.experts else 1
    good = filter_valid(divisors(experts), lambda value: world % (pp * etp * value) == 0)
    return Finding(
        message=f"{world} ranks are not divisible by the expert mesh "
        f"pp {pp} x ep {ep} x etp {etp} = {block}",
        label=f"{world} % {block} = {world % block}, must be 0",
        help=(
            f"dense mesh: tp {layout.tp} x cp {layout.cp} x dp {layout.dp} x pp {pp} = {world}; "
            f"valid ep with etp {etp}: {format_values(good)}"
        ),
        fix=format_setting("layout.ep", nearest_value(good, ep)),
        causes=(Cause("layout.etp", f"etp {etp}"), Cause("layout.pp", f"pp {pp}")),
    )


def _violates_rank_order(problem: Problem, layout: Layout) -> bool:
    # parallel_state.py asserts that the pipeline groups of both meshes are equal, which holds for
    # every size only if pp is slowest.
    equal = layout.edp // layout.egtp == layout.dp // layout.gtp
    return not layout.order.endswith("pp") and layout.pp > 1 and not equal


def _explain_rank_order(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"rank order {layout.order} requires as many expert replicas as dense replicas",
        label=_describe_replicas(layout),
        help="make tp x cp equal to etp x ep, or use pp 1, or a rank order that ends in pp",
        fix="layout.order: tp-cp-ep-dp-pp",
    )


def _describe_replicas(layout: Layout) -> str:
    """Return the numbers of replicas of experts and dense layers, which must be equal, as text."""
    edp, dp = f"edp {layout.edp}", f"dp {layout.dp}"
    if layout.shares_weights:
        edp, dp = f"edp / egtp {layout.edp // layout.egtp}", f"dp / gtp {layout.dp // layout.gtp}"
    inner = f"etp x ep is {layout.etp * layout.ep} and tp x cp is {layout.tp * layout.cp}"
    return f"{edp} must equal {dp}, but {inner}"


def _violates_optimizer_copies(problem: Problem, layout: Layout) -> bool:
    if layout.zero_stage == 0 or layout.dp_replicate == 1:
        return False
    # The dense replicas are divisible by construction, dp = dp_shard x dp_replicate; the experts'
    # replicas need not be.
    return layout.edp % layout.dp_replicate != 0


def _explain_optimizer_copies(problem: Problem, layout: Layout) -> Finding:
    copies, edp = layout.dp_replicate, layout.edp
    return Finding(
        message=f"{edp} replicas per expert are not divisible by {copies} optimizer copies",
        label=f"{edp} % {copies} = {edp % copies}, must be 0",
        help=f"valid numbers of optimizer copies: {format_values(divisors(edp))}",
    )


MESH_RULES: tuple[Rule, ...] = (
    HEADS,
    Rule("D02", ("layout.tp", "model.kv_heads"), _violates_kv_heads, _explain_kv_heads, ("tp",)),
    Rule(
        "D06",
        ("layout.tp", "layout.etp", "model.ffn"),
        _violates_tensor_widths,
        _explain_tensor_widths,
        ("tp", "etp"),
    ),
    GPU_COUNT,
    Rule(
        "D14",
        ("layout.order", "layout.ep", "layout.etp"),
        _violates_rank_order,
        _explain_rank_order,
        ("order", "ep", "etp", "egtp", *WORLD_FIELDS),
    ),
    Rule(
        "D15",
        ("layout.dp", "layout.ep"),
        _violates_optimizer_copies,
        _explain_optimizer_copies,
        ("zero_stage", "ep", "etp", *WORLD_FIELDS),
    ),
)

EXPERT_MESH_RULE = Rule(
    "D10",
    ("layout.ep", "layout.etp", "layout.pp"),
    _violates_expert_mesh,
    _explain_expert_mesh,
    ("ep", "etp", *WORLD_FIELDS),
)
