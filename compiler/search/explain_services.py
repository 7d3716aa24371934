"""Explanation of a search for serving layouts that fails: violated rules, or missed limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.evaluate.evaluate_service import SUSTAINED, request_seconds
from parc.compiler.evaluate.explain_no_layout import explain_no_layout
from parc.compiler.evaluate.simulated_limits import MARGIN, cannot_sustain, missed_in_simulation
from parc.compiler.ir import ServingEstimate, ServingLayout, ServingProblem
from parc.compiler.ir.serving_plan import ServingRule
from parc.compiler.search.simulate_finalists import worst_sample

MAX_EXAMINED = 512
"""Largest number of invalid layouts that are checked to explain an empty result: this many from the
start of the enumeration, and this many from the end."""
MEMORY_RULES = ("V01", "V02")
"""Codes of the rules on memory, which are the last ones of an engine."""
LONG_SECONDS = 10.0
"""Shortest time that messages print in seconds instead of milliseconds."""


def explain_empty_search(
    problem: ServingProblem,
    rules: tuple[ServingRule, ...],
    layouts: tuple[ServingLayout, ...],
    too_slow: list[tuple[str, ServingEstimate]],
    sink: Sink,
) -> None:
    """Report why no layout is valid.

    If some layouts violate no rule but miss a limit of the goals, the limits are reported (G03). If
    there are no layouts at all, this is reported (G01). Otherwise the violated rules are reported.
    """
    if too_slow:
        finding = _missed_limits_finding(problem, [found for _, found in too_slow])
        sink.report(
            "G03", finding, at=sink.positions.first_path_in_spec(_LIMIT_PATHS[too_slow[0][0]])
        )
    elif not layouts:
        # A wrong fix is withdrawn, because the fixes of findings are tried.
        limits = [one.axis for one in problem.goals.limits]
        limit = limits[0] if len(limits) == 1 else ""
        sink.report(
            "G01",
            explain_no_layout(problem, limit),
            at=f"goals.limits.{limit}" if limit else "layout",
        )
    else:
        _explain_violated_rules(
            problem, rules, layouts[:MAX_EXAMINED] + layouts[-MAX_EXAMINED:], sink
        )


_MEAN_SECONDS: dict[str, Callable[[ServingProblem, ServingEstimate], float]] = {
    "ttft": lambda _, one: one.ttft_seconds,
    "tpot": lambda _, one: one.tpot_seconds,
    "e2e": request_seconds,
}
"""Latency -> function that returns its estimated mean in seconds."""

_LIMIT_PATHS = {
    "ttft": ("goals.ttft", "goals"),
    "tpot": ("goals.tpot", "goals"),
    "e2e": ("goals.e2e", "goals"),
    "request_rate": ("job.traffic.request_rate", "job.traffic"),
}
"""Spec paths to which a finding about a missed limit can point, in order of preference."""


def _explain_violated_rules(
    problem: ServingProblem,
    rules: tuple[ServingRule, ...],
    layouts: Iterable[ServingLayout],
    sink: Sink,
) -> None:
    """Report the rules that all layouts violate.

    If there are no such rules, the rules that the closest layout violates are reported. The closest
    layout violates the fewest rules. On a tie, it exceeds the available GPUs by the least, and then
    uses the most GPUs, because more GPUs have more memory.
    """
    engines, gpus = problem.pins.replicas or 1, problem.cluster.gpus

    def distance_to_valid(one: ServingLayout) -> tuple[tuple[int, int], int, int, int]:
        over = max(one.engine_gpus * engines - gpus, 0)
        return _count_violations(broken[one]), over, -one.engine_gpus, one.pp

    broken = {one: _violated_rules(problem, rules, one) for one in dict.fromkeys(layouts)}
    closest = min(broken, key=distance_to_valid)
    always = set.intersection(*({rule.code for rule in found} for found in broken.values()))
    shown = [rule for rule in broken[closest] if rule.code in always] or broken[closest]
    for rule in shown:
        finding = rule.explain(problem, closest)
        sink.report(rule.code, finding, at=sink.positions.first_path_in_spec(rule.fields))


def _violated_rules(
    problem: ServingProblem, rules: tuple[ServingRule, ...], layout: ServingLayout
) -> list[ServingRule]:
    """Return the rules that ``layout`` violates.

    The memory rules are checked only if ``layout`` violates no other rule.
    """
    found: list[ServingRule] = []
    for rule in rules:
        # The memory of a layout that cannot run is irrelevant.
        if rule.code in MEMORY_RULES and found:
            break
        if rule.broken(problem, layout):
            found.append(rule)
    return found


def _count_violations(violated: list[ServingRule]) -> tuple[int, int]:
    """Return (number of violated rules that are not about memory, number of violated rules)."""
    return sum(rule.code not in MEMORY_RULES for rule in violated), len(violated)


def _missed_limits_finding(problem: ServingProblem, found: list[ServingEstimate]) -> Finding:
    """Return the finding that all layouts in ``found`` miss a limit.

    The finding lists the best value of any layout for each limit that some layout misses.
    """
    served = max(one.requests_per_second for one in found)
    goals, traffic = problem.goals, problem.service.traffic
    limits, best = [], []
    for limit in goals.latency_limits:
        seconds = _MEAN_SECONDS[limit.latency]
        if all(seconds(problem, one) <= limit.seconds for one in found):
            continue
        fastest = min(found, key=lambda one: seconds(problem, one))
        value = format_limit(seconds(problem, fastest))
        limits.append(f"{limit.text} {format_limit(limit.seconds)}")
        best.append(f"mean {limit.latency} {value} with {format_serving_sizes(fastest.layout)}")
    less_load = "fewer concurrent requests"
    if traffic.request_rate is not None:
        less_load = "a lower request rate"
        if any(one.requests_per_second < SUSTAINED * traffic.request_rate for one in found):
            limits.append(f"{traffic.request_rate:g} requests per second")
            best.append(f"{served:.3g} of {traffic.request_rate:g} requests per second")
    return Finding(
        f"all {len(found)} layouts that fit into memory miss a limit: {', '.join(limits)}",
        label=f"best value for each limit: {'; '.join(best)}",
        help=f"use more GPUs, {less_load}, or less strict limits"
        if traffic.is_load_given
        else "these values hold for a single request without other load; use faster GPUs or less "
        "strict limits",
        causes=(Cause("job.traffic", "the requests are set here"),),
    )


def report_missed_in_simulation(problem: ServingProblem, best: ServingEstimate, sink: Sink) -> None:
    """Report that the best layouts miss limits or the request rate in the simulation (G03)."""
    found = worst_sample(problem, best)
    missed = missed_in_simulation(problem, found)
    limits = [f"{limit.text} {format_limit(limit.seconds)}" for limit, _ in missed]
    values = [f"{limit.text} {format_limit(value)}" for limit, value in missed]
    if found.simulated is not None and cannot_sustain(problem, found.simulated):
        rate = problem.service.traffic.request_rate
        limits.append(f"{rate:g} requests per second")
        values.append(f"{found.simulated.requests_per_second:.3g} of {rate:g} requests per second")
    is_close = any(value <= limit.seconds for limit, value in missed)
    margin = f"; PARC requires {100 * (1 - MARGIN):.0f} % less than a limit" if is_close else ""
    finding = Finding(
        f"all simulated layouts miss a limit: {', '.join(limits)}",
        label=f"simulated with {format_serving_sizes(found.layout)}: {', '.join(values)}{margin}",
        help="the estimated means meet the limits, but the latencies of requests vary; use more "
        "GPUs, less load or less strict limits",
        causes=(Cause("job.traffic", "the requests are set here"),),
    )
    name = missed[0][0].latency if missed else "request_rate"
    sink.report("G03", finding, at=sink.positions.first_path_in_spec(_LIMIT_PATHS[name]))


def format_limit(seconds: float) -> str:
    """Return a latency with its unit, such as ``500 ms`` or ``12.5 s``."""
    # Rounded first, because 9.9996 s would be 1e+04 ms, which a spec cannot contain.
    milliseconds = float(f"{seconds * 1e3:.4g}")
    return f"{milliseconds:g} ms" if milliseconds < LONG_SECONDS * 1e3 else f"{seconds:.4g} s"


def format_serving_sizes(layout: ServingLayout) -> str:
    """Return the parallel sizes of ``layout`` above 1 as text, such as "tp 8, ep 8"."""
    names = ("tp", "pp", "dp", "ep", "pcp", "dcp")
    degrees = ((name, getattr(layout, name)) for name in names)
    return ", ".join(f"{name} {size}" for name, size in degrees if size > 1) or "tp 1"
