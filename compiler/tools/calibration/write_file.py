"""One file of the user, replaced at once, and only where PARC wrote what is there."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from parc.compiler.writer import WriteRefused


def write_file(path: Path, text: str, head: str, by: str = "parc calibrate") -> None:
    """Make ``path`` hold ``text``, which starts with ``head``; its folder must be there.

    Raises:
        WriteRefused: a file that does not start with ``head`` is in the place, or it cannot be
            written.
    """
    target = path.resolve()
    new = target.with_name(f".{target.name}.new-{os.getpid()}")
    try:
        if target.exists() and not _starts_with(target, head):
            raise WriteRefused(f"{path} was not written by {by}; it is left as it is")
        new.write_text(text, encoding="utf-8", newline="\n")
        new.replace(target)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise WriteRefused(f"{path} cannot be written: {reason}") from error


def _starts_with(path: Path, head: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(head.encode())) == head.encode()
