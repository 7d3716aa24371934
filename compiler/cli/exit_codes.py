"""Exit codes and error messages for exceptions that end a command."""

from __future__ import annotations

import os
import sys

import click

UNREADABLE = 2
# EX_SOFTWARE of sysexits.h; below, 128 + the number of the signal (SIGINT 2, SIGPIPE 13).
BUG = 70
INTERRUPTED = 130
BROKEN_PIPE = 141


def report_exception(error: BaseException) -> int:
    """Print a message about ``error`` to standard error, and return the exit code of the command.

    No message is printed for an interrupt or a closed output pipe.
    """
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        _redirect_closed_stdout()
        return BROKEN_PIPE
    if isinstance(error, OSError):
        click.echo(f"parc: {_error_text(error)}", err=True)
        return UNREADABLE
    if "parc.backends.plugin_error" in sys.modules and _is_plugin_error(error):
        return _report_plugin(error)
    return _report_bug(error)


def _is_plugin_error(error: BaseException) -> bool:
    from parc.backends.plugin_error import PluginError

    return isinstance(error, PluginError)


def _report_plugin(error: BaseException) -> int:
    """Print the finding X23 of a plugin whose code failed outside of a spec."""
    from parc.backends.plugin_error import CODE, INSTALLED, PluginError
    from parc.compiler.cli.command_steps import FOUND, show_findings
    from parc.compiler.diagnostics import Sink
    from parc.compiler.diagnostics.exceptions import show_traceback

    assert isinstance(error, PluginError)
    show_traceback(error)
    sink = Sink(INSTALLED)
    sink.report(CODE, error.problem.finding())
    show_findings((sink,), "text", sys.stderr)
    return FOUND


def _redirect_closed_stdout() -> None:
    """Redirect standard output to the null device, because its pipe was closed.

    Otherwise Python would flush the buffered output at exit and print an error.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def _error_text(error: OSError) -> str:
    if error.strerror:
        return f"{error.filename or 'file'}: {error.strerror}"
    return str(error)


def _report_bug(error: BaseException) -> int:
    # Imported here, because most commands end without an exception.
    from parc.compiler.diagnostics.exceptions import (
        message_on_one_line,
        place_of_error,
        show_traceback,
    )

    show_traceback(error)
    place = place_of_error(error)
    where = "no traceback" if place is None else f"{place[0].name}:{place[1]}"
    message = message_on_one_line(error)
    click.echo(
        f"parc: internal error: {type(error).__name__}: {message} ({where}). This is a bug in "
        "PARC: please report this line with the spec. Set PARC_DEBUG=1 to show the traceback.",
        err=True,
    )
    return BUG
