"""Walk over the fields of the spec: how the compiler answers to two values of each field.

The answer is looked for in what is planned and emitted. plan.json, parc.lock and report.html repeat
the spec, so they do not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from parc.backends.registry import backend, serving_backend
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan, Artifact, ServingPlan
from parc.compiler.ir.serialize import as_json
from parc.compiler.pipeline import plan_job, resolve_spec
from parc.compiler.spec.annotations import model_of
from parc.compiler.spec.service_spec import ServingSpec
from parc.compiler.spec.spec import Spec as TrainingSpec
from tests.compiled import Spec, source_of
from tests.laws.field_pairs import (
    SERVING,
    TRAINING,
    fields_of,
    needs_other_settings,
    placed,
    trials_of,
    values_of,
)

Found = frozenset[tuple[str, str, str]]
"""(code, spec path, all text) of every finding."""
FIXED = ("parc", "job.kind", "emit", "versions")
"""Fields that select the language, the kind of job and the targets, which a walk keeps."""
MALFORMED = {f"PARC-X{number:02}" for number in (2, 5, 6, 7)}
"""Codes of values that no spec can have, which would be a mistake of the tables in this folder."""
CANNOT_EXPRESS = ("PARC-E", "PARC-V")
"""First letters of the codes of what a target does not support."""
UNUSED = ("PARC-E13", "PARC-E14")
"""Codes of settings that no target uses."""


@dataclass(frozen=True)
class Outcome:
    """Result of a compile, without texts that repeat the spec."""

    decisions: str
    """Layout, estimate and placement as JSON; empty after an error."""
    files: frozenset[tuple[str, str]]
    """(path, text) of every file of the targets."""
    findings: Found


@dataclass(frozen=True)
class Answer:
    """Way in which the compiler answers to different values of a field."""

    kind: str
    """``effect`` on files or decisions; ``finding`` about the field; ``refused``, if the target
    rejects the settings without which the field means nothing; ``silent``; or ``false``, if a
    finding says that the field is not used, but it has an effect."""
    detail: str = ""


def walk(emit: tuple[str, ...], serving: bool = False, below: str = "") -> dict[str, Answer]:
    """Return field -> answer for the targets ``emit``, for the fields that start with ``below``."""
    root = ServingSpec if serving else TrainingSpec
    return {
        path: _answer_to_field(path, values, emit, serving)
        for path, annotation in fields_of(root)
        if path not in FIXED and path.startswith(below)
        # A section has no values of its own if its fields are walked.
        if (values := values_of(path, annotation)) or model_of(annotation) is None
    }


def silent_fields(
    emit: tuple[str, ...], serving: bool, below: str, sections: tuple[str, ...]
) -> list[str]:
    """Return the fields that need other settings, and are neither used nor reported without them.

    The fields start with ``below`` and with one of ``sections``.
    """
    base = _with_targets((SERVING if serving else TRAINING)[0], emit)
    return [
        path
        for path, annotation in fields_of(ServingSpec if serving else TrainingSpec)
        if path.startswith(below) and path.startswith(sections) and path not in FIXED
        if needs_other_settings(path) and (values := values_of(path, annotation))
        if _Trial(path, base, None).answer_to(values).kind == "silent"
    ]


def dropped_model_fields(emit: tuple[str, ...]) -> list[str]:
    """Return the fields of a training model that the files of ``emit`` lack without a finding.

    With two values of such a field, PARC plans different models, but the files train the same one.
    """
    return [
        path
        for path, annotation in fields_of(TrainingSpec)
        if path.startswith("model.") and (values := values_of(path, annotation))
        if any(
            _Trial(path, _with_targets(spec, emit), None).is_dropped(values)
            for _, spec in trials_of(path, TRAINING)
        )
    ]


def _answer_to_field(
    path: str, values: tuple[Any, ...], emit: tuple[str, ...], serving: bool
) -> Answer:
    """Return the first answer that is not silence, over all specs in which the field may count."""
    assert len(values) > 1, f"{path}: add two values to PAIRS"
    answers = []
    for plain, spec in trials_of(path, SERVING if serving else TRAINING):
        trial = _Trial(path, _with_targets(spec, emit), plain and _with_targets(plain, emit))
        answer = trial.answer_to(values)
        if answer.kind != "silent":
            return answer
        answers.append(answer.detail)
    return Answer("silent", " | ".join(answers))


def _with_targets(spec: Spec, emit: tuple[str, ...]) -> Spec:
    """Return ``spec`` with ``emit``, and with the settings that the targets require."""
    spec = {**spec, "emit": list(emit)}
    return placed(spec, "launch.kubernetes.image", "image") if "kubernetes" in emit else spec


@dataclass(frozen=True)
class _Trial:
    """A spec in which the values of a field are compared."""

    path: str
    spec: Spec
    plain: Spec | None
    """Spec without the settings that make the field count; None if there are no such settings."""

    def answer_to(self, values: tuple[Any, ...]) -> Answer:
        """Return the answer; outcomes are computed until one of them is not silence."""
        outcomes: list[Outcome] = []
        for outcome in map(self._outcome_with, values):
            codes = {found[0] for found in outcome.findings}
            assert not codes & MALFORMED, (self.path, outcome.findings)
            outcomes.append(outcome)
            if len(outcomes) > 1 and (answer := self._answer(outcomes)).kind != "silent":
                return answer
        return self._answer(outcomes)

    def is_dropped(self, values: tuple[Any, ...]) -> bool:
        """Return True if two values lead to other decisions, the same files, and no finding."""
        absent = outcome_of(self.spec).findings
        decisions: dict[frozenset[tuple[str, str]], str] = {}
        for outcome in map(self._outcome_with, values):
            reported = any(_names_field(self.path, found) for found in outcome.findings - absent)
            if not outcome.decisions or reported:
                continue
            if decisions.setdefault(outcome.files, outcome.decisions) != outcome.decisions:
                return True
        return False

    def _outcome_with(self, value: Any) -> Outcome:
        return outcome_of(placed(self.spec, self.path, value))

    def _answer(self, outcomes: list[Outcome]) -> Answer:
        absent = outcome_of(self.spec)
        new = [found for one in outcomes for found in one.findings - absent.findings]
        about = {found[0] for found in new if _names_field(self.path, found)}
        valid = {(one.decisions, one.files) for one in outcomes if one.decisions}
        if len(valid) > 1:
            return Answer("false" if about.intersection(UNUSED) else "effect", str(about))
        if valid and not all(one.decisions for one in outcomes):
            return Answer("effect")
        # A new finding about the section, such as job.lora, or a field that it lacks is about all
        # fields of the section.
        section = self.path.rpartition(".")[0]
        about |= {
            code for code, at, _ in new if "." in section and f"{at}.".startswith(f"{section}.")
        }
        if about or (absent.decisions and not valid) or len({one.findings for one in outcomes}) > 1:
            return Answer("finding")
        if self.plain is not None and not absent.decisions:
            context = absent.findings - outcome_of(self.plain).findings
            if any(found[0].startswith(CANNOT_EXPRESS) for found in context):
                return Answer("refused")
        return Answer("silent", " ".join(sorted({found[0] for found in (*new, *absent.findings)})))


def _names_field(path: str, found: tuple[str, str, str]) -> bool:
    """Return True if a finding points to the field, to a key below it, or names it."""
    _, at, text = found
    field = path.replace("[]", "[0]")
    return at == field or at.startswith((f"{field}.", f"{field}[")) or field in text


def outcome_of(spec: Spec) -> Outcome:
    """Return the outcome of ``spec``; outcomes are kept, because trials share specs."""
    return _outcome(json.dumps(spec))


@cache
def _outcome(text: str) -> Outcome:
    sink = Sink()
    # Without trying the fixes of its findings, which would compile each rejected spec again.
    problem = resolve_spec(source_of(json.loads(text)), (), sink)
    plan = None if problem is None else plan_job(problem, sink)
    findings = frozenset((one.code, one.path, _text_of(one)) for one in sink.diagnostics)
    if plan is None:
        return Outcome("", frozenset(), findings)
    # The run is also the name of the output folder.
    pools = plan.pools if isinstance(plan, ServingPlan) else (plan,)
    files = frozenset(
        (f"{pool.problem.name}/{one.path}", one.text) for pool in pools for one in _emit(pool)
    )
    decisions = [
        as_json(part) for pool in pools for part in (pool.layout, pool.estimate, pool.placement)
    ]
    return Outcome(json.dumps(decisions, sort_keys=True), files, findings)


def _text_of(found: Any) -> str:
    finding = found.finding
    causes = [f"{cause.path} {cause.text}" for cause in finding.causes]
    return " ".join((finding.message, finding.label, finding.help, finding.fix, *causes))


def _emit(plan: AnyPlan) -> Iterator[Artifact]:
    for name in plan.problem.emit:
        if isinstance(plan, ServingPlan):
            yield from serving_backend(name).emit_serving(plan)
        else:
            yield from backend(name).emit(plan)
