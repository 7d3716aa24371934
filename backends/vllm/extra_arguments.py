"""Checks of ``launch.args`` against the parsers of ``vllm serve``, 0.28 to 0.33."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.shared.extra_arguments import (
    ExtraArgument,
    expand_abbreviation,
    explain_removed_flag,
    fix_unknown_flag,
    parse_extra_arguments,
    removed_flags,
    report_broken_couplings,
    report_extra_arguments,
    rows_of_known_flags,
    spec_field_of_flag,
)
from parc.backends.shared.serving.engine_flags import explain_planned_flag, find_value_problem
from parc.backends.shared.serving.serve_script import Argument
from parc.backends.vllm.arguments import PACKAGE, planned_flags
from parc.backends.vllm.coupled_flags import COUPLINGS
from parc.backends.vllm.processes import plan_processes
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.similar_names import close_matches
from parc.compiler.ir import ServingPlan, ServingProblem

TARGETS = ("vllm",)
UNCHUNKED = ("--no-enable-chunked-prefill", "--disable-chunked-prefill")
"""Spellings of the flag that turns chunked prefill off; the second one exists since 0.33."""
SERVERS = ("--api-server-count", "-asc")


def normalize_flag(flag: str) -> str:
    """Return the flag with dashes instead of underscores, as vLLM's parser reads it."""
    return flag.replace("_", "-") if flag.startswith("--") else flag


def long_flag_name(flag: str) -> str:
    """Return the long name of a flag: ``-tp`` becomes ``--tensor-parallel-size``.

    So does the abbreviation ``--tensor-parallel``, which the parser accepts.
    Negated flags, such as ``--no-enable-eplb``, are only normalized.
    """
    rows = rows_of_known_flags(PACKAGE)
    name = expand_abbreviation(normalize_flag(flag), rows)
    denies = name.startswith(("--no-", "--disable-"))
    return name if denies else str(rows.get(name, {}).get("means", name))


def unchunked_flag(problem: ServingProblem) -> str | None:
    """Return the flag in ``launch.args`` that turns chunked prefill off; None if there is none."""
    extras, _ = _read_launch_args(problem)
    return next((extra.flag for extra in extras if extra.flag in UNCHUNKED), None)


def _read_launch_args(problem: ServingProblem) -> tuple[tuple[ExtraArgument, ...], tuple[str, ...]]:
    """Return (arguments in ``launch.args`` with normalized flags, words without a flag)."""
    rows = rows_of_known_flags(PACKAGE, problem.version("vllm"))
    written, stray = parse_extra_arguments(problem.launch.args, rows)
    return tuple(replace(extra, flag=normalize_flag(extra.flag)) for extra in written), stray


def check_launch_args(plan: ServingPlan, planned: tuple[Argument, ...], sink: Sink) -> None:
    """Report flags in ``launch.args`` that vLLM would reject, or that the plan already determines.

    Findings: unknown flags (F01), planned flags (F02), invalid values (F03), flags that the
    estimate ignores (V43), and long prompts if ``launch.args`` disables chunked prefill (V04).
    ``planned`` contains the flags of the plan.
    """
    version = plan.problem.version("vllm")
    extras, stray = _read_launch_args(plan.problem)
    report_extra_arguments(
        extras, stray, lambda extra: _find_flag_fault(extra, planned, version), sink, TARGETS
    )
    named = tuple(replace(extra, flag=long_flag_name(extra.flag)) for extra in extras)
    values = {one.flag: tuple(one.words[1:]) for one in planned}
    report_broken_couplings(COUPLINGS, values, named, sink, TARGETS)
    unchunked = unchunked_flag(plan.problem)
    if unchunked is not None:
        _check_unchunked_prompts(plan, unchunked, sink)
    _check_api_server_count(plan, extras, sink)


def _check_api_server_count(
    plan: ServingPlan, extras: tuple[ExtraArgument, ...], sink: Sink
) -> None:
    """Report ``--api-server-count`` in ``launch.args`` if some hosts run no API server (F03).

    All hosts get the same arguments, and vLLM rejects this flag on a host without an API server.
    """
    headless = [one.node for one in plan_processes(plan) if not one.ports]
    found = next((one for one in extras if one.flag in SERVERS), None)
    if found is None or not headless:
        return
    finding = Finding(
        f"{found.flag} cannot be used with --headless (no API servers are started in headless "
        "mode)",
        label=f"{len(headless)} of {len(plan.placement.hosts)} hosts are headless, and all hosts "
        "get the same arguments",
        fix=f"remove {found.flag} from launch.args",
        targets=TARGETS,
    )
    sink.report("F03", finding, at=f"launch.args[{found.at}]")


def _find_flag_fault(
    extra: ExtraArgument, planned: tuple[Argument, ...], version: str
) -> tuple[str, Finding] | None:
    """Return (diagnostic code, finding) if vLLM rejects the flag or the plan determines it.

    Return None for all other flags. ``planned`` contains the flags of the plan.
    """
    # vLLM's parser accepts one field of a JSON option after a dot.
    name = extra.flag.partition(".")[0]  # --eplb-config.window_size 100
    row = rows_of_known_flags(PACKAGE, version).get(name)
    if row is None:
        return "F01", explain_unknown_flag(extra.flag, version)
    means = str(row.get("means", name)).replace("--no-", "--", 1)
    if means in planned_flags():
        names = (means, means.replace("--", "--no-", 1))
        field = next(filter(None, (spec_field_of_flag(one, PACKAGE) for one in names)), "")
        return "F02", explain_planned_flag(extra.flag, means, planned, field)
    return find_value_problem(extra, means, row, PACKAGE)


def explain_unknown_flag(flag: str, version: str) -> Finding:
    """Return the finding that vLLM ``version`` has no such flag (F01).

    The finding names the replacement of a removed flag. For other flags, its help suggests similar
    flags, and its label names the versions that have the flag.
    """
    causes = (Cause("versions.vllm", f"version {version}"),)
    removed = removed_flags(PACKAGE).get(normalize_flag(flag))
    if removed is not None:
        found = explain_removed_flag(f"vllm serve {version}", removed["flag"], removed)
        return replace(found, causes=causes)
    near = close_matches(flag, rows_of_known_flags(PACKAGE, version), 3)
    label = f"{flag[:60]} is unknown to the parser"
    row = rows_of_known_flags(PACKAGE).get(flag.partition(".")[0])
    if row is not None:
        since, until = row.get("since", "0.28"), row.get("until", "the newest")
        label = f"{flag[:60]} exists from version {since} to {until}"
    return Finding(
        f"vllm serve {version} has no flag {flag[:60]}",
        label=label,
        help=f"did you mean: {', '.join(near)}" if near else "see vllm serve --help=all",
        fix=fix_unknown_flag(flag, near),
        causes=causes,
    )


def _check_unchunked_prompts(plan: ServingPlan, flag: str, sink: Sink) -> None:
    """Report prompts that can be longer than the number of tokens per step (V04).

    Without chunked prefill, which ``flag`` turns off, each prompt must fit into one step.
    """
    tokens, longest = plan.limits.max_num_batched_tokens, plan.limits.max_model_len
    if tokens >= longest:
        return
    finding = Finding(
        f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({longest})",
        label=f"{tokens} < {longest}, and {flag} runs each prompt in one step",
        fix=f"job.max_num_batched_tokens: {longest}",
        targets=TARGETS,
    )
    sink.report("V04", finding, at="job.max_num_batched_tokens")
