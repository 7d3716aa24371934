"""Application of the edits that fixes of findings suggest to a training problem."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from parc.compiler.ir import Pins, Problem

_NAMED_PINS = ("schedule", "cp_comm", "order")
"""Pins whose value is a name."""
_BOOLEANS = {"true": True, "false": False}
_SET_EDIT = re.compile(r"(layout|job)\.(\w+): (\S+)(?= |$)")
_REMOVE_EDIT = re.compile(r"remove layout\.(\w+)$")
_LIMIT_EDIT = re.compile(r"remove goals\.limits\.(\w+)$")


def apply_edit(problem: Problem, fix: str) -> Problem | None:
    """Return ``problem`` after the edit ``fix``; None if the edit cannot be tried.

    An edit can be tried if it removes a setting of ``layout`` or a limit of ``goals``, or if it
    sets a plain value in ``layout`` or ``job``.
    """
    if axis := limit_of_edit(fix):
        return without_limit(problem, axis)
    if removed := _REMOVE_EDIT.match(fix):
        known = hasattr(problem.pins, removed[1])
        return (
            replace(problem, pins=with_layout_setting(problem, removed[1], None)) if known else None
        )
    found = _SET_EDIT.match(fix)
    if found is None:
        return None
    section, name, text = found[1], found[2], found[3]
    if section == "job":
        return _with_job_setting(problem, name, int(text)) if text.isdecimal() else None
    if text == "auto" and hasattr(problem.pins, name):
        return replace(problem, pins=with_layout_setting(problem, name, None))
    if text.isdecimal() or text in _BOOLEANS or name in _NAMED_PINS:
        value = int(text) if text.isdecimal() else _BOOLEANS.get(text, text)
        return replace(problem, pins=with_layout_setting(problem, name, value))
    return None


def _with_job_setting(problem: Problem, name: str, value: int) -> Problem | None:
    job = problem.job
    if name == "global_batch":
        return replace(problem, job=replace(job, global_batch=value))
    if name == "sequence_length":
        return replace(problem, job=replace(job, sequence_length=value))
    return None


def with_layout_setting(problem: Problem, name: str, value: int | str | None) -> Pins:
    """Return the pins of ``problem`` with another value of ``name``; None releases the pin."""
    changed: dict[str, Any] = {name: value}
    return replace(problem.pins, **changed)


def limit_edits(problem: Problem) -> list[str]:
    """Return the edits that remove one of the limits on parallel sizes each."""
    return [f"remove goals.limits.{one.axis}" for one in problem.goals.limits]


def limit_of_edit(fix: str) -> str:
    """Return the axis of the limit that the edit ``fix`` removes; "" for any other edit."""
    match = _LIMIT_EDIT.match(fix)
    return match[1] if match else ""


def without_limit(problem: Problem, axis: str) -> Problem:
    """Return ``problem`` without the limit on ``axis``."""
    others = tuple(one for one in problem.goals.limits if one.axis != axis)
    return replace(problem, goals=replace(problem.goals, limits=others))
