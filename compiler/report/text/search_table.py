"""Result of a layout search: ranked candidates, rejected layouts per rule, and a note on ties.

The note lists layouts that are predicted to be faster than the chosen one, but tie with it: the
search chooses the simplest of the layouts whose step times differ by at most ``goals.tie``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from parc.compiler.diagnostics.codes import code_title
from parc.compiler.evaluate.layout_fields import format_offload
from parc.compiler.ir import AnyPlan, Candidate, Layout, Plan, ServingPlan
from parc.compiler.report.formatting import (
    GIB,
    format_percent,
    format_seconds,
    round_to_six_digits,
    table,
)
from parc.compiler.report.text.candidate_columns import (
    EXPERT_SIZES,
    TRAINING_COLUMNS,
    candidate_count,
    shown_columns,
)
from parc.compiler.report.text.layout_text import format_recompute
from parc.compiler.report.text.pools_text import documents_of_pools, texts_of_pools
from parc.compiler.report.text.serving_tables import serving_candidate_records, serving_search_text

OTHER_REASONS = {
    "recompute": "The same layout also fits with less recompute",
    "ttft": "time to first token exceeds goals.ttft",
    "tpot": "time per output token exceeds goals.tpot",
    "e2e": "time of a request exceeds goals.e2e",
    "request_rate": "requests arrive faster than the service completes them",
}
"""Reason that has no diagnostic code, and for which a layout is rejected -> title of this
reason."""
REASON_TITLES = {"R17": "Does not fit in memory, or not at the high end of its interval"}
"""Diagnostic code -> title for the layouts that the search drops under it, if this differs from the
title of the diagnostic."""
DEGREES = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch")
AXES = ("tp", "cp", "pp", "ep")
LEAST_GAIN = 0.0005
"""Smallest gain that is mentioned; a smaller one would be printed as 0.0 %."""
FORMS = ("even", "counted", "first-last", "string")
"""Forms of a stage split, simplest first."""
SIZES = ("vpp", "cp", "pp", "tp", "ep", "etp")
"""Sizes in the order in which the search compares them, see ``simplicity_key``."""


def search_text(plan: AnyPlan, top: int) -> str:
    """Return two tables: the best ``top`` candidates, and the rules that rejected layouts."""
    if isinstance(plan, ServingPlan):
        return texts_of_pools(
            plan,
            lambda one: serving_search_text(one, top) + rejected_layouts_text(one.search.dropped),
        )
    head, rows = candidate_table(plan, top)
    note = tie_note(plan)
    shown = f"{candidate_count(plan)}\n\n{table(head, rows)}" + (f"{note}\n" if note else "")
    return shown + rejected_layouts_text(plan.search.dropped)


def search_document(plan: AnyPlan, top: int) -> dict[str, Any]:
    """Return the result of the search as JSON types, with the best ``top`` candidates."""
    if isinstance(plan, ServingPlan) and plan.pair is not None:
        return documents_of_pools(plan, plan.pair, lambda one: search_document(one, top))
    return {
        "format": 1,
        "name": plan.problem.name,
        "enumerated": plan.search.enumerated,
        "dropped": [
            dict(zip(("code", "title"), rejection_reason(code), strict=True), count=count)
            for code, count in plan.search.dropped
        ],
        "candidates": _candidate_records(plan, top),
    }


def search_csv(plan: AnyPlan, top: int) -> str:
    """Return the best ``top`` candidates as CSV text, one row per candidate."""
    records = _candidate_records(plan, top)
    out = io.StringIO()
    # An empty search still gives a valid CSV file with a head.
    names = list(records[0]) if records else ["rank"]
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _candidate_records(plan: AnyPlan, top: int) -> list[dict[str, Any]]:
    if isinstance(plan, ServingPlan):
        named = plan.pair is not None
        return [
            {**({"pool": one.problem.service.setup.pool} if named else {}), **row}
            for one in plan.pools
            for row in serving_candidate_records(one, top)
        ]
    best = enumerate(plan.search.ranked[:top], start=1)
    return [_candidate_record(rank, one) for rank, one in best]


def candidate_table(plan: Plan, top: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return (head, rows) of a table with the best ``top`` candidates.

    The columns do not depend on ``top``: those of a layout are chosen by ``shown_columns``, without
    those on experts for a dense model. The column ``placement`` contains the part of the step that
    the placement of hosts adds; it is omitted if it is empty for all candidates.
    """
    ranked = plan.search.ranked
    skipped = EXPERT_SIZES if plan.problem.model.experts is None else ()
    columns = [
        one
        for one in shown_columns(TRAINING_COLUMNS, [candidate.layout for candidate in ranked])
        if one.name not in skipped
    ]
    placed = any(candidate.placed_seconds for candidate in ranked)
    head = ("rank", *(one.head for one in columns), "step", *(["placement"] if placed else []))
    rows = [
        (
            str(rank),
            *(one.cell(candidate.layout) for one in columns),
            *_time_cells(candidate, placed),
            "chosen" if rank == 1 else _format_slowdown(candidate, ranked[0]),
            f"{candidate.peak_bytes / GIB:.1f}",
            format_percent(candidate.mfu),
        )
        for rank, candidate in enumerate(ranked[:top], start=1)
    ]
    return (*head, "vs chosen", "memory GiB", "MFU"), rows


