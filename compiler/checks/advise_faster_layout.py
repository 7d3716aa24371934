"""Hints at choices that the search does not make, but that would shorten the step by 5 % or more.

The choices are a layout whose memory is uncertain, a library that users must install, and a lower
precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from parc.backends.spec_fields import uses_spec_field
from parc.compiler.checks.check_memory import describe_covering_headroom, describe_recompute
from parc.compiler.cost.memory.peak import EXPECTED, HIGH, peak_bytes
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.evaluate.layout_fields import format_layout_fields, format_sizes
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, Plan, Precision, Problem, Search
from parc.compiler.ir.problem import Dispatcher
from parc.compiler.placement.score_placement import placement_scorer, step_seconds_on_hosts
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.search.enumerate_layouts import micro_batch_choices, recompute_levels
from parc.compiler.search.explain_oversized import OVERSIZED
from parc.compiler.search.filter_layouts import LayoutFilter
from parc.compiler.search.layout_space import LayoutSpace
from parc.compiler.search.survivors import Survivor, fastest_first

GIB = 2**30
FEW = 0.02
"""Share of layouts that fit, of those that violate no rule, below which memory decides the result
of a search (heuristic)."""
DISPATCH_LIBRARIES: tuple[Dispatcher, ...] = ("hybridep", "deepep")
"""Dispatchers that ``auto`` never chooses, because users must install them on every host."""
LIBRARY_FABRICS = ("infiniband", "roce")
"""Networks over which DeepEP and HybridEP exchange tokens: they write to remote memory with
NVSHMEM or verbs, which EFA and Slingshot lack (github.com/deepseek-ai/DeepEP, README)."""
EIGHT_BIT: tuple[Precision, ...] = ("fp8", "mxfp8")
"""Precisions that are suggested in place of bf16. PARC does not choose one for the user, because
the loss may differ; nvfp4 needs more care than a change of one setting."""
MIN_GAIN = 0.05
"""Smallest fraction of the step time for which a choice is mentioned (heuristic)."""
MAX_TRIED = 20
"""Number of layouts on other meshes that are tried, the fastest ones."""
MIN_GAIN_OF_8_BIT = 0.2
"""The same for a lower precision, which needs an experiment: its loss must be compared
(heuristic)."""


def advise_riskier_layout(cost_model: CostModel, plan: Plan, sink: Sink) -> None:
    """Report if a layout that is expected to fit would be at least 5 % faster (G05).

    The search keeps only layouts whose whole memory interval is below the limit. This check tries
    other micro-batch sizes and less recomputation on the mesh of the plan, because these are the
    choices that memory decides most often. If hardly any layout fits, memory decides the mesh too,
    so that all layouts are tried.
    """
    limit, now = plan.estimate.limit_bytes, plan.estimate.time.total_seconds
    # G02 reports plans whose own interval exceeds the limit.
    if plan.estimate.high_bytes > limit:
        return
    most = (1 - MIN_GAIN) * now
    same_mesh = _uncertain_and_faster(cost_model, _layouts_on_mesh(cost_model, plan), limit, most)
    found = [
        (step_seconds_on_hosts(cost_model, layout, plan.placement), layout) for layout in same_mesh
    ]
    if _is_memory_scarce(plan.search):
        added = placement_scorer(cost_model)
        fastest = islice(_layouts_expected_to_fit(cost_model), MAX_TRIED)
        others = _uncertain_and_faster(cost_model, fastest, limit, most)
        found += [
            (step_time(cost_model, layout).total_seconds + added(layout), layout)
            for layout in others
        ]
    seconds, layout = min(found, key=lambda one: one[0], default=(now, plan.layout))
    if seconds > most:
        return
    expected, high = peak_bytes(cost_model, layout), peak_bytes(cost_model, layout, HIGH)
    pins = f"to measure it, set these fields: {format_layout_fields(plan.problem, layout)}"
    finding = Finding(
        message=f"a layout that is {100 * (1 - seconds / now):.0f} % faster is expected to fit, "
        "but its memory is uncertain",
        label=f"{format_sizes(layout)}, micro-batch {layout.micro_batch}, "
        f"{describe_recompute(layout.recompute)}: "
        f"{seconds:.3g} s instead of {now:.3g} s per step; {expected / GIB:.1f} GiB expected, "
        f"80 % interval up to {high / GIB:.1f} GiB, the limit is {limit / GIB:.1f} GiB",
        help="; ".join(filter(None, (pins, describe_covering_headroom(plan, high)))),
        causes=(
            Cause(
                "goals.memory_headroom",
                f"{100 * plan.problem.goals.memory_headroom:.0f} % of the memory stays free as "
                "headroom",
            ),
        ),
    )
    sink.report("G05", finding, at="cluster")


def _is_memory_scarce(search: Search) -> bool:
    """Return True if hardly any layout of ``search`` that violates no rule fits into memory."""
    dropped = dict(search.dropped)
    fitting = search.enumerated - sum(dropped.values())
    return fitting < FEW * (fitting + dropped.get(OVERSIZED, 0))


def _layouts_expected_to_fit(cost_model: CostModel) -> Iterator[Layout]:
    """Yield valid layouts whose expected memory is within the limit, the fastest first.

    Layouts of variants of last resort, with other stage splits, and with partial recomputation are
    not among them.
    """
    problem, framework = cost_model.problem, cost_model.framework
    rules, limit_bytes = all_rules(problem, framework), memory_limit_bytes(cost_model)
    filters: dict[int, LayoutFilter] = {}
    survivors: list[Survivor] = []
    for index, variant in enumerate(framework.layout_variants(problem)):
        if not variant.last_resort and not variant.refines:
            space = LayoutSpace.for_variant(problem, framework, variant)
            one = LayoutFilter(cost_model, rules, limit_bytes, space, EXPECTED)
            one.filter_all_layouts()
            filters[index] = one
            survivors += one.survivors_of_variant(index)
    for row in fastest_first(filters, survivors, lambda _: 0):
        yield filters[row.variant].build_layout(row.point)


def _uncertain_and_faster(
    cost_model: CostModel, layouts: Iterable[Layout], limit_bytes: float, most_seconds: float
) -> Iterator[Layout]:
    """Yield the layouts whose memory is uncertain and whose step takes at most ``most_seconds``.

    The memory is uncertain if ``limit_bytes`` is inside the upper half of its interval. The step
    time is that without waits for shared links.
    """
    for layout in layouts:
        if (
            peak_bytes(cost_model, layout) <= limit_bytes < peak_bytes(cost_model, layout, HIGH)
            and step_time(cost_model, layout).total_seconds <= most_seconds
        ):
            yield layout


def _layouts_on_mesh(cost_model: CostModel, plan: Plan) -> Iterator[Layout]:
    """Yield valid layouts that differ from the plan in micro-batch size or recomputation."""
    problem, framework = cost_model.problem, cost_model.framework
    rules = all_rules(problem, framework)
    for size in micro_batch_choices(problem, plan.layout.dp):
        for level in recompute_levels(problem, framework):
            layout = replace(plan.layout, micro_batch=size, recompute=level)
            if not any(rule.broken(problem, layout) for rule in rules):
                yield layout


def advise_dispatch_library(cost_model: CostModel, plan: Plan, sink: Sink) -> None:
    """Report that DeepEP or HybridEP would make the step at least 5 % shorter (M16)."""
    problem, layout = plan.problem, plan.layout
    # The user decided on an explicit dispatcher, so no advice is given.
    if problem.job.moe_dispatcher != "auto" or layout.ep == 1:
        return
    if not uses_spec_field(problem.framework, "job.moe_dispatcher"):
        return
    now = plan.estimate.time.total_seconds
    offers = (
        (
            step_seconds_on_hosts(
                cost_model_for(other, cost_model.framework), layout, plan.placement
            ),
            other,
        )
        for other in _problems_with_library(cost_model, plan)
    )
    seconds, best = min(offers, key=lambda offer: offer[0], default=(now, problem))
    if seconds > (1 - MIN_GAIN) * now:
        return
    name = best.job.moe_dispatcher
    finding = Finding(
        message=f"{name} would dispatch tokens to experts faster than all-to-all",
        label=f"{seconds:.3g} s per step instead of {now:.3g} s with this layout, "
        f"{100 * (1 - seconds / now):.0f} % less",
        help=f"{name} must be installed on every host; to turn off this advice, "
        "set moe_dispatcher to alltoall",
        fix=f"job.moe_dispatcher: {name}",
    )
    sink.report("M16", finding, at="job")


def advise_lower_precision(cost_model: CostModel, plan: Plan, sink: Sink) -> None:
    """Report that matrix multiplications in 8 bit would make the step at least 20 % shorter (G12).

    Nothing is reported if the spec sets the precision, because it affects the training itself.
    """
    problem, layout = plan.problem, plan.layout
    if problem.job.precision != "bf16" or sink.positions.is_path_in_spec("job.precision"):
        return
    if not uses_spec_field(problem.framework, "job.precision"):
        return
    now, offers = plan.estimate.time.total_seconds, list[tuple[float, Precision]]()
    for precision in EIGHT_BIT:
        other = replace(problem, job=replace(problem.job, precision=precision))
        rules = all_rules(other, cost_model.framework)
        if precision in problem.cluster.precisions and not any(
            rule.broken(other, layout) for rule in rules
        ):
            lower = cost_model_for(other, cost_model.framework)
            if peak_bytes(lower, layout, HIGH) <= plan.estimate.limit_bytes:
                offers.append((step_seconds_on_hosts(lower, layout, plan.placement), precision))
    seconds, best = min(offers, default=(now, problem.job.precision))
    if seconds > (1 - MIN_GAIN_OF_8_BIT) * now:
        return
    finding = Finding(
        message=f"{best} would make a step {100 * (1 - seconds / now):.0f} % shorter than bf16",
        label=f"{seconds:.3g} s per step instead of {now:.3g} s with this layout",
        help="8-bit operands may affect convergence; to turn off this advice, set job.precision "
        "to bf16",
        fix=f"job.precision: {best}",
    )
    sink.report("G12", finding, at="job")


def _problems_with_library(cost_model: CostModel, plan: Plan) -> Iterator[Problem]:
    """Yield a copy of the problem for each dispatch library that can be used.

    The framework, the GPUs and the network must support the library.
    """
    problem = plan.problem
    spans_hosts = cost_model.group_spans(plan.layout).ep.domains > 1
    if spans_hosts and problem.cluster.fabric.kind not in LIBRARY_FABRICS:
        return
    for name in DISPATCH_LIBRARIES:
        other = replace(problem, job=replace(problem.job, moe_dispatcher=name))
        # The framework rejects a library that its version or the GPU generation does not support.
        rules = cost_model.framework.rules(other)
        if not any(rule.broken(other, plan.layout) for rule in rules):
            yield other
