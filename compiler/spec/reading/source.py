"""Text of a spec, read from a file or from standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from parc.compiler.ir.frozen import frozen

MAX_TEXT_BYTES = 1024 * 1024
"""Size limit of a spec in bytes. A spec that lists 16,384 hosts by name has about 300 kB."""


class UnreadableFileError(OSError):
    """Error: a file cannot be read; the message is a single line for the user."""


@frozen
class SpecSource:
    """Text of a spec, with the name and the folder of its file."""

    name: str
    """File name as the user wrote it, for diagnostics."""
    text: str
    """Text, with U+FFFD for bytes that are not UTF-8; the loader reports their position."""
    folder: Path | None
    """Folder that paths in the spec are relative to; None if the spec has no folder."""
    root: Path | None = None
    """Folder that must contain all files that the spec names; None if ``folder`` must contain
    them."""


def read_source(
    path_or_dash: str, most: int = MAX_TEXT_BYTES, *, root: Path | None = None
) -> SpecSource:
    """Return the text of a file, or of standard input if ``path_or_dash`` is ``-``.

    Args:
        path_or_dash: path of the file, or ``-``.
        most: largest number of bytes of a valid text. One byte more is read, so that the loader can
            report a longer text.
        root: folder that must contain all files that the spec names. None for the folder of the
            spec, or for the current folder if the spec comes from standard input.

    Raises:
        UnreadableFileError: the file does not exist, is a folder, or the user has no permission to
            read it.
    """
    if path_or_dash == "-":
        # Python has no stream for a file descriptor that was closed before it started.
        if sys.stdin is None:
            raise UnreadableFileError("cannot read standard input: it is closed")
        return SpecSource("<stdin>", _read_utf8(sys.stdin.buffer, most), Path(), root)
    try:
        with Path(path_or_dash).open("rb") as stream:
            text = _read_utf8(stream, most)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableFileError(f"cannot read {path_or_dash!r}: {reason}") from error
    return SpecSource(path_or_dash, text, Path(path_or_dash).parent, root)


def _read_utf8(stream: BinaryIO, most: int) -> str:
    # one byte above the limit, so that the loader can detect it without reading all of /dev/zero
    return stream.read(most + 1).decode("utf-8", errors="replace").removeprefix("\ufeff")
