"""Pins that leave no legal layout -> the one edit after which there is one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import chain, islice
from typing import Any

from parc.backends.base import Framework
from parc.compiler.diagnostics import Finding
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, Pins, Problem
from parc.compiler.resolve.resolve_kernels import pricing_for
from parc.compiler.search.choose_exchange import fastest_exchange
from parc.compiler.search.search_space import Space, families_of

MOST = 4_096
"""Layouts that are looked at for one edit."""
COUNTS = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "dp_shard", "cp_a2a")
"""Pins for which the nearest legal number is offered; of others, their removal."""
WORDS = ("schedule", "cp_comm", "order")
SWITCHES = {"true": True, "false": False}
SET = re.compile(r"(layout|job)\.(\w+): (\S+)(?= |$)")
REMOVED = re.compile(r"remove layout\.(\w+)$")


def mend_pins(problem: Problem, framework: Framework, finding: Finding, path: str) -> Finding:
    """``finding`` with an edit that works, where there is one.

    Its own edit stays if some layout is legal after it, or if it is none of a plain pin. Else the
    pin at ``path`` is changed, else the first other pin that is enough; one that would end an axis
    comes last. Where no single edit is enough, the own one stays, as the first of several, unless
    it names no value.
    """
    own = _edited(problem, finding.fix)
    if finding.fix and (own is None or (own != problem and next(_legal(own, framework), None))):
        return finding
    pinned = [one.name for one in fields(Pins) if getattr(problem.pins, one.name) is not None]
    first = path.removeprefix("layout.")
    names = sorted(pinned, key=lambda name: name != first)
    edits = [edit for name in names if (edit := _release(problem, framework, name))]
    if edits:
        return replace(finding, fix=min(edits, key=lambda edit: edit.endswith(": 1")))
    guess = own == problem or finding.fix.endswith(": auto")
    return replace(finding, fix="") if guess else finding


def _edited(problem: Problem, fix: str) -> Problem | None:
    """``problem`` after the edit ``fix``; None where that is no plain value of layout or job."""
    if removed := REMOVED.match(fix):
        known = hasattr(problem.pins, removed[1])
        return replace(problem, pins=_pinned(problem, removed[1], None)) if known else None
    found = SET.match(fix)
    if found is None:
        return None
    section, name, text = found[1], found[2], found[3]
    if section == "job":
        return _with_job(problem, name, int(text)) if text.isdecimal() else None
    if text == "auto" and hasattr(problem.pins, name):
        return replace(problem, pins=_pinned(problem, name, None))
    if text.isdecimal() or text in SWITCHES or name in WORDS:
        value = int(text) if text.isdecimal() else SWITCHES.get(text, text)
        return replace(problem, pins=_pinned(problem, name, value))
    return None


def _with_job(problem: Problem, name: str, value: int) -> Problem | None:
    job = problem.job
    if name == "global_batch":
        return replace(problem, job=replace(job, global_batch=value))
    if name == "sequence_length":
        return replace(problem, job=replace(job, sequence_length=value))
    return None


def _pinned(problem: Problem, name: str, value: int | str | None) -> Pins:
    changed: dict[str, Any] = {name: value}
    return replace(problem.pins, **changed)


def _release(problem: Problem, framework: Framework, name: str) -> str:
    """The edit of pin ``name`` that leaves a legal layout; empty where none does."""
    released = replace(problem, pins=_pinned(problem, name, None))
    if name not in COUNTS:
        return f"remove layout.{name}" if next(_legal(released, framework), None) else ""
    values = {getattr(layout, name) for layout in _legal(released, framework)}
    at = getattr(problem.pins, name)
    value = min(values, key=lambda value: (abs(value - at), -value), default=None)
    return "" if value is None else f"layout.{name}: {value}"


def _legal(problem: Problem, framework: Framework) -> Iterator[Layout]:
    """Legal layouts among the first ones."""
    rules = all_rules(problem, framework)
    fastest = fastest_exchange(pricing_for(problem, framework), rules)
    spaces = (Space.of(problem, framework, one, fastest) for one in framework.variants(problem))
    families = chain.from_iterable(map(families_of, spaces))
    for layout in islice(chain.from_iterable(families), MOST):
        if not any(rule.broken(problem, layout) for rule in rules):
            yield layout
