"""Summary that ``parc compile`` prints for a training job or a serving job."""

from __future__ import annotations

from typing import Any

from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir import AnyPlan, Plan, ServingPlan
from parc.compiler.ir.serialize import as_json
from parc.compiler.ir.serving import ServiceStatistics, ServingSetup, Traffic
from parc.compiler.ir.serving_goals import ServingGoals
from parc.compiler.placement.build_placement_problem import TERMS
from parc.compiler.report.estimate_basis import basis_document, estimate_basis
from parc.compiler.report.formatting import (
    GIB,
    format_gib,
    format_percent,
    format_quantity,
    format_seconds,
    format_three_digits,
    format_without_exponent,
    round_floats_in_tree,
)
from parc.compiler.report.text.layout_text import format_layout, format_serving_layout, format_stage
from parc.compiler.report.text.pools_text import (
    documents_of_pools,
    service_rows,
    texts_of_pools,
)
from parc.compiler.report.text.run_text import run_rows
from parc.compiler.report.text.search_table import tie_summary
from parc.compiler.report.text.serving_tables import (
    format_intervals,
    generates_answers,
    output_unit,
)


def serving_summary(plan: ServingPlan) -> str:
    """Return the lines that ``parc compile`` prints for a serving job."""
    estimate, limits, search = plan.estimate, plan.limits, plan.search
    # The stage with the fewest cache blocks limits the number of requests of the engine.
    stage = min(plan.stages, key=lambda one: one.blocks)
    dropped = sum(count for _, count in search.dropped)
    rows = (
        ("plan", f"{plan.problem.name}: {describe_service(plan)}"),
        ("layout", format_serving_layout(plan.layout)),
        (
            "memory",
            f"{format_gib(stage.weights_bytes)} weights, {format_gib(stage.overhead_bytes)} "
            "activations and "
            f"graphs, {format_gib(stage.cache_bytes)} KV cache on the fullest GPU"
            f"{format_stage(stage.stage, len(plan.stages))}",
        ),
        (
            "cache",
            f"{format_quantity(limits.cache_tokens, ' tokens')} per data-parallel rank, enough for "
            f"{limits.full_requests:.1f} requests of {limits.max_model_len:,} tokens",
        ),
        ("draft", format_draft(plan.problem.service.setup)),
        ("pool", format_pool(plan)),
        ("load", format_load(plan)),
        (
            "latency",
            f"TTFT {format_seconds(estimate.ttft_seconds)}, "
            + (f"TPOT {format_seconds(estimate.tpot_seconds)}, " if generates_answers(plan) else "")
            + f"{format_quantity(estimate.tokens_per_second, output_unit(plan))} "
            f"(estimated means{_start_of_requests(plan)})",
        ),
        ("interval", _format_intervals(plan)),
        ("basis", estimate_basis(plan).text),
        ("simulated", format_simulated(plan)),
        ("steps", describe_step_tokens(plan)),
        ("choice", describe_fewest_gpus(plan)),
        ("cost", describe_cost(plan)),
        (
            "search",
            f"{search.enumerated:,} layouts, {dropped:,} rejected by rules or goals"
            # The layouts were compared before the number of tokens per step was chosen.
            + (f" with steps of {tried.default:,} tokens" if (tried := search.step_tokens) else ""),
        ),
    )
    return _format_rows(rows)


def format_pool(plan: ServingPlan) -> str:
    """Return the part of requests that the engines process; empty if they serve whole requests."""
    pool = plan.problem.service.setup.pool
    if pool == "both":
        return ""
    if pool == "prefill":
        return "prefill: latencies end with the prompt; the decode pool adds its own"
    seconds = format_seconds(plan.estimate.transfer_seconds)
    return f"decode: latencies start with the transfer of the KV cache, {seconds} per prompt"


def _format_intervals(plan: ServingPlan) -> str:
    found = format_intervals(plan)
    tpot = f"TPOT {found['tpot']}; " if generates_answers(plan) else ""
    return f"80 %: TTFT {found['ttft']}; {tpot}output {found['output']}"


