"""Rule on layers that are captured in CUDA graphs (R21)."""

from __future__ import annotations

from parc.backends.megatron.graphs import graph_conflict
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule


def _violates_graphs(problem: Problem, layout: Layout) -> bool:
    return bool(graph_conflict(problem, layout)[0])


def _explain_graphs(problem: Problem, layout: Layout) -> Finding:
    conflict, valid_settings = graph_conflict(problem, layout)
    return Finding(
        message=f"Megatron cannot capture layers in CUDA graphs: the plan has {conflict}",
        label="CUDA graphs of layers do not work with this setting",
        help=f"valid with cuda_graphs: {valid_settings}",
        fix="layout.cuda_graphs: false",
        causes=(Cause("layout.cuda_graphs", "cuda_graphs is true"),),
    )


GRAPH_RULES = (
    Rule(
        "R21",
        ("layout.recompute", "layout.offload.activations", "job.moe_overlap", "layout.cuda_graphs"),
        _violates_graphs,
        _explain_graphs,
        ("cuda_graphs", "recompute", "offload", "ep"),
    ),
)
