"""Application of the fixes that diagnostics contain to the text of a spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from parc.compiler.diagnostics import Diagnostic, Sink
from parc.compiler.ir.frozen import frozen
from parc.compiler.spec.edit_text import edit_text
from parc.compiler.spec.fixes import is_fixed_by, overrides_of_fix
from parc.compiler.spec.reading.source import SpecSource

MOST_FIXES = 50
"""Largest number of fixes that are applied to one spec, to bound the time of a run."""
MOST_TRIALS = 100
"""Largest number of fixes that are tried on one spec. Each trial checks the spec again."""


@frozen
class FixedSpec:
    """Text of a spec after its fixes, the diagnostics that were fixed, and those that remain."""

    text: str
    fixed: tuple[Diagnostic, ...]
    remaining: Sink


def fix_spec(source: SpecSource, check: Callable[[SpecSource], Sink]) -> FixedSpec:
    """Apply the fixes of errors and warnings one by one until no fix works any more.

    A fix is kept only if its diagnostic disappears and no new diagnostic appears at the edited
    values. Advice is not applied, because it offers a different plan instead of removing a mistake.

    Args:
        source: the spec.
        check: function that returns the findings of a spec.
    """
    sink, fixed = check(source), list[Diagnostic]()
    seen = {source.text}
    trials = 0
    while len(fixed) < MOST_FIXES and trials < MOST_TRIALS:
        for found, edits in _applicable_fixes(sink):
            text = edit_text(source.text, edits)
            # A text that was seen before did not work, or would start a cycle of fixes.
            if text is None or text in seen or trials == MOST_TRIALS:
                continue
            seen.add(text)
            trials += 1
            edited = replace(source, text=text)
            after = check(edited)
            if _is_improved(found, edits, sink, after):
                source, sink = edited, after
                fixed.append(found)
                break
        else:
            break
    return FixedSpec(source.text, tuple(fixed), sink)


def _applicable_fixes(sink: Sink) -> Iterator[tuple[Diagnostic, tuple[str, ...]]]:
    """Yield the diagnostics that have an applicable fix, with its overrides; errors come first."""
    for severity in ("error", "warning"):
        for found in sink.diagnostics:
            if found.severity == severity and (edits := overrides_of_fix(found.finding.fix)):
                yield found, edits


def _is_improved(diagnostic: Diagnostic, edits: tuple[str, ...], before: Sink, after: Sink) -> bool:
    if not is_fixed_by(diagnostic, edits, before.diagnostics, after.diagnostics):
        return False
    if diagnostic.severity == "error":
        # An error can hide other errors, so new ones at other paths are expected.
        return True
    known = {(one.code, one.path) for one in before.diagnostics}
    return all(
        one.severity == "advice" or (one.code, one.path) in known for one in after.diagnostics
    )
