"""Python API: compile, estimate and check a spec, given as a path or a mapping."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parc.compiler.diagnostics import Diagnostic, Sink
from parc.compiler.ir import AnyPlan, Estimate, ServingEstimate
from parc.compiler.pipeline import check_spec, plan_spec
from parc.compiler.spec.reading.source import Source, read_source

SpecInput = str | Path | Mapping[str, Any]


class SpecError(ValueError):
    """Error of a spec: ``diagnostics`` lists all findings, and the message shows them as text."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...], text: str) -> None:
        """Store the diagnostics; ``text`` is their rendering for a terminal."""
        super().__init__(text)
        self.diagnostics = diagnostics


def compile(spec: SpecInput) -> AnyPlan:
    """Return the plan of ``spec``; no file is written.

    Raises:
        SpecError: the spec has errors.
    """
    # Imported here, because text is needed only if the spec has errors.
    from parc.compiler.diagnostics.render.text import render_text

    sink = Sink()
    plan = plan_spec(_read_input(spec), (), sink)
    if plan is None:
        raise SpecError(sink.diagnostics, render_text(sink.diagnostics, sink.positions))
    return plan


def estimate(spec: SpecInput) -> Estimate | ServingEstimate:
    """Return memory, step time and traffic of the layout that ``compile`` chooses.

    Raises:
        SpecError: the spec has errors.
    """
    return compile(spec).estimate


def check(spec: SpecInput) -> list[Diagnostic]:
    """Return all diagnostics of ``spec`` and of the files that it compiles to.

    They are errors, warnings and advice.
    """
    sink = Sink()
    check_spec(_read_input(spec), (), sink)
    return list(sink.diagnostics)


def _read_input(spec: SpecInput) -> Source:
    """Return the text of the spec. A mapping is written as JSON, which is valid YAML."""
    if isinstance(spec, Mapping):
        return Source("<mapping>", json.dumps(spec, indent=2), None)
    return read_source(str(spec))
