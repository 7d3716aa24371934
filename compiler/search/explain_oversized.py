"""Finding for a search in which no layout fits: by how much, and what would help most."""

from __future__ import annotations

from collections.abc import Mapping

from parc.compiler.cost.memory.peak import stage_memory
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.step.terms import TERMS
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.codes import code_title
from parc.compiler.ir import Layout, StageMemory

OVERSIZED = "R17"
"""Code under which layouts that do not fit are counted."""


def explain_oversized(
    pricing: Pricing, layout: Layout, limit_bytes: float, dropped: Mapping[str, int], sink: Sink
) -> None:
    """Report the smallest layout, with its largest memory terms.

    ``dropped``: number of layouts that a rule dropped before their memory was estimated, by code.
    """
    problem = pricing.problem
    fullest = max(
        (
            stage_memory(pricing, layout, kind.load, kind.first)
            for kind in pricing.classes(layout.split)
        ),
        key=lambda stage: stage.total_bytes,
    )
    need, gpu = fullest.total_bytes, problem.cluster.gpu
    degrees = f"tp {layout.tp}, cp {layout.cp}, pp {layout.pp}, ep {layout.ep}, dp {layout.dp}"
    finding = Finding(
        message=(
            f"{problem.model.name} does not fit: the smallest layout needs {need / 1e9:.1f} GB "
            f"on pipeline stage {fullest.stage}, the limit is {limit_bytes / 1e9:.1f} GB"
        ),
        label=f"{degrees}, micro-batch {layout.micro_batch}, recompute "
        f"{layout.recompute.granularity}: {_largest(fullest)}",
        help=_remedy(fullest, layout) + _dropped_first(dropped),
        causes=(
            Cause(
                "goals.memory_headroom",
                f"{gpu.name}: {gpu.memory_bytes / 1e9:.1f} GB less "
                f"{problem.goals.memory_headroom:.0%} headroom",
            ),
        ),
    )
    at = "layout" if sink.positions.is_written("layout") else "cluster"
    sink.report(OVERSIZED, finding, at=at)


def terms_of(stage: StageMemory) -> list[tuple[str, float]]:
    """Return (title, bytes) of all memory terms, largest first."""
    rows = [
        (term.title, getattr(stage, name)) for name, term in TERMS.items() if term.unit == "bytes"
    ]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def _largest(stage: StageMemory) -> str:
    """Format the three largest terms."""
    return ", ".join(f"{title} {nbytes / 1e9:.1f} GB" for title, nbytes in terms_of(stage)[:3])


def _dropped_first(dropped: Mapping[str, int]) -> str:
    """Name the rule that dropped the most layouts before their memory was estimated, if any."""
    rules = [code for code in dropped if code not in (OVERSIZED, "recompute") and dropped[code] > 0]
    if not rules:
        return ""
    code = max(rules, key=lambda one: (dropped[one], one))
    return f"; {dropped[code]:,} other layouts violate PARC-{code} ({code_title(code)})"


def _remedy(stage: StageMemory, layout: Layout) -> str:
    """Name the changes that reduce the largest term."""
    whole = layout.zero_stage == 0 and layout.dp > 1
    state = "each replica stores all of it (zero_stage 0): shard it, or use more tp or pp"
    remedies = {
        "weights": "more tp, pp or ep (unpin them), or more GPUs",
        "gradients": "more tp, pp or ep (unpin them), or more GPUs",
        "optimizer state": state
        if whole
        else "more GPUs: the optimizer state is sharded over dp x cp",
        "activations": "recompute: full, a smaller micro_batch, or more cp",
        "logits and loss": "more tp, or a smaller micro_batch",
    }
    title = terms_of(stage)[0][0]
    return remedies.get(title, "more GPUs")
