"""Finding for a search in which no layout fits into memory: by how much, and what helps most."""

from __future__ import annotations

from collections.abc import Mapping

from parc.compiler.cost.memory.peak import stage_memory
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.terms import TERMS
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.codes import code_title
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.ir import Layout, StageMemory

GIB = 2**30

OVERSIZED = "R17"
"""Diagnostic code under which layouts that do not fit into memory are counted."""


def explain_oversized(
    cost_model: CostModel,
    layout: Layout,
    dropped: Mapping[str, int],
    sink: Sink,
    *,
    which: str = "the smallest layout",
) -> None:
    """Report that no layout fits into memory (R17), and how much memory ``layout`` needs.

    ``dropped`` maps a diagnostic code to the number of layouts that were rejected for this reason.
    The message of the finding calls ``layout`` by the phrase ``which``.
    """
    problem, limit_bytes = cost_model.problem, memory_limit_bytes(cost_model)
    fullest = max(
        (
            stage_memory(cost_model, layout, kind.load, kind.first)
            for kind in cost_model.equal_stage_groups(layout.split)
        ),
        key=lambda stage: stage.total_bytes,
    )
    need, gpu = fullest.total_bytes, problem.cluster.gpu
    degrees = f"tp {layout.tp}, cp {layout.cp}, pp {layout.pp}, ep {layout.ep}, dp {layout.dp}"
    finding = Finding(
        message=(
            f"{problem.model.name} does not fit into memory: {which} needs "
            f"{need / GIB:.1f} GiB per GPU on pipeline stage {fullest.stage}, "
            f"the limit is {limit_bytes / GIB:.1f} GiB"
        ),
        label=f"{degrees}, micro-batch {layout.micro_batch}, recompute "
        f"{layout.recompute.granularity}: {_format_largest_terms(fullest)}",
        help=_suggest_remedy(fullest, layout) + _name_most_violated_rule(dropped),
        causes=(
            Cause(
                "goals.memory_headroom",
                f"{gpu.name} has {gpu.memory_bytes / GIB:.1f} GiB, of which "
                f"{100 * problem.goals.memory_headroom:.0f} % stay free as headroom",
            ),
        ),
    )
    at = "layout" if sink.positions.is_path_in_spec("layout") else "cluster"
    sink.report(OVERSIZED, finding, at=at)


def memory_terms(stage: StageMemory) -> list[tuple[str, float]]:
    """Return (title, bytes) of each memory term of a pipeline stage, largest first."""
    rows = [
        (term.title, getattr(stage, name)) for name, term in TERMS.items() if term.unit == "bytes"
    ]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def _format_largest_terms(stage: StageMemory) -> str:
    """Return the three largest memory terms of a pipeline stage as text."""
    return ", ".join(f"{title} {nbytes / GIB:.1f} GiB" for title, nbytes in memory_terms(stage)[:3])


def _name_most_violated_rule(dropped: Mapping[str, int]) -> str:
    """Return a clause for a help text that names the rule that rejected the most layouts.

    Some of these layouts might need less memory, but their memory was not estimated. Returns "" if
    no rule rejected a layout.
    """
    # Layouts that are oversized or were replaced by a sibling violate no rule.
    rules = [code for code in dropped if code not in (OVERSIZED, "recompute") and dropped[code] > 0]
    if not rules:
        return ""
    code = max(rules, key=lambda one: (dropped[one], one))
    return f"; {dropped[code]:,} other layouts violate PARC-{code} ({code_title(code)})"


def _suggest_remedy(stage: StageMemory, layout: Layout) -> str:
    """Return advice on how to reduce the largest memory term of ``stage``."""
    whole = layout.zero_stage == 0 and layout.dp > 1
    state = (
        "with zero_stage 0 each replica stores all optimizer state: increase zero_stage, tp or pp"
    )
    remedies = {
        "weights": "use larger tp, pp or ep, or more GPUs",
        "gradients": "use larger tp, pp or ep, or more GPUs",
        "optimizer state": state
        if whole
        else "use more GPUs: the optimizer state is sharded over dp x cp ranks",
        "activations": "use recompute: full, a smaller micro_batch, or a larger cp",
        "logits and loss": "use a larger tp, or a smaller micro_batch",
    }
    title = memory_terms(stage)[0][0]
    return remedies.get(title, "use more GPUs")