def format_draft(setup: ServingSetup) -> str:
    """Return the draft of speculative decoding with its effect; empty without a draft."""
    draft = setup.speculative
    if draft is None:
        return ""
    return (
        f"{draft.method}, {format_count(draft.tokens, 'token')} per step, "
        f"{format_percent(draft.acceptance)} accepted: {setup.accepted_tokens:.2f} tokens per step "
        "and request"
    )


def describe_step_tokens(plan: ServingPlan) -> str:
    """Return why steps have fewer or more tokens than by default; empty if they do not."""
    found = plan.search.step_tokens
    if found is None:
        return ""
    if found.gain is None:
        effect = "no layout meets the limits with the default"
    elif plan.problem.minimizes_gpus and plan.problem.goals.has_latency_limit:
        effect = f"{format_percent(1 - 1 / found.gain)} fewer GPUs"
    elif plan.problem.minimizes_gpus or plan.problem.minimizes_latency:
        effect = f"requests take {format_percent(1 - 1 / found.gain)} less time"
    else:
        effect = f"{found.gain:.2f} times the throughput"
    return f"at most {found.chosen:,} tokens instead of {found.default:,} by default: {effect}"


def describe_fewest_gpus(plan: ServingPlan) -> str:
    """Return that the plan leaves GPUs idle on purpose; empty if it uses all of the cluster."""
    used, available = plan.layout.gpus, plan.problem.cluster.gpus
    if not plan.problem.minimizes_gpus or used >= available:
        return ""
    return (
        f"{used:,} of {available:,} GPUs, the fewest that serve the load (goals.maximize); "
        "throughput or latency uses more"
    )


def format_simulated(plan: ServingPlan) -> str:
    """Return percentiles of the simulated latencies; empty if the plan has no load."""
    found = plan.estimate.simulated
    if found is None:
        return ""
    ttft, tpot = found.ttft_seconds, found.tpot_seconds
    per_token = f"; TPOT p50 {format_seconds(tpot.p50)}, p99 {format_seconds(tpot.p99)}"
    return (
        f"TTFT p50 {format_seconds(ttft.p50)}, p99 {format_seconds(ttft.p99)}"
        f"{per_token if generates_answers(plan) else ''}"
        f"{format_goodput(plan.problem.goals, found)}"
        f"{' (without this burst)' if _start_of_requests(plan) else ''}"
    )


def _start_of_requests(plan: ServingPlan) -> str:
    """Return how a constant number of requests starts, after a comma; empty for other loads.

    The means contain the burst with which such a load starts, the simulated percentiles do not.
    """
    constant = plan.problem.service.traffic.concurrency is not None
    return ", including the burst in which all requests start" if constant else ""


def format_goodput(goals: ServingGoals, statistics: ServiceStatistics) -> str:
    """Return the share of requests within all limits, after "; "; empty without goals.goodput."""
    if goals.goodput is None or statistics.within_limits is None:
        return ""
    return (
        f"; {format_percent(statistics.within_limits)} of the requests within all limits (goal "
        f"{format_percent(goals.goodput)})"
    )


def describe_cost(plan: AnyPlan) -> str:
    """Return the cost per hour and per million tokens; empty without a price.

    The cost of a token that is trained includes the time of checkpoints and failures. It is left
    out if failures are so frequent that the run does not end.
    """
    cost = plan.cost_per_hour
    if cost is None:
        return ""
    tokens = "output tokens" if isinstance(plan, ServingPlan) else "tokens"
    if isinstance(plan, ServingPlan):
        rate = plan.tokens_per_second
        if not generates_answers(plan.pools[-1]):
            rate, tokens = rate * plan.problem.service.traffic.input_tokens, "input tokens"
    else:
        rate = plan.estimate.tokens_per_second * plan.run.effective_share
    text = f"{cost:,.2f} per hour for {format_count(plan.occupied_gpus, 'GPU')}"
    if not rate:
        return text
    per_million = 1e6 * cost / (3600 * rate)
    return f"{text}, {format_without_exponent(per_million, 3)} per million {tokens}"


