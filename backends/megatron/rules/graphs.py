"""Rule on layers and steps that are captured in CUDA graphs (R21)."""

from __future__ import annotations

from parc.backends.megatron.graphs import captures_step, graph_conflict
from parc.backends.shared.common_rules import Conflict, conflict_rule
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem


def _explain_graphs(problem: Problem, layout: Layout, conflict: Conflict) -> Finding:
    whole = captures_step(layout)
    what = "a step in one CUDA graph" if whole else "layers in CUDA graphs"
    value = "full_iteration" if whole else "true"
    return Finding(
        message=f"Megatron cannot capture {what}: the plan has {conflict.found}",
        label=f"capturing {what} does not work with this setting",
        help=f"valid with cuda_graphs {value}: {conflict.valid}",
        fix="layout.cuda_graphs: false",
        causes=(Cause("layout.cuda_graphs", f"cuda_graphs is {value}"),),
    )


GRAPH_RULES = (
    conflict_rule(
        "R21",
        (
            *("layout.recompute", "layout.offload.activations", "job.moe_overlap", "job.precision"),
            *("layout.pp", "launch.omit", "layout.cuda_graphs"),
        ),
        graph_conflict,
        _explain_graphs,
        ("cuda_graphs", "recompute", "offload", "ep", "pp", "vpp"),
    ),
)
