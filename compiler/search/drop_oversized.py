"""Drop layouts that do not fit; where none fits, say by how much and what would help most."""

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
    """Report the layout that misses the limit by the least, with its largest terms.

    ``dropped``: layouts that a rule dropped before they were weighed, by code.
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
            f"on pipeline rank {fullest.stage}, {limit_bytes / 1e9:.1f} GB are allowed"
        ),
        label=f"{degrees}, micro-batch {layout.micro_batch}, recompute "
        f"{layout.recompute.granularity}: {_largest(fullest)}",
        help=_remedy(fullest, layout) + _unweighed(dropped),
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
    """(title, bytes), largest first."""
    rows = [
        (term.title, getattr(stage, name)) for name, term in TERMS.items() if term.unit == "bytes"
    ]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def _largest(stage: StageMemory) -> str:
    """The three largest terms."""
    return ", ".join(f"{title} {nbytes / 1e9:.1f} GB" for title, nbytes in terms_of(stage)[:3])


def _unweighed(dropped: Mapping[str, int]) -> str:
    """The rule that kept most layouts from being weighed, if any did."""
    rules = [code for code in dropped if code not in (OVERSIZED, "recompute") and dropped[code] > 0]
    if not rules:
        return ""
    code = max(rules, key=lambda one: (dropped[one], one))
    return f"; {dropped[code]:,} more layouts break PARC-{code} ({code_title(code)})"


def _remedy(stage: StageMemory, layout: Layout) -> str:
    """What shrinks the largest term."""
    whole = layout.zero_stage == 0 and layout.dp > 1
    state = "every replica keeps all of it (zero_stage 0): shard it, or more tp or pp"
    remedies = {
        "weights": "more tp, pp or ep (unpin them), or more GPUs",
        "gradients": "more tp, pp or ep (unpin them), or more GPUs",
        "optimizer state": state if whole else "more GPUs: the optimizer is sharded over dp x cp",
        "activations": "recompute: full, a smaller micro_batch, or more cp",
        "logits and loss": "more tp, or a smaller micro_batch",
    }
    title = terms_of(stage)[0][0]
    return remedies.get(title, "more GPUs")