def format_load(plan: ServingPlan) -> str:
    """Return the load for which the service is estimated, such as ``20 requests/s``."""
    traffic, solved = plan.problem.service.traffic, plan.estimate.solved_request_rate
    lengths = (
        f"{traffic.input_tokens:,.0f} input and {traffic.output_tokens:,.0f} output tokens each"
    )
    if traffic.concurrency is not None:
        requests = "request" if traffic.concurrency == 1 else "requests"
        return f"{traffic.concurrency:,.0f} concurrent {requests}, {lengths}"
    arrivals = _format_arrivals(traffic)
    if traffic.request_rate is not None:
        return f"{traffic.request_rate:.6g} requests/s, {lengths}, {arrivals}"
    if solved is not None:
        rate = format_three_digits(solved)
        return f"{rate} requests/s (the largest load within goals), {lengths}, {arrivals}"
    count = f"{plan.estimate.max_concurrency:,.0f}"
    return f"as many requests as fit in memory ({count}), {lengths}"


def _format_arrivals(traffic: Traffic) -> str:
    """Return the arrival process of requests as text."""
    if traffic.trace is not None:
        return f"arrivals of {traffic.trace.path}"
    if traffic.burstiness != 1:
        return f"gamma arrivals of burstiness {traffic.burstiness:g}"
    return "Poisson arrivals"


def describe_service(plan: ServingPlan) -> str:
    """Return a line with the model, the GPUs, the number of hosts, and the engine."""
    problem, hosts = plan.problem, len(plan.placement.hosts)
    return (
        f"{problem.model.name} on {plan.layout.gpus:,} x {problem.cluster.gpu.name}, "
        f"{format_count(hosts, 'host')}, for {problem.framework}"
    )


def serving_summary_document(plan: ServingPlan) -> dict[str, Any]:
    """Return the summary of a serving plan as JSON types."""
    estimate = plan.estimate
    document = {
        "name": plan.problem.name,
        "model": plan.problem.model.name,
        "gpu": plan.problem.cluster.gpu.name,
        "hosts": len(plan.placement.hosts),
        "world": plan.layout.gpus,
        "layout": as_json(plan.layout),
        "limits": as_json(plan.limits),
        "ttft_seconds": estimate.ttft_seconds,
        "tpot_seconds": estimate.tpot_seconds if generates_answers(plan) else None,
        "tokens_per_second": estimate.tokens_per_second,
        "intervals": as_json(estimate.intervals),
        "basis": basis_document(plan),
        "max_concurrency": estimate.max_concurrency,
    }
    return dict(round_floats_in_tree(document))


def summary_text(plan: AnyPlan) -> str:
    """Return the lines that ``parc compile`` prints for a plan."""
    if isinstance(plan, ServingPlan):
        if plan.pair is None:
            return serving_summary(plan)
        rows = (*service_rows(plan, plan.pair), ("cost", describe_cost(plan)))
        return f"{texts_of_pools(plan, serving_summary)}\n{_format_rows(rows)}"
    estimate, search = plan.estimate, plan.search
    peak = estimate.peak
    dropped = sum(count for _, count in search.dropped)
    rows = (
        ("plan", f"{plan.problem.name}: {describe_job(plan)}"),
        ("layout", format_layout(plan.layout)),
        (
            "memory",
            f"{format_gib(peak.total_bytes)} of {format_gib(estimate.limit_bytes)} on the "
            "fullest GPU"
            f"{format_stage(peak.stage, len(estimate.memory))} "
            f"(80 % interval {format_three_digits(peak.low_bytes / GIB)} to "
            f"{format_gib(peak.high_bytes)})",
        ),
        (
            "step",
            f"{format_seconds(estimate.time.total_seconds)} "
            f"(80 % interval {format_seconds(estimate.step_low_seconds)} to "
            f"{format_seconds(estimate.step_high_seconds)}), MFU {format_percent(estimate.mfu)}, "
            f"{format_quantity(estimate.tokens_per_second, ' tokens/s')}",
        ),
        ("basis", estimate_basis(plan).text),
        ("placement", format_placement(plan)),
        *run_rows(plan),
        ("cost", describe_cost(plan)),
        ("search", f"{search.enumerated:,} layouts, {dropped:,} rejected by rules or memory"),
        ("choice", tie_summary(plan)),
    )
    return _format_rows(rows)


