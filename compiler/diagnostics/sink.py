"""Collection of the diagnostics of a run, and checks of finished plans that report to it.

A pass has no other side effect than reporting to the sink.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, TypeVar

from parc.compiler.diagnostics.codes import code_info
from parc.compiler.diagnostics.wording import singularize
from parc.compiler.ir.finding import Cause, Diagnostic, Finding, Severity, Span, SpecPositions
from parc.compiler.ir.frozen import frozen

MOST_PER_CODE = 200
"""Maximum number of diagnostics per code. A generated file can contain the same mistake thousands
of times, and a longer list helps no reader."""
MAX_TEXT = 2000
"""Maximum length of a message and of a label, in characters; both can quote a long value."""
SEVERITY_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "advice": 2}
P = TypeVar("P")
DETERMINED_BY = {"cluster.gpu": ("cluster.node", "cluster.base", "cluster")}
"""Path of a value -> paths that determine it if the spec does not set it."""


class Sink:
    """Set of the diagnostics that passes report while PARC processes one spec or file."""

    def __init__(self, positions: SpecPositions | None = None) -> None:
        """Create an empty sink. The reader of the spec may set ``positions`` later."""
        self.positions = positions or SpecPositions()
        # A dict is an ordered set: it drops identical diagnostics, and is deterministic.
        self._reported: dict[Diagnostic, None] = {}
        self._counts: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()

    def report(
        self,
        code: str,
        finding: Finding | str,
        *,
        at: str = "",
        key: bool = False,
        span: Span | None = None,
    ) -> None:
        """Add a finding as a diagnostic with a severity and a position.

        The code determines the severity. If a code has more than MOST_PER_CODE findings, only the
        number of the remaining findings is reported (I12).

        Args:
            code: code without the prefix ``PARC-``, such as ``D01``.
            finding: the finding, or only its message.
            at: spec path of the problem, such as ``layout.tp``.
            key: True to point at the key of the path instead of its value.
            span: position to use instead of the position of ``at``.
        """
        if isinstance(finding, str):
            finding = Finding(finding)
        if max(len(finding.message), len(finding.label)) > MAX_TEXT:
            message, label = _shorten(finding.message), _shorten(finding.label)
            finding = replace(finding, message=message, label=label)
        finding = replace(
            finding,
            message=singularize(finding.message),
            label=singularize(finding.label),
            help=singularize(finding.help),
        )
        causes = tuple(map(self._complete_cause, finding.causes))
        diagnostic = Diagnostic(
            code=f"PARC-{code}",
            severity=code_info(code).severity,
            finding=replace(finding, causes=causes),
            path=at,
            span=span or self.positions.span_at(at, key=key),
        )
        self._add_if_new(diagnostic)

    def _add_if_new(self, diagnostic: Diagnostic) -> None:
        code = diagnostic.code.removeprefix("PARC-")
        if diagnostic in self._reported:
            return
        if self._counts[code] >= MOST_PER_CODE:
            self._dropped[code] += 1
            return
        self._counts[code] += 1
        self._reported[diagnostic] = None

    def extend(
        self, other: Sink, change: Callable[[Diagnostic], Diagnostic | None] | None = None
    ) -> None:
        """Add the diagnostics of the sink ``other``, each as ``change`` returns it.

        A diagnostic for which ``change`` returns None is not added. The source lines of files that
        only ``other`` has are added as well, because diagnostics show them.
        """
        self._dropped += other._dropped
        if new := other.positions.lines.keys() - self.positions.lines.keys():
            self.positions = replace(
                self.positions,
                lines={**other.positions.lines, **self.positions.lines},
                word_only=self.positions.word_only | (other.positions.word_only & new),
            )
        for diagnostic in other._reported:
            changed = diagnostic if change is None else change(diagnostic)
            if changed is not None:
                self._add_if_new(changed)

    def withdraw_fix(self, diagnostic: Diagnostic) -> None:
        """Remove the fix from the reported ``diagnostic``, because the fix does not work."""
        self.replace_finding(diagnostic, replace(diagnostic.finding, fix=""))

    def replace_finding(self, diagnostic: Diagnostic, finding: Finding) -> None:
        """Replace the finding of the reported ``diagnostic``, whose position stays."""
        kept = replace(diagnostic, finding=finding)
        # Rebuilt as a whole, so that the order of the reports stays.
        self._reported = {kept if one == diagnostic else one: None for one in self._reported}

    def _complete_cause(self, cause: Cause) -> Cause:
        """Return ``cause`` with the position of its path, or of the path that determines it.

        If the spec contains neither, the position is None.
        """
        cause = replace(cause, text=singularize(cause.text))
        # A value that the user did not write has no line to show.
        paths = (cause.path, *(DETERMINED_BY.get(cause.path, ()) if cause.is_pointer else ()))
        shown = self.positions.first_path_in_spec(paths)
        if cause.span is not None or not self.positions.is_path_in_spec(shown):
            return cause
        return replace(cause, span=self.positions.span_at(shown))

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Diagnostics without duplicates, sorted by file, line, column, code and message."""
        found = [*self._reported, *map(self._dropped_count_diagnostic, self._dropped)]
        return tuple(sorted(found, key=lambda diagnostic: diagnostic.sort_key))

    def _dropped_count_diagnostic(self, code: str) -> Diagnostic:
        count = self._dropped[code]
        finding = Finding(
            f"PARC-{code} was found {count} more times",
            help=f"correct the first {MOST_PER_CODE} findings, and run the command again",
        )
        return Diagnostic("PARC-I12", code_info("I12").severity, finding, "", None)

    def failed(self, level: Severity = "error") -> bool:
        """Return True if a diagnostic with at least the severity ``level`` was reported."""
        limit = SEVERITY_ORDER[level]
        return any(SEVERITY_ORDER[found.severity] <= limit for found in self._reported)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."


@frozen
class PlanCheck(Generic[P]):
    """Check of a finished plan for one kind of problem.

    ``parc lint`` also runs the check on a plan with unknown fields. The first unknown field that a
    check reads ends the check, and lint reports this field as the missing fact. For this reason, a
    check reads only the plan and covers only one kind of problem.
    """

    codes: tuple[str, ...]
    """Diagnostic codes that ``run`` reports."""
    run: Callable[[P, Sink], None]
    """Function that reports the findings on a plan to a sink."""
