"""Texts about exceptions that are not findings."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def message_on_one_line(error: BaseException) -> str:
    """Return the message of ``error`` on one line of at most 200 characters."""
    return " ".join(str(error).split())[:200]


def place_of_error(error: BaseException) -> tuple[Path, int] | None:
    """Return the file and the line that raised ``error``; None if it was not raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return None if trace is None else (Path(trace.tb_frame.f_code.co_filename), trace.tb_lineno)


def show_traceback(error: BaseException) -> None:
    """Print the traceback of ``error`` to standard error if PARC_DEBUG is 1."""
    if os.environ.get("PARC_DEBUG") == "1":
        import traceback

        traceback.print_exception(error, file=sys.stderr)
