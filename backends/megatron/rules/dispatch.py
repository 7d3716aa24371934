"""What dispatch of tokens to experts asks of the GPU, and its overlap of the layout."""

from __future__ import annotations

from parc.backends.megatron.rules.recompute import listed_words
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule

DEEPEP_DOMAIN = 8
"""GPUs of the largest NVLink domain that DeepEP addresses; HybridEP also takes an NVL72."""
AMPERE = (8, 0)


def _backends(problem: Problem) -> tuple[str, ...]:
    """Dispatchers that run on the cluster."""
    cluster = problem.cluster
    if cluster.gpu.vendor != "nvidia" or cluster.gpu.compute_capability < AMPERE:
        return ("alltoall",)
    if cluster.node.nvlink_domain > DEEPEP_DOMAIN:
        return ("alltoall", "hybridep")
    return ("alltoall", "deepep", "hybridep")


def _violates_dispatcher(problem: Problem, layout: Layout) -> bool:
    return problem.job.sends_once and problem.job.moe_dispatcher not in _backends(problem)


def _explain_dispatcher(problem: Problem, layout: Layout) -> Finding:
    name, good = problem.job.moe_dispatcher, _backends(problem)
    domain = problem.cluster.node.nvlink_domain
    return Finding(
        message=f"{name} does not run on {problem.cluster.gpu.name}",
        label=f"NVLink domain of {domain}, {name} takes at most {DEEPEP_DOMAIN}"
        if len(good) > 1
        else f"{name} needs an NVIDIA GPU of compute capability 8.0 or newer",
        help=f"legal dispatchers: {', '.join(good)}",
        fix=f"job.moe_dispatcher: {good[-1]}",
        causes=(Cause("cluster", "the GPUs come from here"),),
    )


def _obstacle(problem: Problem, layout: Layout) -> tuple[str, str]:
    """(what stands against overlap, what is legal instead); empty where nothing does."""
    recompute = layout.recompute
    if layout.pp > 1 and layout.vpp == 1:
        return f"pp {layout.pp} with vpp 1", "pp 1, or vpp above 1"
    if recompute.granularity == "full":
        return "full recompute", "recompute none or selective"
    if "moe" in recompute.modules:
        modules = listed_words(recompute.modules)
        return f"recompute of {modules}", "modules without moe, such as [moe_act]"
    if problem.model.pattern:
        return "a pattern of layers", "a model without model.pattern"
    if problem.model.mtp_layers > 1:
        return f"{problem.model.mtp_layers} MTP layers", "one MTP layer"
    return "", ""


def _violates_dispatch_overlap(problem: Problem, layout: Layout) -> bool:
    return problem.job.moe_overlap and layout.ep > 1 and bool(_obstacle(problem, layout)[0])


def _explain_dispatch_overlap(problem: Problem, layout: Layout) -> Finding:
    obstacle, legal = _obstacle(problem, layout)
    return Finding(
        message=f"dispatch cannot overlap with computation under {obstacle}",
        label=f"moe_overlap with ep {layout.ep} and {obstacle}",
        help=f"legal with moe_overlap: {legal}",
        fix="job.moe_overlap: false",
        causes=(Cause("job.moe_overlap", "overlap is asked for here"),),
    )


DISPATCH_RULES = (
    Rule("M05", ("job.moe_dispatcher", "cluster"), _violates_dispatcher, _explain_dispatcher, ()),
    Rule(
        "P15",
        ("layout.vpp", "layout.recompute", "layout.pp", "job.moe_overlap"),
        _violates_dispatch_overlap,
        _explain_dispatch_overlap,
        ("ep", "pp", "vpp", "recompute"),
    ),
)
"""Asked where the model has experts."""
