"""Fields of ``layout.recompute`` that belong together, for every framework (R08)."""

from __future__ import annotations

from parc.compiler.diagnostics import Finding
from parc.compiler.diagnostics.wording import format_words
from parc.compiler.ir import Recompute


def has_contradictory_fields(recompute: Recompute) -> bool:
    """Return True if a field is missing for the granularity, or has no meaning with it."""
    if recompute.granularity == "full":
        return recompute.method is None or recompute.layers is None or bool(recompute.modules)
    if recompute.granularity == "none" and recompute.modules:
        return True
    return recompute.method is not None or recompute.layers is not None


def explain_contradictory_fields(recompute: Recompute) -> Finding:
    """Return the finding about fields for which ``has_contradictory_fields`` is True."""
    if recompute.granularity == "full":
        return Finding(
            message="full recompute requires a method and a number of layers, and no modules",
            label=f"method {recompute.method}, layers {recompute.layers}, "
            f"modules {format_words(recompute.modules)}",
            help="valid methods: block, uniform; valid layers: 1 to the layers of a chunk",
            fix="layout.recompute: {granularity: full, method: uniform, layers: 1}",
        )
    return Finding(
        message=f"{recompute.granularity} recompute accepts no method and no number of layers"
        + (", and no modules" if recompute.granularity == "none" else ""),
        label=f"method {recompute.method}, layers {recompute.layers}, "
        f"modules {format_words(recompute.modules)}",
        help="a valid setting is {granularity: selective, modules: [core_attn]}",
        fix=f"layout.recompute: {recompute.granularity}",
    )
