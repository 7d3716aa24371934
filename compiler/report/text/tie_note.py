"""Note on layouts that are predicted to be faster than the chosen one, but tie with it.

The search chooses the simplest of the layouts whose step times differ by at most ``goals.tie``.
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.compiler.ir import Candidate, Layout, Plan
from parc.compiler.report.formatting import format_percent
from parc.compiler.report.text.layout_text import format_recompute

AXES = ("tp", "cp", "pp", "ep")
LEAST_GAIN = 0.0005
"""Smallest gain that is mentioned; a smaller one would be printed as 0.0 %."""
FORMS = ("even", "counted", "first-last", "string")
"""Forms of a stage split, simplest first."""
SIZES = ("vpp", "cp", "pp", "tp", "ep", "etp")
"""Sizes in the order in which the search compares them, see ``simplicity_key``."""


def tie_note(plan: Plan) -> str:
    """Return why layouts that are predicted to be faster than the chosen one were not chosen.

    The text is empty if no listed layout is faster.
    """
    faster = _faster_candidates(plan)
    if not faster:
        return ""
    rank, fastest = _fastest_candidate(faster)
    most = "up to " if len(faster) > 1 else ""
    return (
        f"{_format_ranks([rank for rank, _ in faster])} predicted to be {most}"
        f"{_format_gain(plan, fastest)} faster, which counts as a tie "
        f"(goals.tie: {_format_tie(plan)}). "
        f"Rank 1 is simpler than rank {rank}: "
        f"{simplest_difference(plan.search.ranked[0].layout, fastest.layout)}."
    )


def tie_summary(plan: Plan) -> str:
    """Return ``tie_note`` as a phrase for the summary of ``parc compile``; empty without ties."""
    faster = _faster_candidates(plan)
    if not faster:
        return ""
    _, fastest = _fastest_candidate(faster)
    return (
        f"the simplest layout within {_format_tie(plan)} of the fastest (goals.tie); "
        f"the fastest would save {_format_gain(plan, fastest)}"
    )


def _fastest_candidate(ranked: list[tuple[int, Candidate]]) -> tuple[int, Candidate]:
    """Return the (rank, candidate) with the shortest step."""
    return min(ranked, key=lambda pair: pair[1].step_seconds)


def _format_gain(plan: Plan, faster: Candidate) -> str:
    """Return by how many per cent the step of ``faster`` is shorter than the step of the plan."""
    chosen = plan.search.ranked[0]
    return format_percent(1 - faster.step_seconds / chosen.step_seconds)


def _format_tie(plan: Plan) -> str:
    """Return ``goals.tie`` as text, such as ``3 %``."""
    return f"{100 * plan.problem.goals.tie:.3g} %"


def _faster_candidates(plan: Plan) -> list[tuple[int, Candidate]]:
    """Return (rank, candidate) of the listed candidates that are faster than the chosen one.

    A candidate that would be printed as 0.0 % faster is left out.
    If the goal is fewest-gpus, only candidates with as many GPUs as the chosen one are compared.
    """
    chosen = plan.search.ranked[0]
    same_gpus = plan.problem.goals.maximize == "fewest-gpus"
    return [
        (rank, one)
        for rank, one in enumerate(plan.search.ranked, start=1)
        if one.step_seconds < (1 - LEAST_GAIN) * chosen.step_seconds
        and (not same_gpus or one.layout.world == chosen.layout.world)
    ]


def _format_ranks(ranks: list[int]) -> str:
    """Return ranks as the subject of a sentence: ``Ranks 2 to 10 are``."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]} is"
    if len(ranks) == 2:
        return f"Ranks {ranks[0]} and {ranks[1]} are"
    if ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"Ranks {ranks[0]} to {ranks[-1]} are"
    return f"{len(ranks)} of the candidates are"


def simplest_difference(chosen: Layout, other: Layout) -> str:
    """Return the first property by which ``chosen`` is simpler than ``other``.

    An example is ``fewer parallel axes (tp, pp instead of tp, cp, pp)``.
    """
    return next(_simpler_properties(chosen, other), "it has a larger micro-batch")


def _format_state(layout: Layout) -> str:
    """Return how the layout shards and offloads its state, such as ``ZeRO-3 in groups``."""
    stage = f"ZeRO-{layout.zero_stage}" + (" in groups" if layout.dp_replicate > 1 else "")
    away = {"optimizer": layout.offload.optimizer, "weights": layout.offload.parameters}
    return ", ".join((stage, *(f"{part} on {to}" for part, to in away.items() if to != "none")))


def _simpler_properties(chosen: Layout, other: Layout) -> Iterator[str]:
    """Yield the properties in which ``chosen`` differs from ``other``, most important first."""
    split, others = (
        ", ".join(axis for axis in AXES if getattr(layout, axis) > 1) or "only dp"
        for layout in (chosen, other)
    )
    if split.count(",") != others.count(","):
        yield f"it has fewer parallel axes ({split} instead of {others})"
    state, other_state = (_format_state(layout) for layout in (chosen, other))
    if state != other_state:
        yield f"it stores its state with {state} instead of {other_state}"
    first, second = chosen.recompute, other.recompute
    recompute = f"{format_recompute(first)} instead of {format_recompute(second)}"
    if second.method == "block" and first.method != "block":
        yield f"its recompute setting is simpler ({recompute})"
    elif first.granularity != second.granularity:
        yield f"it recomputes less ({recompute})"
    own, others_form = chosen.split.form, other.split.form
    if FORMS.index(own) < FORMS.index(others_form):
        yield f"its stage split is simpler ({own} instead of {others_form})"
    for name in SIZES:
        size, larger = getattr(chosen, name), getattr(other, name)
        if size != larger:
            yield f"it has a smaller {name} ({size} instead of {larger})"
