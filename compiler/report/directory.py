"""An output directory as a mapping, for the commands that read one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from parc.compiler.report.plan_json import LOCK_PATH


def read_directory(directory: Path) -> dict[str, bytes]:
    """Relative path -> bytes of every file in ``directory`` and its folders, sorted.

    Our own backends write no deeper, so nothing deeper is read but what the lock lists: the wrong
    directory may be a large one. Links are left out: a compile writes none.
    OSError where the directory or a file in it cannot be read.
    """
    if not directory.is_dir():
        raise NotADirectoryError(20, "not a directory", directory.as_posix())
    found = {*directory.glob("*"), *directory.glob("*/*"), *_listed(directory)}
    paths = sorted(path for path in found if path.is_file() and not path.is_symlink())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}


def read_written(directory: Path) -> dict[str, bytes]:
    """The lock of ``directory`` and the files that it lists, as far as they can be read."""
    found = {}
    for path in (directory / LOCK_PATH, *_listed(directory)):
        with suppress(OSError):
            found[path.relative_to(directory).as_posix()] = path.read_bytes()
    return found


def texts(contents: Mapping[str, bytes]) -> dict[str, str]:
    """The same as text. Bytes that are not UTF-8 become U+FFFD: whoever compares sees them."""
    return {path: data.decode("utf-8", "replace") for path, data in contents.items()}


def _listed(directory: Path) -> Iterator[Path]:
    """Files inside ``directory`` that its lock lists; whatever stands in its place lists none."""
    try:
        files = json.loads((directory / LOCK_PATH).read_bytes()).get("files")
    except (OSError, ValueError, RecursionError, AttributeError):
        return
    for name in files if isinstance(files, dict) else ():
        path = directory / name
        inside = path.is_relative_to(directory) and ".." not in path.parts
        with suppress(OSError, ValueError):  # what was damaged may be no name at all
            if inside and path.is_file():
                yield path
