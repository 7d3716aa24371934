"""Findings that explain why no layout is valid, with an edit of the spec that fixes the problem.

A pin is a layout value that the spec fixes, such as ``layout.tp: 8``.
"""

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

MAX_EXAMINED = 4_096
"""Largest number of layouts that are checked per edit, to bound the time of an explanation."""
NUMERIC_PINS = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "dp_shard", "cp_a2a")
"""Pins that are fixed by the nearest valid number. All other pins are fixed by their removal."""
NAMED_PINS = ("schedule", "cp_comm", "order")
"""Pins whose value is a name."""
BOOLEANS = {"true": True, "false": False}
SET_EDIT = re.compile(r"(layout|job)\.(\w+): (\S+)(?= |$)")
REMOVE_EDIT = re.compile(r"remove layout\.(\w+)$")


def suggest_pin_fix(problem: Problem, framework: Framework, finding: Finding, path: str) -> Finding:
    """Return ``finding`` with an edit as fix after which a valid layout exists, if there is one.

    The existing fix of ``finding`` is kept if it works, or if it cannot be tried because it is not
    a plain edit. Otherwise each layout setting of the spec is tried, the one at ``path`` first;
    edits that set an axis to 1 are the last choice. If no single edit works, the existing fix is
    kept as the first of several edits, unless it sets ``auto`` or changes nothing.
    """
    # None stands for a fix that cannot be tried here, such as a flag of another tool. It is kept.
    own = _apply_edit(problem, finding.fix)
    if finding.fix and (own is None or (own != problem and _has_valid_layout(own, framework))):
        return finding
    pinned = [one.name for one in fields(Pins) if getattr(problem.pins, one.name) is not None]
    first = path.removeprefix("layout.")
    # The setting that the finding points to comes first, because the user looks at that line.
    names = sorted(pinned, key=lambda name: name != first)
    edits = [edit for name in names if (edit := _find_edit_of_pin(problem, framework, name))]
    if edits:
        # An axis of 1 turns the strategy off, which is hardly what the user wants.
        return replace(finding, fix=min(edits, key=lambda edit: edit.endswith(": 1")))
    guess = own == problem or finding.fix.endswith(": auto")
    return replace(finding, fix="") if guess else finding


def _apply_edit(problem: Problem, fix: str) -> Problem | None:
    """Return ``problem`` after the edit ``fix``; None if the edit cannot be tried.

    An edit can be tried if it removes a setting of ``layout``, or sets one plain value in
    ``layout`` or ``job``.
    """
    if removed := REMOVE_EDIT.match(fix):
        known = hasattr(problem.pins, removed[1])
        return replace(problem, pins=_with_pin(problem, removed[1], None)) if known else None
    found = SET_EDIT.match(fix)
    if found is None:
        return None
    section, name, text = found[1], found[2], found[3]
    if section == "job":
        return _with_job_setting(problem, name, int(text)) if text.isdecimal() else None
    if text == "auto" and hasattr(problem.pins, name):
        return replace(problem, pins=_with_pin(problem, name, None))
    if text.isdecimal() or text in BOOLEANS or name in NAMED_PINS:
        value = int(text) if text.isdecimal() else BOOLEANS.get(text, text)
        return replace(problem, pins=_with_pin(problem, name, value))
    return None


def _with_job_setting(problem: Problem, name: str, value: int) -> Problem | None:
    job = problem.job
    if name == "global_batch":
        return replace(problem, job=replace(job, global_batch=value))
    if name == "sequence_length":
        return replace(problem, job=replace(job, sequence_length=value))
    return None


def _with_pin(problem: Problem, name: str, value: int | str | None) -> Pins:
    changed: dict[str, Any] = {name: value}
    return replace(problem.pins, **changed)


def _find_edit_of_pin(problem: Problem, framework: Framework, name: str) -> str:
    """Return an edit of the layout setting ``name`` after which a valid layout exists.

    The result is "" if there is no such edit.
    """
    released = replace(problem, pins=_with_pin(problem, name, None))
    if name not in NUMERIC_PINS:
        return f"remove layout.{name}" if _has_valid_layout(released, framework) else ""
    values = {getattr(layout, name) for layout in _valid_layouts(released, framework)}
    at = getattr(problem.pins, name)
    # The nearest valid value; of two that are equally near, the larger one.
    value = min(values, key=lambda value: (abs(value - at), -value), default=None)
    return "" if value is None else f"layout.{name}: {value}"


def _has_valid_layout(problem: Problem, framework: Framework) -> bool:
    """Return True if one of the first ``MAX_EXAMINED`` layouts of ``problem`` is valid."""
    return any(True for _ in _valid_layouts(problem, framework))


def _valid_layouts(problem: Problem, framework: Framework) -> Iterator[Layout]:
    """Yield the valid layouts among the first ``MAX_EXAMINED`` layouts of ``problem``."""
    # Memory is not estimated here: a fix must satisfy the rules, and a later compile checks memory.
    rules = all_rules(problem, framework)
    fastest = fastest_exchange(pricing_for(problem, framework), rules)
    variants = framework.variants(problem)
    spaces = (LayoutSpace.for_variant(problem, framework, one, fastest) for one in variants)
    siblings = chain.from_iterable(map(sibling_layouts, spaces))
    for layout in islice(chain.from_iterable(siblings), MAX_EXAMINED):
        if not any(rule.broken(problem, layout) for rule in rules):
            yield layout


CONSERVATION = ("P01", "P02")
"""Rules that require all layers; a split of ``floor_split`` violates them, as it drops layers."""


def explain_invalid(
    problem: Problem, framework: Framework, layouts: Iterable[Layout], sink: Sink
) -> None:
    """Report why none of ``layouts`` is valid.

    Each rule that all layouts violate becomes a finding at the setting that it checks. If there is
    no such rule, the violations of the layout with the fewest violations are reported.
    """
    rules = all_rules(problem, framework)
    broken = {
        layout: [rule for rule in rules if rule.broken(problem, layout)] for layout in layouts
    }
    if not broken:
        sink.report("G01", _no_layout_finding(problem), at="layout")
        return
    # A finding explains one layout, so the one with the fewest violations needs the fewest edits.
    closest = min(broken, key=lambda layout: len(broken[layout]))
    always = set.intersection(*({rule.code for rule in found} for found in broken.values()))
    shown = [rule for rule in broken[closest] if rule.code in always] or broken[closest]
    if framework.splits(problem, closest.pp, closest.vpp) is None:
        # The split of this layout comes from floor_split, because the framework has none. So the
        # framework explains why, and the rules that floor_split violates are not reported.
        code, path, finding = framework.why_no_split(problem, closest.pp, closest.vpp)
        sink.report(code, suggest_pin_fix(problem, framework, finding, path), at=path)
        shown = [rule for rule in shown if rule.code not in CONSERVATION]
    for rule in shown:
        path = sink.positions.first_path_in_spec(rule.fields)
        finding = suggest_pin_fix(problem, framework, rule.explain(problem, closest), path)
        sink.report(rule.code, finding, at=path)


def _no_layout_finding(problem: Problem) -> Finding:
    return Finding(
        message=f"no layout of {problem.cluster.gpus} GPUs satisfies the settings of layout"
        + (" and the limits" if problem.goals.limits else ""),
        help="remove a fixed size from layout, or change the number of GPUs",
        causes=(
            Cause("cluster", f"{problem.cluster.nodes} hosts x {problem.cluster.node.gpus} GPUs"),
            *(
                Cause(f"goals.limits.{limit.axis}", f"limits {limit.axis}")
                for limit in problem.goals.limits
            ),
        ),
    )
