"""The learning rate of a launch, as far as its flags say it: warm-up, decay and end (X11)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from parc.compiler.diagnostics import Diagnostic, Sink

FIELDS = (
    *("steps", "learning_rate", "min_learning_rate"),
    *("warmup_steps", "lr_decay", "lr_decay_steps"),
)
"""Fields of a job that bound each other."""


def broken_rates(job: Mapping[str, Any], known: Callable[[str], bool]) -> tuple[Diagnostic, ...]:
    """What the known fields of ``job`` break together; a finding may rest on others still."""
    from pydantic import ValidationError

    from parc.compiler.resolve.resolve_learning_rate import resolve_learning_rate
    from parc.compiler.spec.job_spec import JobSpec

    said = {name: job[name] for name in FIELDS if known(f"job.{name}")}
    sink = Sink()
    try:
        text = json.dumps({"sequence_length": 1, "global_batch": 1, **said})
        resolve_learning_rate(JobSpec.model_validate_json(text), sink)
    except ValidationError:
        return ()  # a number that is out of range by itself, which a program may take
    return sink.diagnostics