def _format_rows(rows: tuple[tuple[str, str], ...]) -> str:
    return "".join(f"{name:<9} {text}\n" for name, text in rows if text)


_SHORTEST_WAIT = 5e-6
"""Seconds below which a wait would be shown as 0.00 ms."""


def format_placement(plan: Plan) -> str:
    """Return a line on the host order: its name, waits on links between hosts, and proof.

    The line names the terms of the step that contain these waits.
    """
    placement = plan.placement
    if len(placement.hosts) == 1:
        return "one host"
    chosen = next((one for one in placement.alternatives if one.chosen), None)
    # A plan from a lock has no chosen alternative: its hosts were given.
    name = chosen.name if chosen is not None else "as given"
    if len({host.rack for host in placement.hosts}) == 1:
        name = "one rack"
    waits = "no waits on links between hosts"
    if placement.proof.exposed_seconds >= _SHORTEST_WAIT:
        seconds = format_seconds(placement.proof.exposed_seconds)
        waits = f"each step waits {seconds} on links between hosts{_terms_with_waits(plan)}"
    return f"{name}, {waits}, {placement.proof.summary}"


def _terms_with_waits(plan: Plan) -> str:
    """Return the terms of the step that contain the waits on links between hosts, as text.

    The terms of the axes may be longer than these waits, because they also contain latencies.
    """
    time, rows = plan.estimate.time, plan.estimate.traffic
    terms = dict.fromkeys(TERMS[row.axis] for row in rows if row.level == "fabric")
    names = [term.removesuffix("_seconds") for term in terms if getattr(time, term)]
    how = "counted as" if time.placement_seconds else "part of"
    if time.placement_seconds:
        names.append("placement")
    if not names:
        return ""
    *most, last = names
    return f" ({how} {', '.join(most)} and {last})" if most else f" ({how} {last})"


def describe_job(plan: Plan) -> str:
    """Return a line with the model, the GPUs, and the number of hosts and racks."""
    problem, placement = plan.problem, plan.placement
    racks = len({host.rack for host in placement.hosts})
    return (
        f"{problem.model.name} on {plan.layout.world:,} x {problem.cluster.gpu.name}, "
        f"{format_count(len(placement.hosts), 'host')} in {format_count(racks, 'rack')}"
    )


def summary_document(plan: AnyPlan) -> dict[str, Any]:
    """Return the summary of a training or serving plan as JSON types."""
    if isinstance(plan, ServingPlan):
        if plan.pair is not None:
            return documents_of_pools(plan, plan.pair, serving_summary_document)
        return serving_summary_document(plan)
    estimate = plan.estimate
    document = {
        "name": plan.problem.name,
        "model": plan.problem.model.name,
        "gpu": plan.problem.cluster.gpu.name,
        "hosts": len(plan.placement.hosts),
        "world": plan.layout.world,
        "layout": {**as_json(plan.layout), "dp": plan.layout.dp, "edp": plan.layout.edp},
        "peak_bytes": estimate.peak.total_bytes,
        "limit_bytes": estimate.limit_bytes,
        "step_seconds": estimate.time.total_seconds,
        "step_low_seconds": estimate.step_low_seconds,
        "step_high_seconds": estimate.step_high_seconds,
        "mfu": estimate.mfu,
        "tokens_per_second": estimate.tokens_per_second,
        "basis": basis_document(plan),
        "placement": as_json(plan.placement.proof),
        "run": as_json(plan.run),
    }
    return dict(round_floats_in_tree(document))
