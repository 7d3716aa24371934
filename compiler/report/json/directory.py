"""Readers of an output directory, for verify, diff and compile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from parc.compiler.report.json.plan_json import LOCK_PATH
from parc.compiler.writer import PARC_NAMES

MAX_UNLISTED_BYTES = 64 * 2**20
"""Size limit of a file that the lock does not list. Larger files, such as core dumps, are listed
without their content."""


def read_directory(directory: Path) -> dict[str, bytes]:
    """Return relative path -> bytes of every file whose name is one that PARC writes, sorted.

    Built-in backends write no deeper than one folder, so deeper files are read only if the lock
    lists them. Other folders are skipped, because logs and wrong directories may be large. A large
    file that the lock does not list has no bytes (MAX_UNLISTED_BYTES). Links are left out, because
    a compile writes none.

    Raises:
        OSError: the directory or one of the files cannot be read.
    """
    if not directory.is_dir():
        raise NotADirectoryError(20, "not a directory", directory.as_posix())
    listed = set(_files_in_lock(directory))
    names = PARC_NAMES | {path.relative_to(directory).parts[0].partition(".")[0] for path in listed}
    top = [path for path in directory.iterdir() if path.name.partition(".")[0] in names]
    below = [path for folder in top if folder.is_dir() for path in folder.iterdir()]
    paths = sorted(path for path in {*top, *below, *listed} if _is_regular_file(path))
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        if path in listed or path.stat().st_size <= MAX_UNLISTED_BYTES
        else b""
        for path in paths
    }


def read_written(directory: Path) -> dict[str, bytes]:
    """Return relative path -> bytes of the lock and of the files that it lists, if readable."""
    found = {}
    for path in (directory / LOCK_PATH, *_files_in_lock(directory)):
        with suppress(OSError, ValueError):  # a damaged lock may list names that no file can have
            if path.is_file():
                found[path.relative_to(directory).as_posix()] = path.read_bytes()
    return found


def texts(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Return ``contents`` as text; bytes that are not UTF-8 become U+FFFD, which a diff shows."""
    return {path: data.decode("utf-8", "replace") for path, data in contents.items()}


def _files_in_lock(directory: Path) -> Iterator[Path]:
    """Yield the paths inside ``directory`` that its lock lists; none if the lock is unreadable."""
    try:
        files = json.loads((directory / LOCK_PATH).read_bytes()).get("files")
    except (OSError, ValueError, RecursionError, AttributeError):
        return
    for name in files if isinstance(files, dict) else ():
        path = directory / name
        inside = path.is_relative_to(directory) and path != directory
        if inside and ".." not in path.parts:
            yield path


def _is_regular_file(path: Path) -> bool:
    """Return True for a file that is not a link; PermissionError if the folder is unreadable."""
    try:
        return path.is_file() and not path.is_symlink()
    except PermissionError:
        raise
    except (OSError, ValueError):
        return False
