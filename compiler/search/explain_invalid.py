"""Findings that explain why no layout is valid, with the edit of the pins that fixes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from itertools import chain, islice
from typing import Any

from parc.backends.base import Framework
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, Pins, Problem
from parc.compiler.resolve.resolve_kernels import pricing_for
from parc.compiler.search.choose_context_exchange import fastest_exchange
from parc.compiler.search.layout_space import LayoutSpace, sibling_layouts

MOST = 4_096
"""Most layouts that are examined per edit."""
COUNTS = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "dp_shard", "cp_a2a")
"""Pins for which the fix is the nearest valid number; for other pins it is their removal."""
WORDS = ("schedule", "cp_comm", "order")
SWITCHES = {"true": True, "false": False}
SET = re.compile(r"(layout|job)\.(\w+): (\S+)(?= |$)")
REMOVED = re.compile(r"remove layout\.(\w+)$")


def suggest_pin_fix(problem: Problem, framework: Framework, finding: Finding, path: str) -> Finding:
    """Return ``finding`` with an edit after which a valid layout exists, if there is one.

    The edit of ``finding`` stays if a layout is valid after it, or if it does not edit a plain pin.
    Otherwise the fix changes the pin at ``path``, or the first other pin that suffices; edits that
    set an axis to 1 come last. If no single edit suffices, the edit of ``finding`` stays as the
    first of several, unless it contains no value.
    """
    own = _edited(problem, finding.fix)
    if finding.fix and (own is None or (own != problem and _has_valid_layout(own, framework))):
        return finding
    pinned = [one.name for one in fields(Pins) if getattr(problem.pins, one.name) is not None]
    first = path.removeprefix("layout.")
    names = sorted(pinned, key=lambda name: name != first)
    edits = [edit for name in names if (edit := _fix_of_pin(problem, framework, name))]
    if edits:
        return replace(finding, fix=min(edits, key=lambda edit: edit.endswith(": 1")))
    guess = own == problem or finding.fix.endswith(": auto")
    return replace(finding, fix="") if guess else finding


def _edited(problem: Problem, fix: str) -> Problem | None:
    """Return ``problem`` after the edit ``fix``; None unless it sets a plain value of either."""
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


def _fix_of_pin(problem: Problem, framework: Framework, name: str) -> str:
    """Return the edit of pin ``name`` after which a layout is valid; empty if there is none."""
    released = replace(problem, pins=_pinned(problem, name, None))
    if name not in COUNTS:
        return f"remove layout.{name}" if _has_valid_layout(released, framework) else ""
    values = {getattr(layout, name) for layout in _valid_layouts(released, framework)}
    at = getattr(problem.pins, name)
    value = min(values, key=lambda value: (abs(value - at), -value), default=None)
    return "" if value is None else f"layout.{name}: {value}"


def _has_valid_layout(problem: Problem, framework: Framework) -> bool:
    """Return True if one of the first ``MOST`` layouts is valid."""
    return any(True for _ in _valid_layouts(problem, framework))


def _valid_layouts(problem: Problem, framework: Framework) -> Iterator[Layout]:
    """Yield the valid layouts among the first ``MOST``."""
    rules = all_rules(problem, framework)
    fastest = fastest_exchange(pricing_for(problem, framework), rules)
    variants = framework.variants(problem)
    spaces = (LayoutSpace.of(problem, framework, one, fastest) for one in variants)
    siblings = chain.from_iterable(map(sibling_layouts, spaces))
    for layout in islice(chain.from_iterable(siblings), MOST):
        if not any(rule.broken(problem, layout) for rule in rules):
            yield layout


CONSERVATION = ("P01", "P02")
"""Rules that a stand-in split (``floor_split``) violates by construction."""


def explain_invalid(
    problem: Problem, framework: Framework, layouts: Iterable[Layout], sink: Sink
) -> None:
    """Report why none of ``layouts`` is valid.

    A rule that all layouts violate becomes a finding at the pin that it reads. If there is no such
    rule, the layout with the fewest violations is explained.
    """
    rules = all_rules(problem, framework)
    broken = {
        layout: [rule for rule in rules if rule.broken(problem, layout)] for layout in layouts
    }
    if not broken:
        sink.report("G01", _nothing_enumerated(problem), at="layout")
        return
    closest = min(broken, key=lambda layout: len(broken[layout]))
    always = set.intersection(*({rule.code for rule in found} for found in broken.values()))
    shown = [rule for rule in broken[closest] if rule.code in always] or broken[closest]
    if framework.splits(problem, closest.pp, closest.vpp) is None:
        # This layout has a stand-in split. The framework explains why it has no real one.
        code, path, finding = framework.why_no_split(problem, closest.pp, closest.vpp)
        sink.report(code, suggest_pin_fix(problem, framework, finding, path), at=path)
        shown = [rule for rule in shown if rule.code not in CONSERVATION]
    for rule in shown:
        path = sink.positions.first_written(rule.fields)
        finding = suggest_pin_fix(problem, framework, rule.explain(problem, closest), path)
        sink.report(rule.code, finding, at=path)


def _nothing_enumerated(problem: Problem) -> Finding:
    return Finding(
        message=f"no layout of {problem.cluster.gpus} GPUs satisfies the pins"
        + (" and the limits" if problem.goals.limits else ""),
        help="unpin an axis, or change the number of GPUs",
        causes=(
            Cause("cluster", f"{problem.cluster.nodes} hosts x {problem.cluster.node.gpus}"),
            *(
                Cause(f"goals.limits.{limit.axis}", f"limits {limit.axis}")
                for limit in problem.goals.limits
            ),
        ),
    )
