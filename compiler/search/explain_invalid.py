"""Findings that explain why no layout is valid, with an edit of the spec that fixes the problem.

A pin is a layout value that the spec fixes, such as ``layout.tp: 8``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cache, lru_cache
from itertools import chain, islice

from parc.backends.base import Framework
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.evaluate.apply_edit import (
    apply_edit,
    limit_edits,
    limit_of_edit,
    with_layout_setting,
    without_limit,
)
from parc.compiler.evaluate.explain_no_layout import explain_no_layout
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, Pins, Problem
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.rule import Rule
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.search.choose_context_exchange import ChooseExchange, fastest_exchange
from parc.compiler.search.layout_space import LayoutSpace, sibling_layouts
from parc.compiler.search.other_frameworks import name_other_frameworks

MAX_EXAMINED = 4_096
"""Largest number of layouts that are checked per edit, to bound the time of an explanation."""
MAX_VALUES = 6
"""Largest number of values of a setting that are tried as the first of several edits."""
CACHED_EDITS = 256
"""Largest number of edited problems whose result is kept: more than one explanation tries, because
each violated rule tries the same edits of the same settings."""
NUMERIC_PINS = (
    "tp",
    "cp",
    "pp",
    "vpp",
    "dp",
    "ep",
    "etp",
    "micro_batch",
    "dp_shard",
    "cp_a2a",
    "gtp",
    "egtp",
)
"""Pins with a number, for which the fix is the nearest valid number. For all other pins, the fix is
to remove the pin."""


def suggest_pin_fix(
    problem: Problem, framework: Framework, finding: Finding, at: tuple[str, str]
) -> tuple[Finding, bool]:
    """Return ``finding`` with a fix, and True if a valid layout exists after this fix.

    The current fix of ``finding`` is kept if it works, or if it cannot be tried because it is not a
    plain edit. Otherwise, the following fixes are tried: first an edit of the setting to which the
    finding points, then an edit of another setting that the spec fixes, and last the first of
    several edits. An edit that sets an axis to 1 is used only if no other single edit works. ``at``
    is (code, spec path) of the finding.
    """
    code, path = at
    # None stands for a fix that cannot be tried here, such as a flag of another tool. It is kept.
    own = apply_edit(problem, finding.fix)
    if finding.fix and (own is None or (own != problem and _has_valid_layout(own, framework))):
        return finding, own is not None
    pinned = [one.name for one in fields(Pins) if one.name in _fixed_settings(problem)]
    first = path.removeprefix("layout.")
    # The setting that the finding points to comes first, because the user looks at that line.
    names = sorted(pinned, key=lambda name: name != first)
    edits = [edit for name in names if (edit := _find_edit_of_setting(problem, framework, name))]
    edits = edits or [one for one in limit_edits(problem) if _works(problem, framework, one)]
    if edits:
        # An axis of 1 turns the strategy off, which is hardly what the user wants.
        return replace(finding, fix=min(edits, key=lambda edit: edit.endswith(": 1"))), True
    fix = _find_first_edit(problem, framework, finding, (code, first))
    return replace(finding, fix=fix), False


def _works(problem: Problem, framework: Framework, edit: str) -> bool:
    changed = apply_edit(problem, edit)
    return changed is not None and _has_valid_layout(changed, framework)


def _find_first_edit(
    problem: Problem, framework: Framework, finding: Finding, at: tuple[str, str]
) -> str:
    """Return the first of several edits: it solves ``finding`` and violates no further rule.

    The fix of ``finding`` is tried first, then the nearest values of the setting to which the
    finding points. ``at`` is (code of the finding, name of this setting). If no edit works, the
    result is "". A fix that is not a plain edit cannot be tried, and is returned as it is.
    """
    code, name = at
    edits = [] if finding.fix.endswith(": auto") else [finding.fix]
    if name in _fixed_settings(problem) and name in NUMERIC_PINS:
        released = replace(problem, pins=with_layout_setting(problem, name, None))
        rules = all_rules(problem, framework)
        layouts = islice(_enumerate_layouts(released, framework, rules), MAX_EXAMINED)
        now = getattr(problem.pins, name)
        near = sorted(
            {getattr(layout, name) for layout in layouts} - {now},
            key=lambda value: (abs(value - now), -value),
        )
        edits += [f"layout.{name}: {value}" for value in near[:MAX_VALUES]]
    if name in _fixed_settings(problem):
        # Two settings may each be wrong with any value of the other one.
        edits += [finding.fix] * finding.fix.endswith(": auto") or [f"remove layout.{name}"]
    before = _rules_violated_by_all(problem, framework)
    path = name if "." in name else f"layout.{name}"
    others = {(other, paths) for other, paths in before if other != code or path not in paths}
    for edit in edits:
        changed = apply_edit(problem, edit)
        if changed is None or changed == problem:
            continue
        if _rules_violated_by_all(changed, framework) <= others:
            return edit
    # A fix in words, or a flag of another tool, cannot be tried.
    return finding.fix if apply_edit(problem, finding.fix) is None else ""


def _fixed_settings(problem: Problem) -> frozenset[str]:
    """Return the names of the layout settings that the spec fixes."""
    names = (one.name for one in fields(Pins))
    return frozenset(name for name in names if getattr(problem.pins, name) is not None)


@lru_cache(CACHED_EDITS)
def _find_edit_of_setting(problem: Problem, framework: Framework, name: str) -> str:
    """Return an edit of the layout setting ``name`` after which a valid layout exists.

    The result is "" if there is no such edit.
    """
    released = replace(problem, pins=with_layout_setting(problem, name, None))
    if name not in NUMERIC_PINS:
        return f"remove layout.{name}" if _has_valid_layout(released, framework) else ""
    values = {getattr(layout, name) for layout in _valid_layouts(released, framework)}
    at = getattr(problem.pins, name)
    # The nearest valid value; of two that are equally near, the larger one.
    value = min(values, key=lambda value: (abs(value - at), -value), default=None)
    if value is None:
        return ""
    # Some values are only valid if PARC chooses them, such as cp_a2a 1.
    tried = replace(problem, pins=with_layout_setting(problem, name, value))
    works = _has_valid_layout(tried, framework)
    return f"layout.{name}: {value}" if works else f"remove layout.{name}"


@lru_cache(CACHED_EDITS)
def _has_valid_layout(problem: Problem, framework: Framework) -> bool:
    """Return True if one of the first ``MAX_EXAMINED`` layouts of ``problem`` is valid."""
    return any(True for _ in _valid_layouts(problem, framework))


def _valid_layouts(problem: Problem, framework: Framework) -> Iterator[Layout]:
    """Yield the valid layouts among the first ``MAX_EXAMINED`` layouts of ``problem``."""
    # Memory is not estimated here: a fix must satisfy the rules, and a later compile checks memory.
    rules = all_rules(problem, framework)
    # Most layouts violate the same rule as the layout before them, so this rule is checked first.
    last = rules[0]
    for layout in islice(_enumerate_layouts(problem, framework, rules), MAX_EXAMINED):
        if last.broken(problem, layout):
            continue
        broken = next((rule for rule in rules if rule.broken(problem, layout)), None)
        if broken is None:
            yield layout
        else:
            last = broken


def _enumerate_layouts(
    problem: Problem, framework: Framework, rules: tuple[Rule, ...]
) -> Iterator[Layout]:
    """Return an iterator over all layouts of ``problem``, valid or not."""

    @cache
    def choose_exchange() -> ChooseExchange:
        # Only layouts with context parallelism need the cost model, which takes long to build.
        return fastest_exchange(cost_model_for(problem, framework), rules)

    variants = framework.layout_variants(problem)
    spaces = (
        LayoutSpace.for_variant(problem, framework, one, lambda layout: choose_exchange()(layout))
        for one in variants
    )
    return chain.from_iterable(chain.from_iterable(map(sibling_layouts, spaces)))


MOST_CHUNKS = 1024
"""Largest number of model chunks of a layout whose rules are checked; no known model has as many
layers."""
CONSERVATION = ("P01", "P02")
"""Rules that require all layers. A split of ``truncated_split`` violates these rules, because it
leaves out layers."""


def explain_invalid(
    problem: Problem, framework: Framework, layouts: Iterable[Layout], sink: Sink
) -> None:
    """Report why none of ``layouts`` is valid, with one error per root cause.

    The errors explain the layout that violates the fewest rules. If some rules are violated by all
    layouts, only these rules are reported. A violation that is a consequence of another one is not
    reported.
    """
    rules = all_rules(problem, framework)
    broken = {
        layout: [rule for rule in rules if rule.broken(problem, layout)] for layout in layouts
    }
    if not broken:
        limit = _find_excluding_limit(problem, framework, rules)
        where = f"goals.limits.{limit}" if limit else "layout"
        sink.report("G01", explain_no_layout(problem, limit), at=where)
        return
    # A finding explains one layout, so the one with the fewest violations needs the fewest edits.
    closest = min(broken, key=lambda layout: len(broken[layout]))
    always = set.intersection(*({rule.code for rule in found} for found in broken.values()))
    shown = [rule for rule in broken[closest] if rule.code in always] or broken[closest]
    violations: list[_Violation] = []
    pinned = _fixed_settings(problem)
    if framework.find_split(problem, closest.pp, closest.vpp) is None:
        # The split of this layout comes from truncated_split, because the framework has none. So
        # the framework explains why, and the rules that truncated_split violates are not reported.
        code, path, finding = framework.why_no_split(problem, closest.pp, closest.vpp)
        finding = name_other_frameworks(finding, (code, path), problem, closest)
        fixed = suggest_pin_fix(problem, framework, finding, (code, path))
        own = path.removeprefix("layout.") in pinned
        violations.append(_Violation(code, (path,), path, *fixed, own))
        shown = [rule for rule in shown if rule.code not in CONSERVATION and rule.code != code]
    for rule in shown:
        path = sink.positions.first_path_in_spec(rule.fields)
        at = (rule.code, path)
        finding = name_other_frameworks(rule.explain(problem, closest), at, problem, closest)
        fixed = suggest_pin_fix(problem, framework, finding, at)
        own = bool(rule.reads) and pinned.issuperset(rule.reads)
        violations.append(_Violation(rule.code, rule.fields, path, *fixed, own))
    for one in _root_causes(problem, framework, violations):
        limit = limit_of_edit(one.finding.fix)
        hidden = limit and not sink.positions.is_path_in_spec(one.path)
        sink.report(one.code, one.finding, at=f"goals.limits.{limit}" if hidden else one.path)


def report_excess_chunks(problem: Problem, framework: Framework, sink: Sink) -> bool:
    """Report a fixed number of stages or virtual stages that is far above the number of layers.

    Returns True if it was reported. Such layouts are not built: the time to check the rules of a
    layout grows with its number of model chunks.
    """
    pp, vpp = problem.pins.pp or 1, problem.pins.vpp or 1
    if pp * vpp <= max(MOST_CHUNKS, problem.model.layers + 2):
        return False
    code, path, finding = framework.why_no_split(problem, problem.pins.pp or 2, vpp)
    sink.report(code, finding, at=path)
    return True


@frozen
class _Violation:
    """Violated rule with its explanation."""

    code: str
    fields: tuple[str, ...]
    """Spec paths to which the finding can point. If the framework has no split of the layers, only
    ``path``."""
    path: str
    finding: Finding
    solved: bool
    """True if a valid layout exists after the fix of the finding."""
    own: bool
    """True if the spec fixes all layout values that the rule reads, and the rule reads at least
    one."""

    def with_fix_after(
        self, earlier: Sequence[_Violation], problem: Problem, fixed: Problem, framework: Framework
    ) -> _Violation:
        """Return this violation with a fix for ``fixed``: ``problem`` with the ``earlier`` fixes.

        If the fix does not help without the earlier fixes, the help names them.
        """
        found = self.with_fix_for(fixed, framework)
        alone = apply_edit(problem, found.finding.fix)
        if alone is None or (self.code, self.fields) not in _rules_violated_by_all(
            alone, framework
        ):
            return found
        fixes = ", ".join(one.finding.fix for one in earlier if one.finding.fix)
        parts = filter(None, (found.finding.help, f"the fix assumes {fixes}" if fixes else ""))
        return replace(found, finding=replace(found.finding, help="; ".join(parts)))

    def with_fix_for(self, problem: Problem, framework: Framework) -> _Violation:
        """Return this violation with a new fix that is suggested for ``problem``.

        ``problem`` already contains the fixes of the violations that were reported before.
        """
        finding, solved = suggest_pin_fix(problem, framework, self.finding, (self.code, self.path))
        return replace(self, finding=finding, solved=solved)


def _root_causes(
    problem: Problem, framework: Framework, violations: list[_Violation]
) -> list[_Violation]:
    """Return one violation per root cause.

    Violations with the same fix have the same root cause. Violations that involve only values from
    the spec come first, one per setting. Other violations also involve values that the search
    chose. They are returned only if they remain after the fixes of the violations before them.
    """
    violations = _merge_equal_fixes(violations)
    own: dict[str, _Violation] = {}
    for one in violations:
        if one.own:
            own.setdefault(one.path, one)
    if not own:
        return violations
    fixed, reported = problem, list[_Violation]()
    for one in own.values():
        if reported:
            if _has_valid_layout(fixed, framework):
                break  # this violation followed from the ones before it
            one = one.with_fix_after(reported, problem, fixed, framework)
        reported.append(one)
        fixed = apply_edit(fixed, one.finding.fix) or fixed
    if fixed != problem:
        # An edit may work only together with those of the violations after it.
        reported = [
            one if one.finding.fix else one.with_fix_for(fixed, framework) for one in reported
        ]
    remaining = _rules_violated_by_all(fixed, framework)
    for one in violations:
        if not one.own and one.path not in own and (one.code, one.fields) in remaining:
            reported.append(one.with_fix_after(tuple(reported), problem, fixed, framework))
    # With the new fixes, more violations may have one cause.
    return _merge_equal_fixes(reported)


def _merge_equal_fixes(violations: list[_Violation]) -> list[_Violation]:
    """Return one violation for each set of violations that have the same fix.

    A violation that points to the setting that the fix edits is preferred, because it explains the
    fix best.
    """
    causes: dict[str, _Violation] = {}
    for one in violations:
        edited = one.finding.fix.removeprefix("remove ").partition(":")[0]
        # The first of several edits explains only errors at the value that it changes, and those
        # without a value of their own. Fixes in words are not edits.
        first = edited.startswith("layout.") and (
            one.path == edited or not one.path.startswith("layout.")
        )
        cause = one.finding.fix if one.solved or first else f"{one.code} {one.path}"
        if cause not in causes or (one.path == edited != causes[cause].path):
            causes[cause] = one
    return list(causes.values())


@lru_cache(CACHED_EDITS)
def _rules_violated_by_all(
    problem: Problem, framework: Framework
) -> frozenset[tuple[str, tuple[str, ...]]]:
    """Return (code, fields) of each rule that all layouts violate.

    The result is empty if a layout is valid. Only the first ``MAX_EXAMINED`` layouts are checked.
    """
    if _has_valid_layout(problem, framework):
        return frozenset()
    rules = all_rules(problem, framework)
    found = frozenset((rule.code, rule.fields) for rule in rules)
    for layout in islice(_enumerate_layouts(problem, framework, rules), MAX_EXAMINED):
        broken = (rule for rule in rules if rule.broken(problem, layout))
        found &= {(rule.code, rule.fields) for rule in broken}
    return found


def _find_excluding_limit(problem: Problem, framework: Framework, rules: tuple[Rule, ...]) -> str:
    """Return the axis of the first limit without which a layout exists; "" if there is none."""
    for axis in (one.axis for one in problem.goals.limits):
        if any(True for _ in _enumerate_layouts(without_limit(problem, axis), framework, rules)):
            return axis
    return ""
