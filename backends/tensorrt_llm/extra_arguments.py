"""Checks of ``launch.args`` against the options of trtllm-serve."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.shared.extra_arguments import (
    ExtraArgument,
    fix_unknown_flag,
    parse_extra_arguments,
    report_extra_arguments,
    rows_of_known_flags,
    spec_field_of_flag,
)
from parc.backends.shared.serving.engine_flags import explain_planned_flag, find_value_problem
from parc.backends.shared.serving.serve_script import Argument
from parc.backends.tensorrt_llm.arguments import NAME, PACKAGE, planned_flags, shared_arguments
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.similar_names import close_matches
from parc.compiler.ir import ServingPlan

TARGETS = (NAME,)
IN_CONFIG = {
    "--kv_cache_free_gpu_memory_fraction": "goals.memory_headroom",
    "--enable_chunked_prefill": "",
}
"""Flags whose setting the plan writes to config.yaml -> spec field of the setting, if any."""


def canonical_flag_name(flag: str) -> str:
    """Return the name that PARC uses for a flag with several names; unknown flags are unchanged.

    For example, ``--tensor_parallel_size`` becomes ``--tp_size``.
    """
    return str(rows_of_known_flags(PACKAGE).get(flag, {}).get("means", flag))


def check_launch_args(plan: ServingPlan, sink: Sink) -> None:
    """Report flags that are unknown (F01), planned (F02), invalid (F03), or not estimated (V43)."""
    planned, version = shared_arguments(plan), plan.problem.version(NAME)
    extras, stray = parse_extra_arguments(plan.problem.launch.args)
    report_extra_arguments(
        extras, stray, lambda extra: _find_flag_fault(extra, planned, version), sink, TARGETS
    )


def _find_flag_fault(
    extra: ExtraArgument, planned: tuple[Argument, ...], version: str
) -> tuple[str, Finding] | None:
    """Return (diagnostic code, finding) if the flag is rejected or the plan determines it.

    Return None for all other flags. ``planned`` contains the flags of the plan.
    """
    row = rows_of_known_flags(PACKAGE, version).get(extra.flag)
    if row is None:
        return "F01", explain_unknown_flag(extra.flag, version)
    means = canonical_flag_name(extra.flag)
    if means in planned_flags() or means in IN_CONFIG:
        return "F02", _explain_planned_flag(extra.flag, means, planned)
    return find_value_problem(extra, means, row, PACKAGE)


def explain_unknown_flag(flag: str, version: str) -> Finding:
    """Return the finding that trtllm-serve ``version`` has no such flag (F01)."""
    near = close_matches(flag, rows_of_known_flags(PACKAGE, version), 3)
    row = rows_of_known_flags(PACKAGE).get(flag)
    label = f"{flag[:60]} is unknown to trtllm-serve"
    if row is not None:
        label = f"{flag[:60]} exists since version {row.get('since', '1.0.0')}"
    return Finding(
        f"trtllm-serve {version} has no flag {flag[:60]}",
        label=label,
        help=f"did you mean: {', '.join(near)}" if near else "see trtllm-serve serve --help",
        fix=fix_unknown_flag(flag, near),
        causes=(Cause(f"versions.{NAME}", f"version {version}"),),
    )


def _explain_planned_flag(flag: str, means: str, planned: tuple[Argument, ...]) -> Finding:
    """Return the finding that the plan already determines ``flag``, an alias of ``means``."""
    field = IN_CONFIG.get(means, "") or spec_field_of_flag(means, PACKAGE)
    found = explain_planned_flag(flag, means, planned, field)
    if means in IN_CONFIG:
        found = replace(found, label="config.yaml sets it, and replaces the value of the flag")
    return found if field else replace(found, help="")
