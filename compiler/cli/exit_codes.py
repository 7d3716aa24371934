"""Exit codes of exceptions, and their messages on standard error."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

UNREADABLE = 2
BUG = 70
INTERRUPTED = 130
BROKEN_PIPE = 141


def report_exception(error: BaseException) -> int:
    """Print a message about the exception, unless the pipe is closed, and return the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        _close_pipe()
        return BROKEN_PIPE
    # These two classes are compared by name, because importing them would slow down every start.
    if isinstance(error, OSError) or type(error).__name__ in ("Unreadable", "WriteRefused"):
        click.echo(f"parc: {_reason(error)}", err=True)
        return UNREADABLE
    return _bug(error)


def _close_pipe() -> None:
    """Discard buffered output of a closed pipe, so that Python prints no error at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'file'}: {error.strerror}"
    return str(error)


def _bug(error: BaseException) -> int:
    if os.environ.get("PARC_DEBUG") == "1":
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    where = _innermost(error)
    message = " ".join(str(error).split())[:200]
    click.echo(
        f"parc: internal error: {type(error).__name__}: {message} ({where}). This is a bug in "
        "PARC: please report this line with the spec. Set PARC_DEBUG=1 to show the traceback.",
        err=True,
    )
    return BUG


def _innermost(error: BaseException) -> str:
    """Return the place of the error, such as ``choose_layout.py:41``."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "no traceback"
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
