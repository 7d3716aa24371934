"""Rule on layers and steps that are captured in CUDA graphs (R21)."""

from __future__ import annotations

from parc.backends.megatron.graphs import captures_step, graph_conflict
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule


def _violates_graphs(problem: Problem, layout: Layout) -> bool:
    return bool(graph_conflict(problem, layout)[0])


def _explain_graphs(problem: Problem, layout: Layout) -> Finding:
    conflict, valid_settings = graph_conflict(problem, layout)
    whole = captures_step(layout)
    what = "a step in one CUDA graph" if whole else "layers in CUDA graphs"
    value = "full_iteration" if whole else "true"
    return Finding(
        message=f"Megatron cannot capture {what}: the plan has {conflict}",
        label=f"capturing {what} does not work with this setting",
        help=f"valid with cuda_graphs {value}: {valid_settings}",
        fix="layout.cuda_graphs: false",
        causes=(Cause("layout.cuda_graphs", f"cuda_graphs is {value}"),),
    )


GRAPH_RULES = (
    Rule(
        "R21",
        (
            *("layout.recompute", "layout.offload.activations", "job.moe_overlap", "job.precision"),
            *("layout.pp", "launch.omit", "layout.cuda_graphs"),
        ),
        _violates_graphs,
        _explain_graphs,
        ("cuda_graphs", "recompute", "offload", "ep", "pp", "vpp"),
    ),
)
