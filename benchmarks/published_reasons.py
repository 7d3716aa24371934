"""Layouts in words, and the reasons why two of them differ in predicted step time."""

from __future__ import annotations

from benchmarks.published_rows import Comparison
from parc.compiler.ir import Estimate, Layout, Plan

NAMED_SHARE = 0.15
"""Share of the whole difference from which a term is named."""
TERM_CHOICES = {
    # term of the step time: (words for it, choices that affect it)
    "compute_seconds": ("compute", ("micro_batch", "tp", "cp", "stage split")),
    "recompute_seconds": ("recompute", ("recompute",)),
    "tp_seconds": ("tensor parallelism", ("tp", "cp", "micro_batch")),
    "cp_seconds": ("context parallelism", ("cp",)),
    "ep_seconds": ("expert dispatch", ("ep", "etp", "tp")),
    "pp_seconds": ("pipeline messages", ("pp", "vpp", "micro-batches")),
    "bubble_seconds": ("pipeline bubble", ("pp", "vpp", "micro-batches", "recompute")),
    "dp_seconds": (
        "gradient and parameter traffic",
        ("dp", "ep", "pp", "zero_stage", "micro-batches"),
    ),
    "optimizer_seconds": ("optimizer step", ("dp", "zero_stage")),
    "placement_seconds": ("placement on hosts", ("tp", "pp", "dp", "ep")),
}


def format_layout(layout: Layout) -> str:
    """Format ``tp8 pp16 vpp4 dp128 mb1``: degrees above 1, and the micro-batch size."""
    degrees = [f"{name}{getattr(layout, name)}" for name in ("tp", "cp", "pp", "vpp", "dp", "ep")]
    shown = [word for word in degrees if word.rstrip("0123456789") + "1" != word]
    if layout.ep > 1 and layout.etp > 1:
        shown.append(f"etp{layout.etp}")
    return " ".join([*shown, f"mb{layout.micro_batch}", *_recompute_words(layout)])


def reason(comparison: Comparison) -> str:
    """Return a sentence that names the terms in which one of the two layouts needs more time."""
    pick, layout, estimate = comparison.pick, comparison.layout, comparison.estimate
    if pick is None or layout is None or estimate is None:
        return "; ".join(comparison.rule_errors)
    percent = 100 * comparison.difference
    slower = "slower" if percent > 0 else "faster"
    terms = _largest_terms(comparison, pick, layout, estimate)
    memory = "" if comparison.fits else f"; {_memory_excess(estimate, pick)}"
    return f"published is {abs(percent):.1f} % {slower}: {', '.join(terms)}{memory}"


def _largest_terms(
    comparison: Comparison, pick: Plan, layout: Layout, estimate: Estimate
) -> list[str]:
    """Return the terms that cause most of the difference, largest first, with the choices behind
    them."""
    ours = pick.estimate.time
    total = estimate.time.total_seconds - ours.total_seconds
    sign = 1 if total > 0 else -1
    gains = {
        name: sign * (getattr(estimate.time, name) - getattr(ours, name)) for name in TERM_CHOICES
    }
    batch = comparison.row.global_batch
    words = []
    for name, gain in sorted(gains.items(), key=lambda item: -item[1])[:3]:
        if gain < NAMED_SHARE * abs(total):
            break
        seconds = f"{getattr(estimate.time, name):.3g} s vs {getattr(ours, name):.3g} s"
        changed = _differing_choices(TERM_CHOICES[name][1], layout, pick.layout, batch)
        words.append(f"{TERM_CHOICES[name][0]} {seconds}" + (f" ({changed})" if changed else ""))
    return words


def _differing_choices(
    choices: tuple[str, ...], theirs: Layout, ours: Layout, global_batch: int
) -> str:
    """Return the differing choices as ``pp 16 vs 32``: published vs picked."""
    pairs = [
        (
            choice,
            _choice_value(theirs, choice, global_batch),
            _choice_value(ours, choice, global_batch),
        )
        for choice in choices
    ]
    return ", ".join(f"{choice} {old} vs {new}" for choice, old, new in pairs if old != new)


def _choice_value(layout: Layout, choice: str, global_batch: int) -> str:
    if choice == "micro-batches":
        return str(layout.micro_batches(global_batch))
    if choice == "recompute":
        return " ".join(_recompute_words(layout)).removeprefix("recompute ") or "none"
    if choice == "stage split":
        stages = [layout.split.stage_layers(stage) for stage in range(layout.pp)]
        return f"max {max(stages)} layers"
    return str(getattr(layout, choice))


def _recompute_words(layout: Layout) -> list[str]:
    recompute = layout.recompute
    if recompute.granularity == "none":
        return []
    if recompute.granularity == "selective":
        return [f"recompute {'+'.join(recompute.modules)}"]
    return [f"recompute full {recompute.method} {recompute.layers}"]


def _memory_excess(estimate: Estimate, pick: Plan) -> str:
    peak, limit = estimate.peak, pick.problem.cluster.gpu.memory_bytes
    return (
        f"it is predicted not to fit: {peak.low_bytes / 1e9:.0f} to "
        f"{peak.high_bytes / 1e9:.0f} GB, limit {limit / 1e9:.0f} GB"
    )
