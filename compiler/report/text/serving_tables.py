"""Tables of ``parc estimate`` and ``parc search`` for serving jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from parc.compiler.diagnostics.wording import format_count
from parc.compiler.evaluate.evaluate_service import SERVICE_TIE, simulate_service
from parc.compiler.ir import AnyProblem, ServingPlan
from parc.compiler.ir.serialize import as_json
from parc.compiler.ir.serving import Distribution, ServiceStatistics
from parc.compiler.ir.serving_goals import LatencyName, ServingGoals
from parc.compiler.ir.serving_plan import ServingCandidate
from parc.compiler.report.estimate_basis import basis_document, estimate_basis
from parc.compiler.report.formatting import (
    GIB,
    format_percent,
    format_quantity,
    format_seconds,
    format_three_digits,
    format_without_exponent,
    round_floats_in_tree,
    round_to_six_digits,
    table,
)
from parc.compiler.report.json.plan_json import serving_estimate
from parc.compiler.report.text.candidate_columns import (
    SERVING_COLUMNS,
    candidate_count,
    shown_columns,
)
from parc.compiler.report.text.layout_text import format_serving_layout

DEGREES = ("tp", "pcp", "pp", "dp", "ep", "dcp", "replicas")
TRADE_OFF_HEAD = ("tokens/s/GPU", "tokens/s/user", "ttft", "GPUs", *DEGREES, "")


def serving_estimate_text(plan: ServingPlan) -> str:
    """Return the tables of a serving estimate: memory, decode step, latency and throughput."""
    # vLLM divides this share of the device memory between weights, step and KV cache.
    budget = plan.problem.cluster.gpu.memory_bytes * plan.limits.gpu_memory_utilization
    parts = (
        f"{plan.problem.name}: {format_serving_layout(plan.layout)}\n",
        f"Memory per GPU in GiB, by pipeline stage (budget {budget / GIB:.2f})\n"
        + _memory_table(plan),
        *_decode_step_parts(plan),
        "Latency and throughput\n" + _latency_table(plan),
        *_simulation_parts(plan.estimate.simulated),
        f"Basis of the estimate: {estimate_basis(plan).text}\n",
        *filter(None, (format_calibration(plan.problem),)),
        "Formula of a term: parc explain TERM, for example parc explain tpot\n",
    )
    return "\n".join(parts)


def format_calibration(problem: AnyProblem) -> str:
    """Return a line with the number of calibrated parameters; empty if the number is zero."""
    count = len(problem.calibration)
    return f"{count} cost model parameters come from cluster.calibration\n" if count else ""


def _memory_table(plan: ServingPlan) -> str:
    rows = [
        (
            str(stage.stage),
            str(stage.layers),
            f"{stage.weights_bytes / GIB:.2f}",
            f"{stage.overhead_bytes / GIB:.2f}",
            f"{stage.cache_bytes / GIB:.2f}",
            f"{stage.block_bytes / plan.limits.block_tokens:,.0f}",
            f"{stage.blocks:,}",
            f"{stage.longest_bytes / GIB:.2f}",
        )
        for stage in plan.stages
    ]
    head = (
        "stage",
        "layers",
        "weights",
        "step",
        "cache",
        "B per token",
        "blocks",
        "longest request",
    )
    return table(head, rows)


def _decode_step_parts(plan: ServingPlan) -> tuple[str, ...]:
    """Return the table of a decode step; nothing for a prefill pool, which has no such step."""
    if not generates_answers(plan):
        return ()
    running = plan.estimate.running
    head = f"One decode step with {running:,.1f} running requests per engine\n"
    return (head + _decode_step_table(plan),)


def _decode_step_table(plan: ServingPlan) -> str:
    decode = plan.estimate.decode
    total = decode.total_seconds
    terms = [(field.name, getattr(decode, field.name)) for field in fields(decode)]
    rows = [
        (name, format_seconds(spent), format_percent(spent / total if total else 0.0))
        for name, spent in [*terms, ("total", total)]
        if spent or name != "draft"
    ]
    return table(("term", "time", "share"), rows)


def _latency_table(plan: ServingPlan) -> str:
    estimate, limits, goals = plan.estimate, plan.limits, plan.problem.goals
    unit, found = output_unit(plan), format_intervals(plan)
    rows = [
        ("ttft", format_seconds(estimate.ttft_seconds), found["ttft"]),
        ("tpot", format_seconds(estimate.tpot_seconds), found["tpot"]),
        ("prefill of a prompt", format_seconds(estimate.prefill_seconds), ""),
        ("output", format_quantity(estimate.tokens_per_second, unit), found["output"]),
        ("output per GPU", format_quantity(estimate.tokens_per_second_per_gpu, unit), ""),
        ("requests per second", format_without_exponent(estimate.requests_per_second, 3), ""),
        ("max concurrent requests", f"{estimate.max_concurrency:,.0f}", ""),
        ("KV cache per data-parallel rank", f"{limits.cache_tokens:,} tokens", ""),
        (
            f"requests of {limits.max_model_len:,} tokens that fit",
            f"{limits.full_requests:.2f}",
            "",
        ),
    ]
    limited = {name: format_latency_limits(goals, name) for name in ("ttft", "tpot")}
    return table(
        ("", "estimated", "80 % interval", "limit"),
        [
            (*row, limited.get(row[0], ""))
            for row in rows
            if row[0] != "tpot" or generates_answers(plan)
        ],
    )


def generates_answers(plan: ServingPlan) -> bool:
    """Return False for a prefill pool, whose requests end with the prompt."""
    return plan.problem.service.setup.pool != "prefill"


def output_unit(plan: ServingPlan) -> str:
    """Return the unit of the throughput; a prefill pool yields one token per prompt."""
    return " tokens/s" if generates_answers(plan) else " prompts/s"


def format_intervals(plan: ServingPlan) -> dict[str, str]:
    """Return the 80 % intervals of ttft, tpot and output as text, such as ``1.20 to 3.40 s``.

    The texts are empty if the estimate has no intervals.
    """
    found = plan.estimate.intervals
    if found is None:
        return dict.fromkeys(("ttft", "tpot", "output"), "")
    low, high = (format_quantity(end, output_unit(plan)) for end in found.tokens_per_second)
    rate = f"{low} to {high}" if low != high else "fixed by the request rate"
    return {
        "ttft": " to ".join(map(format_seconds, found.ttft_seconds)),
        "tpot": " to ".join(map(format_seconds, found.tpot_seconds)),
        "output": rate,
    }


PERCENTILE_HEAD = ("", "mean", "p50", "p90", "p99")


def percentile_rows(statistics: ServiceStatistics) -> list[tuple[str, ...]]:
    """Return the table rows of a simulated service, in the order of PERCENTILE_HEAD."""
    quantities: tuple[tuple[str, Distribution, Callable[[float], str]], ...] = (
        ("time to first token", statistics.ttft_seconds, format_seconds),
        ("time per token", statistics.tpot_seconds, format_seconds),
        ("time of a request", statistics.e2e_seconds, format_seconds),
        ("waiting requests per rank", statistics.queue, lambda value: f"{value:,.1f}"),
        ("KV cache in use", statistics.cache, format_percent),
    )
    # Requests of a prefill pool end with their first token.
    skipped = (
        () if statistics.tpot_seconds.p99 else (statistics.tpot_seconds, statistics.e2e_seconds)
    )
    return [
        (name, *(show(value) for value in (one.mean, one.p50, one.p90, one.p99)))
        for name, one, show in quantities
        if not any(one is other for other in skipped)
    ]


def describe_simulation(statistics: ServiceStatistics) -> str:
    """Return a line with the size and the throughput of a simulation, and its goodput."""
    goodput = ""
    if statistics.within_limits is not None:
        goodput = f", {format_percent(statistics.within_limits)} of the requests within all limits"
    rate = f"{format_without_exponent(statistics.requests_per_second, 3)} requests/s"
    if statistics.tpot_seconds.p99:
        rate += f", {format_quantity(statistics.tokens_per_second, ' tokens/s')}"
    preemptions = format_count(statistics.preemptions, "preemption")
    return f"{statistics.requests:,} requests; {rate}, {preemptions}{goodput}"


def _simulation_parts(statistics: ServiceStatistics | None) -> tuple[str, ...]:
    if statistics is None:
        return ()
    head = f"Simulated service ({describe_simulation(statistics)})\n"
    return (head + table(PERCENTILE_HEAD, percentile_rows(statistics)),)


def simulated_pair_text(plan: ServingPlan) -> str:
    """Return the simulation of requests that pass both pools; empty without two pools."""
    pair = plan.pair
    return "" if pair is None else "\n".join(("", *_simulation_parts(pair.simulated)))


def format_latency_limits(goals: ServingGoals, latency: LatencyName) -> str:
    """Return the limits on a latency as text, such as ``p99 2.00 s``; empty without a limit."""
    return ", ".join(
        f"{'' if one.statistic == 'mean' else one.statistic + ' '}{format_seconds(one.seconds)}"
        for one in goals.latency_limits
        if one.latency == latency
    )


def serving_estimate_document(plan: ServingPlan) -> dict[str, Any]:
    """Return the serving estimate as JSON types, with layout, limits and memory per stage."""
    document = {
        "format": 1,
        "name": plan.problem.name,
        "layout": as_json(plan.layout),
        "limits": as_json(plan.limits),
        "stages": [{**as_json(stage), "blocks": stage.blocks} for stage in plan.stages],
        **serving_estimate(plan),
        "basis": basis_document(plan),
    }
    return dict(round_floats_in_tree(document))


def serving_search_text(plan: ServingPlan, top: int) -> str:
    """Return the table of the best ``top`` candidates for a serving job."""
    front = [trade_off_row(plan, one) for one in pareto_front(plan.search.ranked)]
    return (
        f"{candidate_count(plan)}\n\n"
        + table(*serving_candidate_table(plan.search.ranked, top))
        + "\nTrade-off between throughput per GPU and speed for each user (Pareto front)\n"
        + table(TRADE_OFF_HEAD, front)
        + _simulated_candidates_text(plan, min(top, SIMULATED_CANDIDATES))
    )


SIMULATED_CANDIDATES = 3
"""Number of best candidates that are simulated for ``parc search``."""
SIMULATED_HEAD = ("rank", "ttft p50", "ttft p90", "ttft p99", "tpot p50", "tpot p90", "tpot p99")


def ranking_note(plan: ServingPlan) -> str:
    """Return how the candidates of a service are ordered (see ``rank_services``)."""
    problem = plan.problem
    if problem.minimizes_gpus:
        first, tied = "on the fewest GPUs", "Of those on equally many GPUs"
    elif problem.minimizes_latency:
        first, tied = "with the shortest time of a request", "Of those"
    elif problem.goals.maximize == "lowest-cost":
        first, tied = "with the lowest cost per token", "Of those"
    else:
        first, tied = "with the highest throughput", "Of those"
    return (
        f"Layouts {first} come first. {tied} that are within {SERVICE_TIE * 100:g} % of the best, "
        "the simplest one comes first."
    )


def _simulated_candidates_text(plan: ServingPlan, count: int) -> str:
    """Return the table of simulated percentiles of the best candidates; empty without a load."""
    solved = plan.estimate.solved_request_rate
    rows = []
    for rank, one in enumerate(plan.search.ranked[:count], start=1):
        # If the search determines the load, each candidate has its own, which follows from its
        # throughput.
        rate = one.tokens_per_second / plan.problem.service.traffic.output_tokens
        found = plan.estimate.simulated if rank == 1 else None
        if found is None:
            found = simulate_service(plan.problem, one.layout, None if solved is None else rate)
        if found is None:
            return ""
        values = [
            format_seconds(value)
            for part in (found.ttft_seconds, found.tpot_seconds)
            for value in (part.p50, part.p90, part.p99)
        ]
        rows.append((str(rank), *values))
    return "\nSimulated percentiles of the best candidates\n" + table(SIMULATED_HEAD, rows)


def pareto_front(candidates: tuple[ServingCandidate, ...]) -> list[ServingCandidate]:
    """Return the candidates that no other one exceeds both in throughput per GPU and in speed.

    The speed is the number of output tokens per second that one user receives. The result starts
    with the highest throughput per GPU.
    """
    front: list[ServingCandidate] = []
    by_throughput = sorted(
        candidates, key=lambda one: (-one.tokens_per_second / one.layout.gpus, one.tpot_seconds)
    )
    for one in by_throughput:
        if not front or one.tpot_seconds < front[-1].tpot_seconds:
            front.append(one)
    return front


def trade_off_row(plan: ServingPlan, candidate: ServingCandidate) -> tuple[str, ...]:
    """Return the table cells of one deployment of the Pareto front, as in TRADE_OFF_HEAD."""
    return (
        f"{candidate.tokens_per_second / candidate.layout.gpus:,.0f}",
        format_three_digits(1 / candidate.tpot_seconds),
        format_seconds(candidate.ttft_seconds),
        str(candidate.layout.gpus),
        *(str(getattr(candidate.layout, name)) for name in DEGREES),
        "chosen" if candidate.layout == plan.search.ranked[0].layout else "",
    )


def serving_candidate_table(
    ranked: Sequence[ServingCandidate], top: int
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return (head, rows) of a table with the first ``top`` of ``ranked``.

    The columns of a layout are chosen by ``shown_columns`` and do not depend on ``top``.
    """
    columns = shown_columns(SERVING_COLUMNS, [one.layout for one in ranked])
    best = ranked[0].tokens_per_second
    rows = [
        (
            str(rank),
            *(one.cell(candidate.layout) for one in columns),
            format_seconds(candidate.ttft_seconds),
            format_seconds(candidate.tpot_seconds),
            f"{candidate.tokens_per_second:,.0f}",
            f"{(candidate.tokens_per_second / best - 1) * 100:+.1f} %" if rank > 1 else "chosen",
            f"{candidate.weights_bytes / GIB:.1f}",
        )
        for rank, candidate in enumerate(ranked[:top], start=1)
    ]
    names = (one.head for one in columns)
    return ("rank", *names, "ttft", "tpot", "tokens/s", "vs chosen", "weights GiB"), rows


def serving_candidate_records(plan: ServingPlan, top: int) -> list[dict[str, Any]]:
    """Return the best ``top`` serving candidates as JSON types."""
    front = pareto_front(plan.search.ranked)
    return [
        {
            "rank": rank,
            **{column.name: column.value(one.layout) for column in SERVING_COLUMNS},
            "ttft_seconds": round_to_six_digits(one.ttft_seconds),
            # Requests of a prefill pool end with the prompt.
            "tpot_seconds": round_to_six_digits(one.tpot_seconds)
            if generates_answers(plan)
            else None,
            "tokens_per_second": round_to_six_digits(one.tokens_per_second),
            "weights_bytes": round_to_six_digits(one.weights_bytes),
            "pareto": one in front,
        }
        for rank, one in enumerate(plan.search.ranked[:top], start=1)
    ]