def _time_cells(candidate: Candidate, placed: bool) -> list[str]:
    """Return the step time, and if ``placed`` the part of it that the placement adds."""
    added = candidate.placed_seconds
    return [
        format_seconds(candidate.step_seconds),
        *([format_seconds(added) if added else "-"] if placed else []),
    ]


def _format_slowdown(candidate: Candidate, best: Candidate) -> str:
    """Return by how many percent the step is longer than that of ``best``, such as ``+2.9 %``."""
    slower = candidate.step_seconds / best.step_seconds - 1
    # Adding 0.0 turns -0.0 into 0.0.
    return f"{round(slower * 100, 1) + 0.0:+.1f} %"


def _candidate_record(rank: int, candidate: Candidate) -> dict[str, Any]:
    return {
        "rank": rank,
        **{one.name: one.value(candidate.layout) for one in TRAINING_COLUMNS},
        "step_seconds": round_to_six_digits(candidate.step_seconds),
        "placed_seconds": round_to_six_digits(candidate.placed_seconds),
        "peak_bytes": round_to_six_digits(candidate.peak_bytes),
        "mfu": round_to_six_digits(candidate.mfu),
    }


def rejected_layouts_text(dropped: tuple[tuple[str, int], ...]) -> str:
    """Return a table of rules and the number of layouts that each rule rejected.

    The text is empty if no layout was rejected.
    """
    if not dropped:
        return ""
    rows = [
        (*rejection_reason(code), f"{count:,}")
        for code, count in sorted(dropped, key=lambda pair: (-pair[1], pair[0]))
    ]
    return "\nRejected layouts, by the first rule that each one violates\n" + table(
        ("code", "rule", "layouts"), rows, left=2
    )


def rejection_reason(code: str) -> tuple[str, str]:
    """Return (code, title) of the reason ``code``, for which the search rejected a layout.

    A diagnostic code gets its prefix, such as ``PARC-D01``. A reason that is not a diagnostic code
    is returned unchanged.
    """
    if code in OTHER_REASONS:
        return code, OTHER_REASONS[code]
    title = REASON_TITLES.get(code)
    try:
        return f"PARC-{code}", title or code_title(code)
    except KeyError:
        return f"PARC-{code}", ""


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
    """Return by how many percent the step of ``faster`` is shorter than the step of the plan."""
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
    return ", ".join((stage, *format_offload(layout.offload)))


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
    if other.cuda_graphs and not chosen.cuda_graphs:
        yield "it needs no CUDA graphs"
    elif other.cuda_graphs == "full_iteration" != chosen.cuda_graphs:
        yield "it captures layers and not the whole step in CUDA graphs"
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
