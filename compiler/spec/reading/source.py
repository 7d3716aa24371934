"""Where the text of a spec comes from: a file, or standard input."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAX_TEXT_BYTES = 1024 * 1024
"""A spec of 16,384 hosts by name has about 300 kB; what is larger is not a spec."""


class Unreadable(Exception):
    """The file cannot be read; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a spec, and what it was read from."""

    name: str
    """As the user wrote it; shown in diagnostics."""
    text: str
    """Bytes that are not UTF-8 stand in it as U+FFFD, which the loader refuses with position."""
    folder: Path | None
    """Paths in the spec are relative to it; None: there is no such folder."""


def read_source(path_or_dash: str, most: int = MAX_TEXT_BYTES) -> Source:
    """Read a spec; ``-`` is standard input, whose paths are relative to the current folder.

    A text longer than ``most`` bytes is cut after one byte more, so that the reader can tell.

    Raises:
        Unreadable: there is no such file, it is a folder, or it must not be read.
    """
    if path_or_dash == "-":
        return Source("<stdin>", _text(sys.stdin.buffer, most), Path())
    try:
        with Path(path_or_dash).open("rb") as stream:
            text = _text(stream, most)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreadable(f"cannot read {path_or_dash!r}: {reason}") from error
    return Source(path_or_dash, text, Path(path_or_dash).parent)


def _text(stream: BinaryIO, most: int) -> str:
    # one byte more than is legal, so that the loader can tell: /dev/zero must not hang
    return stream.read(most + 1).decode("utf-8", errors="replace").removeprefix("\ufeff")
