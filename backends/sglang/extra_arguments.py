"""Checks of ``launch.args`` against the parser of SGLang's server."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.sglang.arguments import PACKAGE, planned_flags, shared_arguments
from parc.backends.sglang.coupled_flags import COUPLINGS
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
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.diagnostics.similar_names import close_matches
from parc.compiler.ir import ServingPlan

TARGETS = ("sglang",)
OTHER_NAMES = {"--data-parallel-size": "--attn-dp-size", "--dp-size": "--attn-dp-size"}
"""Flags that would change a parallel size of the plan -> the flag of the plan."""
OLD_SWITCH = "--enable-dp-attention"
"""With it, --dp-size means --attn-dp-size (arg_groups/parallel_hook.py)."""


def long_flag_name(flag: str) -> str:
    """Return the first name of a flag in the parser: ``--tp`` becomes ``--tp-size``.

    The parser is argparse, which accepts the beginning of a flag if only one flag begins with it.
    Unknown flags are returned unchanged.
    """
    rows = rows_of_known_flags(PACKAGE)
    flag = expand_abbreviation(flag, rows)
    return str(rows.get(flag, {}).get("means", flag))


def check_launch_args(plan: ServingPlan, sink: Sink) -> None:
    """Report flags that are unknown (F01), planned (F02), invalid (F03), or not estimated (V43)."""
    planned = shared_arguments(plan)
    extras, stray = parse_extra_arguments(plan.problem.launch.args, rows_of_known_flags(PACKAGE))
    report_extra_arguments(
        extras, stray, lambda extra: _find_flag_fault(extra, planned), sink, TARGETS
    )
    named = tuple(replace(extra, flag=long_flag_name(extra.flag)) for extra in extras)
    values = {one.flag: tuple(one.words[1:]) for one in planned}
    report_broken_couplings(COUPLINGS, values, named, sink, TARGETS)


def _find_flag_fault(
    extra: ExtraArgument, planned: tuple[Argument, ...]
) -> tuple[str, Finding] | None:
    """Return (diagnostic code, finding) if SGLang would reject the flag or the plan determines it.

    Return None for all other flags. ``planned`` contains the flags of the plan.
    """
    means = long_flag_name(extra.flag)
    row = rows_of_known_flags(PACKAGE).get(means)
    if row is None:
        return "F01", explain_unknown_flag(extra.flag)
    means = "--attn-dp-size" if means == OLD_SWITCH else OTHER_NAMES.get(means, means)
    if means in planned_flags():
        field = spec_field_of_flag(means, PACKAGE)
        return "F02", explain_planned_flag(extra.flag, means, planned, field)
    return find_value_problem(extra, means, row, PACKAGE)


def explain_unknown_flag(flag: str) -> Finding:
    """Return the finding that SGLang has no such flag (F01).

    The finding names the replacement of a removed flag, or suggests similar flags.
    """
    removed = removed_flags(PACKAGE).get(flag)
    if removed is not None:
        return explain_removed_flag("SGLang 0.5.23", flag, removed)
    near = close_matches(flag, rows_of_known_flags(PACKAGE), 3)
    return Finding(
        f"SGLang 0.5.23 has no flag {flag[:60]}",
        label=f"{flag[:60]} is unknown to the parser",
        help=f"did you mean: {', '.join(near)}"
        if near
        else "see python3 -m sglang.launch_server --help",
        fix=fix_unknown_flag(flag, near),
    )
