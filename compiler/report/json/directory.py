"""An output directory as a mapping, for the commands that read one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from parc.compiler.report.json.plan_json import LOCK_PATH
from parc.compiler.writer import PARC_NAMES

MAX_UNLISTED_BYTES = 64 * 2**20
"""Of a file that the lock does not list; a larger one is a dump of a program that died here."""


def read_directory(directory: Path) -> dict[str, bytes]:
    """Relative path -> bytes of every file in ``directory`` that is ours by its name, sorted.

    Our own backends write no deeper than one folder, so nothing deeper is read but what the lock
    lists, and no other folder: the wrong directory may be a large one, and so may logs. A file of
    others in a folder of ours is there without its bytes where it is large. Links are left out: a
    compile writes none. OSError where the directory or a file of ours cannot be read.
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
    """The lock of ``directory`` and the files that it lists, as far as they can be read."""
    found = {}
    for path in (directory / LOCK_PATH, *_files_in_lock(directory)):
        with suppress(OSError, ValueError):  # what was damaged may be no name at all
            if path.is_file():
                found[path.relative_to(directory).as_posix()] = path.read_bytes()
    return found


def texts(contents: Mapping[str, bytes]) -> dict[str, str]:
    """The same as text. Bytes that are not UTF-8 become U+FFFD: whoever compares sees them."""
    return {path: data.decode("utf-8", "replace") for path, data in contents.items()}


def _files_in_lock(directory: Path) -> Iterator[Path]:
    """Names inside ``directory`` that its lock lists; whatever stands in its place lists none."""
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
    """Whether this is a file and no link; PermissionError where its folder hides the answer."""
    try:
        return path.is_file() and not path.is_symlink()
    except PermissionError:
        raise
    except (OSError, ValueError):
        return False
