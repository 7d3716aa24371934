"""Rules about the flags of a launch: flags that need or exclude another flag, learning rate.

The tables of coupled flags are in the linters of the backends. The schedule of the learning rate is
warm-up, decay and final rate (X11).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from parc.compiler.diagnostics import Cause, Diagnostic, Finding, Sink
from parc.compiler.tools.importers.flags import Flag


@dataclass(frozen=True, slots=True)
class Coupling:
    """Requirement of one flag, or of one ``value`` of it, on other flags."""

    code: str
    flag: str
    needs: tuple[str, ...] = ()
    """Flags of which at least one must be given."""
    excludes: tuple[str, ...] = ()
    """Flags of which none may be given."""
    why: str = ""
    value: str = ""
    """Value of the flag to which the requirement is limited; empty: any."""


def broken_couplings(
    table: tuple[Coupling, ...],
    sure: Mapping[str, Flag],
    written: Mapping[str, Flag],
    is_open: bool,
) -> Iterator[tuple[Flag, str, Finding]]:
    """Yield (flag, code, finding) for each violated requirement.

    Args:
        table: requirements of a framework.
        sure: flags that each run has; only these are checked, and only these exclude others.
        written: all flags, including those in branches, which may meet a need.
        is_open: flags may be added at run time, so that no flag can be reported as missing.
    """
    for row in table:
        flag = sure.get(row.flag)
        if flag is None or (row.value and row.value not in {one.text for one in flag.values}):
            continue
        if row.needs and not is_open and not any(name in written for name in row.needs):
            needed = " or ".join(row.needs)
            yield (
                flag,
                row.code,
                Finding(f"{row.flag} needs {needed}", label=row.why, fix=f"add {row.needs[0]}"),
            )
        for other in (sure[name] for name in row.excludes if name in sure):
            yield (
                flag,
                row.code,
                Finding(
                    f"{row.flag} and {other.name} exclude each other",
                    label=row.why,
                    fix=f"remove {other.name}",
                    causes=(Cause("", "conflicting flag", other.word.span),),
                ),
            )


FIELDS = (
    *("steps", "learning_rate", "min_learning_rate"),
    *("warmup_steps", "lr_decay", "lr_decay_steps"),
)
"""Fields of a job that limit each other."""


def check_learning_rate(
    job: Mapping[str, Any], known: Callable[[str], bool]
) -> tuple[Diagnostic, ...]:
    """Return the contradictions between the known fields of ``job``.

    A finding may still involve fields that are unknown; its causes name them.
    """
    from pydantic import ValidationError

    from parc.compiler.resolve.resolve_learning_rate import resolve_learning_rate
    from parc.compiler.spec.job_spec import JobSpec

    given = {name: job[name] for name in FIELDS if known(f"job.{name}")}
    sink = Sink()
    try:
        text = json.dumps({"sequence_length": 1, "global_batch": 1, **given})
        resolve_learning_rate(JobSpec.model_validate_json(text), sink)
    except ValidationError:
        return ()  # a single number is out of range: the spec rejects it, a program may accept it
    return sink.diagnostics
