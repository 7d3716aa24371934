"""Boundary at which errors of plugins become findings (X23) of the spec that uses the plugin."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from parc.backends.plugin_error import (
    CODE,
    REPAIR,
    PluginError,
    PluginProblem,
    describe_exception,
)
from parc.backends.registry import is_built_in
from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.exceptions import show_traceback
from parc.compiler.ir import AnyPlan, AnyProblem


class ReportPluginErrors:
    """Context manager that ends with a finding instead of an exception that a plugin causes.

    An exception in PARC's own code counts too if a target is a plugin, because a result of the
    plugin is the likely cause. Without plugins, all exceptions pass.
    """

    def __init__(self, sink: Sink, targets: Iterable[str]) -> None:
        """Report to ``sink``. ``targets`` are names of the targets of the spec."""
        self._sink, self._targets = sink, tuple(targets)

    def __enter__(self) -> None:
        """Start; nothing is done here."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        """Report ``error`` if a plugin causes it; return True if it was reported."""
        if not isinstance(error, Exception):
            return False
        names = plugins_among(self._targets)
        if isinstance(error, PluginError):
            problem = error.problem
        elif names:
            problem = _likely_problem(names, error)
        else:
            return False
        show_traceback(error)
        report_problem(problem, self._targets, self._sink)
        return True


def has_plugin(plan: AnyPlan) -> bool:
    """Return True if a target of ``plan`` is a plugin; its files are verified even in a dry run.

    If files of PARC's own backends contradict each other, this is a bug in PARC and no mistake in
    the spec. It is reported before such files are written.
    """
    return bool(plugins_among(plan.problem.emit))


def plugins_among(targets: Iterable[str]) -> tuple[str, ...]:
    """Return the names in ``targets`` that are not built in, sorted and without duplicates."""
    return tuple(sorted(name for name in set(targets) if not is_built_in(name)))


def targets_of_tree(tree: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the targets that ``emit`` of the spec in ``tree`` names."""
    found = tree.get("emit")
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()


def targets_of(problem: AnyProblem) -> tuple[str, ...]:
    """Return the names of all targets of ``problem``, with its framework or engine."""
    return (*problem.emit, problem.framework)


def report_problem(problem: PluginProblem, targets: tuple[str, ...], sink: Sink) -> None:
    """Report ``problem`` at the name of the plugin in ``emit`` of the spec, if it is there."""
    positions = sink.positions
    at = "emit" if positions.is_path_in_spec("emit") else ""
    for path in (f"emit[{index}]" for index in range(len(targets))):
        span = positions.values.get(path)
        lines = positions.lines.get(span.file, ()) if span is not None else ()
        if span is not None and lines[span.line - 1 : span.line]:
            text = lines[span.line - 1][span.column - 1 :]
            at = path if re.match(rf"[\"']?{re.escape(problem.name)}\b", text) else at
    sink.report(CODE, problem.finding(), at=at)


def _likely_problem(names: tuple[str, ...], error: Exception) -> PluginProblem:
    """Return the problem that ``error`` in PARC's own code was caused by one of the plugins."""
    message = f"PARC stopped with {describe_exception(error)} while it used this plugin"
    hint = "a value that the plugin returns is the likely cause; PARC_DEBUG=1 shows the traceback"
    return PluginProblem(", ".join(names), message, REPAIR, hint)
