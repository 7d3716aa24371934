"""Rules on token dispatchers of experts (M05) and on overlapped dispatch (P15)."""

from __future__ import annotations

from parc.backends.megatron.capabilities import core_version
from parc.backends.shared.common_rules import Conflict, conflict_rule
from parc.backends.shared.versions import is_in_range
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import format_words
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule

DEEPEP_DOMAIN = 8
"""GPUs of the largest NVLink domain that DeepEP supports; HybridEP also supports an NVL72."""
AMPERE = (8, 0)
MTP_NEEDS_PP = "0.17"
"""Last version of Megatron-Core that overlaps the dispatch of an MTP layer only with pp above 1."""


def _supported_dispatchers(problem: Problem) -> tuple[str, ...]:
    """Return the token dispatchers that run on the GPUs of the cluster."""
    cluster = problem.cluster
    if cluster.gpu.vendor != "nvidia" or cluster.gpu.compute_capability < AMPERE:
        return ("alltoall",)
    # Megatron's documentation recommends DeepEP for NVLink domains of 8 GPUs, HybridEP for NVL72.
    if cluster.node.nvlink_domain > DEEPEP_DOMAIN:
        return ("alltoall", "hybridep")
    return ("alltoall", "deepep", "hybridep")


def _violates_dispatcher(problem: Problem, layout: Layout) -> bool:
    return (
        problem.job.deduplicates_dispatch
        and problem.job.moe_dispatcher not in _supported_dispatchers(problem)
    )


def _explain_dispatcher(problem: Problem, layout: Layout) -> Finding:
    name, good = problem.job.moe_dispatcher, _supported_dispatchers(problem)
    domain = problem.cluster.node.nvlink_domain
    return Finding(
        message=f"{name} does not run on {problem.cluster.gpu.name}",
        label=f"NVLink domain of {domain} GPUs, {name} supports at most {DEEPEP_DOMAIN}"
        if len(good) > 1
        else f"{name} requires an NVIDIA GPU of compute capability 8.0 or newer",
        help=f"valid dispatchers: {', '.join(good)}",
        fix=f"job.moe_dispatcher: {good[-1]}",
        causes=(Cause("cluster", f"the GPUs are {problem.cluster.gpu.name}"),),
    )


def _overlap_conflict(problem: Problem, layout: Layout) -> Conflict | None:
    """Return the setting that prevents overlapped dispatch; None if nothing does or it is off."""
    recompute = layout.recompute
    if not problem.job.moe_overlap or layout.ep == 1:
        return None
    # TransformerConfig.__post_init__ has the same conditions for
    # overlap_moe_expert_parallel_comm.
    if layout.pp > 1 and layout.vpp == 1:
        return Conflict(f"pp {layout.pp} with vpp 1", "pp 1, or vpp above 1")
    if recompute.granularity == "full":
        return Conflict("full recompute", "recompute none or selective")
    if "moe" in recompute.modules:
        modules = format_words(recompute.modules)
        return Conflict(
            f"recompute of {modules}", "recompute modules without moe, such as [moe_act]"
        )
    if problem.model.pattern:
        return Conflict("a layer pattern", "a model without model.pattern")
    if problem.model.mtp_layers > 1:
        return Conflict(f"{problem.model.mtp_layers} MTP layers", "one MTP layer")
    version = core_version(problem)
    if problem.model.mtp_layers and layout.pp == 1 and is_in_range(version, None, MTP_NEEDS_PP):
        conflict = f"an MTP layer without a pipeline in version {version}"
        return Conflict(conflict, "pp above 1, or version 0.18")
    return None


def _explain_dispatch_overlap(problem: Problem, layout: Layout, conflict: Conflict) -> Finding:
    return Finding(
        message=f"token dispatch cannot overlap with computation: the plan has {conflict.found}",
        label=f"moe_overlap with ep {layout.ep} and {conflict.found}",
        help=f"valid with moe_overlap: {conflict.valid}",
        fix="job.moe_overlap: false",
        causes=(Cause("job.moe_overlap", "moe_overlap is true"),),
    )


DISPATCH_RULES = (
    Rule("M05", ("job.moe_dispatcher", "cluster"), _violates_dispatcher, _explain_dispatcher, ()),
    conflict_rule(
        "P15",
        ("layout.vpp", "layout.recompute", "layout.pp", "job.moe_overlap"),
        _overlap_conflict,
        _explain_dispatch_overlap,
        ("ep", "pp", "vpp", "recompute"),
    ),
)
"""Rules on token dispatch, which apply only to models with experts."""
