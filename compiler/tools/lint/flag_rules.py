"""Rules about flags that need or exclude another flag, and about the learning rate schedule.

The table of such flags is in the linter of each backend. The schedule consists of warm-up, decay
and final learning rate, which can contradict each other (X11).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from parc.compiler.diagnostics import Cause, Diagnostic, Finding, Sink
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import LaunchFlag


@frozen
class FlagCoupling:
    """Other flags that a flag, or one value of the flag, needs or excludes."""

    code: str
    flag: str
    needs: tuple[str, ...] = ()
    """Flags; at least one of them must be given."""
    excludes: tuple[str, ...] = ()
    """Flags that must not be given."""
    why: str = ""
    value: str = ""
    """Value of the flag for which the row applies; empty if the row applies to all values."""
    limits: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(other flag, its valid values), for flags that may be given only with these values."""


@frozen
class BrokenCoupling:
    """Row of a table of couplings that a launch file breaks."""

    flag: LaunchFlag
    """Flag that needs or excludes another one."""
    other: LaunchFlag | None
    """Flag that is excluded or has an invalid value; None if the needed flag is missing."""
    code: str
    finding: Finding


def broken_couplings(
    table: tuple[FlagCoupling, ...],
    sure: Mapping[str, LaunchFlag],
    written: Mapping[str, LaunchFlag],
    is_open: bool,
) -> Iterator[BrokenCoupling]:
    """Yield each rule about two flags that the launch file breaks.

    Args:
        table: rules; each states which flags of a framework a flag needs or excludes.
        sure: flags that every run of the script has. Only these flags are checked, and only these
            flags can conflict with a checked flag.
        written: all flags of the script, including those in branches. A flag that is needed is
            missing only if it is not among them.
        is_open: True if flags might be added at run time, so that no flag can be reported as
            missing.
    """
    for row in table:
        flag = sure.get(row.flag)
        if flag is None or (row.value and row.value not in {one.text for one in flag.values}):
            continue
        name = f"{row.flag} {row.value}".rstrip()
        if row.needs and not is_open and not any(needed in written for needed in row.needs):
            finding = Finding(
                f"{name} needs {' or '.join(row.needs)}",
                label=row.why,
                fix=f"add {_with_valid_value(row.needs[0], row)}",
            )
            yield BrokenCoupling(flag, None, row.code, finding)
        yield from _broken_limits(row, flag, sure)
        for other in (sure[excluded] for excluded in row.excludes if excluded in sure):
            finding = Finding(
                f"{name} and {other.name} exclude each other",
                label=row.why,
                fix=f"remove {other.name}",
                causes=(Cause("", "conflicting flag", other.word.span),),
            )
            yield BrokenCoupling(flag, other, row.code, finding)


def _with_valid_value(name: str, row: FlagCoupling) -> str:
    """Return the flag ``name`` with its first valid value, if ``row`` limits its values."""
    return " ".join((name, *(values[0] for other, values in row.limits if other == name)))


def _broken_limits(
    row: FlagCoupling, flag: LaunchFlag, sure: Mapping[str, LaunchFlag]
) -> Iterator[BrokenCoupling]:
    """Yield one object per other flag whose value ``row`` does not allow."""
    for name, values in row.limits:
        other = sure.get(name)
        given = [word.text for word in other.values[:1]] if other is not None else []
        if other is None or not given or given[0] in values:
            continue
        finding = Finding(
            f"{row.flag} {row.value}".rstrip()
            + f" needs {name} {' or '.join(values)}, not {given[0]}",
            label=row.why,
            fix=f"{name} {values[0]}",
            causes=(Cause("", "conflicting value", other.word.span),),
        )
        yield BrokenCoupling(flag, other, row.code, finding)


FIELDS = (
    *("steps", "learning_rate", "min_learning_rate"),
    *("warmup_steps", "lr_decay", "lr_decay_steps"),
)
"""Fields of ``job`` whose values can contradict each other."""


def check_learning_rate(
    job: Mapping[str, Any], known: Callable[[str], bool]
) -> tuple[Diagnostic, ...]:
    """Return the findings about contradictions in the learning rate schedule of ``job``.

    Only fields for which ``known`` returns True are checked; the other fields get their defaults.
    The causes of a finding might name a field that has a default.
    """
    from pydantic import ValidationError

    from parc.compiler.resolve.resolve_learning_rate import resolve_learning_rate
    from parc.compiler.spec.job_spec import DEFAULT_STEPS, JobSpec

    given = {name: job[name] for name in FIELDS if known(f"job.{name}")}
    sink = Sink()
    try:
        text = json.dumps({"sequence_length": 1, "global_batch": 1, **given})
        spec = JobSpec.model_validate_json(text)
        resolve_learning_rate(spec, spec.steps or DEFAULT_STEPS, sink)
    except ValidationError:
        return ()  # a single number is out of range: the spec rejects it, a program may accept it
    return sink.diagnostics
