"""Checks of the memory of a plan: of the GPUs, and of the hosts if state is offloaded to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parc.compiler.cost.memory.peak import HIGH, peak_bytes
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.gradients import largest_stage_parameters
from parc.compiler.cost.step.offload import activation_host_bytes, offloaded_host_bytes
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.evaluate.layout_fields import format_layout_fields, format_offload
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, Plan, Recompute, StageMemory
from parc.compiler.placement.score_placement import step_seconds_on_hosts
from parc.compiler.search.enumerate_layouts import recompute_levels

MAX_SHARE = 0.9
"""Largest fraction of host memory for offloaded state. The operating system, data loading and
pinned buffers need the remaining 10 %."""


def check_host_memory(cost_model: CostModel, plan: Plan, sink: Sink) -> None:
    """Report offload of state that needs more than 90 % of the host memory (R15).

    Any offload to host memory is reported if the size of the host memory is unknown.
    """
    node = plan.problem.cluster.node
    need = offloaded_host_bytes(
        cost_model, plan.layout, largest_stage_parameters(cost_model, plan.layout)
    ) + activation_host_bytes(cost_model, plan.layout)
    have = node.host_memory_bytes
    if need == 0 or (have is not None and need <= MAX_SHARE * have):
        return
    # If the search chose the offload, no line of the spec sets it.
    at = "layout.offload" if sink.positions.is_path_in_spec("layout.offload") else "cluster"
    problem = f"offload needs {need / 1e9:.0f} GB of memory per host"
    if have is None:
        finding = Finding(
            f"{problem}, but the host memory of {node.name} is unknown",
            label="offload needs 16 bytes per parameter for optimizer state and gradients, "
            "2 bytes for weights, and the saved activations of all micro-batches in flight",
            fix="cluster.node.host_memory: 2000GB",
        )
    else:
        finding = Finding(
            f"{problem}, but a host has {have / 1e9:.0f} GB",
            label=f"{need / 1e9:.0f} GB > {MAX_SHARE} x {have / 1e9:.0f} GB",
            help="use more hosts, so that each stores less, or set layout.offload to nvme, which "
            "uses local disks",
            causes=(Cause("cluster.node", f"{node.name} has {have / 1e9:.0f} GB of host memory"),),
        )
    sink.report("R15", finding, at=at)


GIB = 2**30


def check_memory(cost_model: CostModel, plan: Plan, sink: Sink) -> None:
    """Report if the limit is below the high end of the memory interval of a stage (G02).

    The search prefers layouts whose whole interval is below the limit, so no such layout satisfies
    the spec. The finding suggests more recomputation than the plan has, if this is enough.
    """
    limit = plan.estimate.limit_bytes
    peak = max(plan.estimate.memory, key=lambda stage: (stage.high_bytes, -stage.stage))
    if peak.high_bytes <= limit:
        return
    gpu, headroom = plan.problem.cluster.gpu, plan.problem.goals.memory_headroom
    finding = Finding(
        message=f"pipeline stage {peak.stage} needs {peak.low_bytes / GIB:.1f} to "
        f"{peak.high_bytes / GIB:.1f} GiB of memory (80 % interval){_compared(peak, limit)}",
        label=f"{peak.static_bytes / GIB:.1f} GiB for parameters and their state are almost exact, "
        f"{peak.dynamic_bytes / GIB:.1f} GiB for activations and buffers are estimated",
        help=_suggest_safer_layout(cost_model, plan, sink.positions.is_path_in_spec("layout")),
        causes=(
            Cause(
                "goals.memory_headroom",
                f"{gpu.name} has {gpu.memory_bytes / GIB:.1f} GiB, of which {100 * headroom:.0f} % "
                "stays free as headroom",
            ),
        ),
    )
    sink.report(
        "G02", finding, at="layout" if sink.positions.is_path_in_spec("layout") else "cluster"
    )


def _compared(peak: StageMemory, limit: float) -> str:
    """Return the end of a sentence: the limit, and whether the job probably exceeds it."""
    text = f"the limit is {limit / GIB:.1f} GiB"
    if peak.total_bytes <= limit:
        return f"; {text}"
    return (
        f" and {text}; the expected {peak.total_bytes / GIB:.1f} GiB exceeds it, so the job will "
        "probably run out of memory"
    )


def _suggest_safer_layout(cost_model: CostModel, plan: Plan, is_layout_set: bool) -> str:
    """Return a help text with the fastest layout whose whole interval is below the limit.

    The layout differs from the plan only by more recomputation, or is a variant of last resort.
    ``is_layout_set`` is True if the spec sets fields of ``layout``.
    """
    limit = plan.estimate.limit_bytes
    safe = [
        (step_seconds_on_hosts(cost_model, layout, plan.placement), index, layout)
        for index, layout in enumerate(_layouts_with_less_memory(cost_model, plan))
        if peak_bytes(cost_model, layout, HIGH) <= limit
    ]
    if not safe:
        headroom = describe_covering_headroom(plan, plan.estimate.high_bytes)
        fewer = "no layout of this spec is safer; use more GPUs"
        fewer += ", or set fewer fields of layout" * is_layout_set
        return "; ".join(filter(None, (fewer, headroom)))
    # On a tie, the index prefers less recomputation.
    seconds, _, layout = min(safe)
    slower = seconds / plan.estimate.time.total_seconds - 1
    high = peak_bytes(cost_model, layout, HIGH)
    changes = format_layout_fields(plan.problem, layout)
    cost = f"needs at most {high / GIB:.1f} GiB, step time {100 * slower:+.1f} %"
    state = [f"ZeRO-{layout.zero_stage}"] * (layout.zero_stage != plan.layout.zero_stage)
    state += format_offload(layout.offload)
    name = " with ".join([describe_recompute(layout.recompute), *state])
    return f"{name} {cost}; set these fields: {changes}"


def describe_covering_headroom(plan: Plan, high_bytes: float) -> str:
    """Return a clause with the largest ``goals.memory_headroom`` that allows ``high_bytes``.

    The headroom is rounded down to whole percent. If it were below 0, the clause is empty.
    """
    percent = int(100 * (1 - high_bytes / plan.problem.cluster.gpu.memory_bytes))
    allowed = high_bytes <= plan.problem.cluster.gpu.memory_bytes
    return f"goals.memory_headroom {percent / 100} covers its whole interval" if allowed else ""


def describe_recompute(recompute: Recompute) -> str:
    """Return granularity and modules of a recompute setting as text."""
    modules = "+".join(recompute.modules)
    return f"recompute {recompute.granularity}" + (f" {modules}" if modules else "")


def _layouts_with_less_memory(cost_model: CostModel, plan: Plan) -> Iterator[Layout]:
    """Yield valid copies of the plan's layout with more recomputation, least first.

    Then follow copies in the variants of last resort of the framework.
    """
    problem, framework, chosen = cost_model.problem, cost_model.framework, plan.layout.recompute
    levels, rules = recompute_levels(problem, framework), all_rules(problem, framework)
    later = levels[levels.index(chosen) :] if chosen in levels else (chosen,)
    layouts = [replace(plan.layout, recompute=level) for level in later[1:]]
    layouts += [
        replace(
            plan.layout, recompute=level, zero_stage=variant.zero_stage, offload=variant.offload
        )
        for variant in framework.layout_variants(problem)
        if variant.last_resort
        for level in later
    ]
    for layout in layouts:
        if not any(rule.broken(problem, layout) for rule in rules):
            yield layout
