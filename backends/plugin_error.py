"""Problems of plugins: as findings, and as the exception that stops a call into a plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from parc.compiler.diagnostics import Finding, Sink, SpecPositions
from parc.compiler.diagnostics.exceptions import message_on_one_line, place_of_error
from parc.compiler.ir.frozen import frozen

T = TypeVar("T")
CODE = "X23"
"""Diagnostic code of all problems of plugins."""
REPAIR = "repair the plugin or uninstall it"
INSTALLED = SpecPositions(file="installed plugins")
"""Positions of findings on plugins that no spec names."""
MAX_VALUE = 80
"""Maximum length in characters of a value of a plugin in a message."""


@frozen
class PluginProblem:
    """Reason why the plugin ``name`` cannot be used."""

    name: str
    message: str
    fix: str
    help: str = ""

    def finding(self) -> Finding:
        """Return the finding X23, which reports this problem."""
        return Finding(
            f"the backend plugin {self.name!a:.70} cannot be used: {self.message}",
            label="an installed plugin with a defect",
            help=self.help,
            fix=self.fix,
        )


class PluginError(Exception):
    """Error: a member of a plugin raised an exception or returned an invalid value."""

    def __init__(self, problem: PluginProblem) -> None:
        """Store the problem, which ``finding`` of the problem reports as X23."""
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        """Return the message of the problem."""
        return self.problem.message


@frozen
class PluginOwner:
    """Name of a plugin, and the distribution that contains it."""

    name: str
    """Name of the backend."""
    distribution: str
    """Name and version of the distribution, such as ``parc-mylab 1.0``."""

    def invalid(self, member: str, defect: str) -> PluginError:
        """Return the error of a ``member`` whose value has the ``defect``."""
        message = f"{member} of {self.distribution} {defect}"
        return PluginError(PluginProblem(self.name, message, REPAIR))

    def raised(self, member: str, error: BaseException) -> PluginError:
        """Return the error of a ``member`` that raised the exception ``error``."""
        message = f"{member} of {self.distribution} raised {describe_exception(error)}"
        debug = "PARC_DEBUG=1 shows the traceback"
        return PluginError(PluginProblem(self.name, message, REPAIR, debug))


def first_recognizing(candidates: Iterable[tuple[T, Callable[[], bool]]], sink: Sink) -> T | None:
    """Return the first candidate whose function returns True; None if there is none.

    The functions of plugins get files of all programs. A function that fails does not recognize
    the file; its problem is reported (X23) only if no other function recognizes the file.
    """
    problems = []
    for candidate, recognizes in candidates:
        try:
            if recognizes():
                return candidate
        except PluginError as error:
            problems.append(error.problem)
    for problem in problems:
        sink.report(CODE, problem.finding())
    return None


def describe_exception(error: BaseException) -> str:
    """Return the type and text of ``error``, and the line that raised it."""
    text, place = message_on_one_line(error), place_of_error(error)
    where = ""
    if place is not None:
        path, line = place
        where = f" ({path.parent.name}/{path.name}:{line})"
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"


def quote_value(value: object) -> str:
    """Return ``value`` as text for a message: one line of at most MAX_VALUE characters."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # the plugin defines __repr__
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."
