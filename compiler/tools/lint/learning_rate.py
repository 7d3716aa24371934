"""Learning-rate schedule of a launch: warm-up, decay and final rate (X11)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from parc.compiler.diagnostics import Diagnostic, Sink

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
