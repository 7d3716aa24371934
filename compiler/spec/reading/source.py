"""Source of a spec: a file, or standard input."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAX_TEXT_BYTES = 1024 * 1024
"""Size limit of a spec. A spec that lists 16,384 hosts by name has about 300 kB."""


class Unreadable(Exception):
    """File that cannot be read; the message is a single line for the user."""


@dataclass(frozen=True, slots=True)
class Source:
    """Text of a spec, with its file name and folder."""

    name: str
    """File name as the user wrote it, for diagnostics."""
    text: str
    """Text, with U+FFFD for bytes that are not UTF-8; the loader reports their position."""
    folder: Path | None
    """Folder to which paths in the spec are relative; None if there is none."""


def read_source(path_or_dash: str, most: int = MAX_TEXT_BYTES) -> Source:
    """Return the text of a file; ``-`` is standard input, with the current folder as folder.

    A text longer than ``most`` bytes is cut to ``most`` + 1 bytes, so that the loader can report
    its length without reading all of it.

    Raises:
        Unreadable: the file does not exist, is a folder, or the user may not read it.
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
    # one byte above the limit, so that the loader can detect it without reading all of /dev/zero
    return stream.read(most + 1).decode("utf-8", errors="replace").removeprefix("\ufeff")
