"""What a spec leads to: findings, decisions and emitted files, without copies of the spec."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parc.backends.registry import backend, serving_backend
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan, ServingPlan
from parc.compiler.ir.serialize import as_json
from parc.compiler.pipeline import plan_spec
from tests.compiled import Spec, source_of


@dataclass(frozen=True)
class Outcome:
    """What the compiler makes of a spec."""

    decisions: str
    """Layout, estimate and placement as JSON; empty after an error."""
    files: frozenset[tuple[str, str]]
    """(path, text) of every file of the targets."""
    findings: frozenset[tuple[str, str, str]]
    """(code, spec path, all text) of every finding."""


def outcome_of(spec: Spec) -> Outcome:
    """Return the outcome of ``spec``. plan.json and the report, which repeat the spec, are left out."""
    sink = Sink()
    plan = plan_spec(source_of(spec), (), sink)
    found = frozenset((one.code, one.path, _text_of(one)) for one in sink.diagnostics)
    if plan is None:
        return Outcome("", frozenset(), found)
    # The run is also the name of the output folder.
    files = frozenset((f"{plan.problem.name}/{one.path}", one.text.replace(plan.problem.digest, "")) for one in _emit(plan))
    return Outcome(_decisions_of(plan), files, found)


def _text_of(found: Any) -> str:
    finding = found.finding
    causes = [f"{cause.path} {cause.text}" for cause in finding.causes]
    return " ".join((finding.message, finding.label, finding.help, finding.fix, *causes))


def _emit(plan: AnyPlan) -> list[Any]:
    if isinstance(plan, ServingPlan):
        found = [serving_backend(name).emit_serving(plan) for name in plan.problem.emit]
    else:
        found = [backend(name).emit(plan) for name in plan.problem.emit]
    return [artifact for artifacts in found for artifact in artifacts]


def _decisions_of(plan: AnyPlan) -> str:
    parts: Sequence[object] = (plan.layout, plan.estimate, plan.placement)
    return json.dumps([as_json(part) for part in parts], sort_keys=True)


@dataclass(frozen=True)
class Answer:
    """Way in which the compiler reacts to the values of a field."""

    kind: str
    """effect, finding, refused (the context of the field is an error with this target), or
    silent."""
    detail: str = ""


CANNOT_EXPRESS = ("PARC-E", "PARC-V")
"""Codes of what a target does not support."""


def answer_of(path: str, outcomes: Sequence[Outcome], absent: Outcome, plain: Outcome | None) -> Answer:
    """Return how the compiler answers to the values of a field, whose outcomes are given.

    ``absent`` is the outcome without the field, ``plain`` that without the context of the field.
    """
    valid = {(one.decisions, one.files) for one in outcomes if one.decisions}
    if len(valid) > 1 or (valid and not all(one.decisions for one in outcomes)):
        return Answer("effect")
    new = [found for one in outcomes for found in one.findings - absent.findings]
    if absent.decisions and not valid or any(_names_field(path, found) for found in new):
        return Answer("finding")
    context = absent.findings - plain.findings if plain else ()
    if not absent.decisions and any(one[0].startswith(CANNOT_EXPRESS) for one in context):
        return Answer("refused")
    codes = {found[0] for one in (*outcomes, absent) for found in one.findings}
    return Answer("silent", " ".join(sorted(codes)))


def _names_field(path: str, found: tuple[str, str, str]) -> bool:
    """Return True if a finding points to the field, to a key below it, or names it."""
    _, at, text = found
    field = path.replace("[]", "[0]")
    return at == field or at.startswith((f"{field}.", f"{field}[")) or field in text
