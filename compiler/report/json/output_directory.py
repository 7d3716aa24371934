"""Readers of an output directory, for ``parc verify``, ``parc diff`` and ``parc compile``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from parc.compiler.report.json.plan_json import LOCK_PATH
from parc.compiler.writer import PARC_NAMES, names_not_from_parc

MAX_UNLISTED_BYTES = 64 * 2**20
"""Size limit for files that the lock does not list. The content of larger files, such as core
dumps, is not read."""


def read_directory(directory: Path) -> dict[str, bytes]:
    """Return relative path -> bytes of each file in ``directory`` that PARC may have written.

    These are the files that ``parc.lock`` lists, and files with a name that PARC reserves, at most
    one folder deep. Links are omitted, because a compile writes none. To limit the time in a large
    directory, other folders are skipped, and an unlisted file that exceeds MAX_UNLISTED_BYTES has
    empty content.

    Raises:
        OSError: the directory or one of the files cannot be read.
    """
    if not directory.is_dir():
        # 20 is ENOTDIR, so that the message has the usual form.
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


def unrecognized_names(directory: Path, files: Iterable[str]) -> list[str]:
    """Return the files and folders at the top of ``directory`` that PARC does not use, sorted.

    The name of a folder ends in a slash. ``files`` are the paths that ``read_directory`` returned.
    The folder ``__pycache__`` is omitted, because Python creates it next to a program.
    """
    entries = {path.name: path for path in directory.iterdir() if path.name != "__pycache__"}
    return [
        f"{name}/" if entries[name].is_dir() else name
        for name in names_not_from_parc(entries, files)
    ]


def read_locked_files(directory: Path) -> dict[str, bytes]:
    """Return relative path -> bytes of ``parc.lock`` and of the files that it lists.

    Files that are missing or cannot be read are left out.
    """
    found = {}
    for path in (directory / LOCK_PATH, *_files_in_lock(directory)):
        with suppress(OSError, ValueError):  # a damaged lock may list names that no file can have
            if path.is_file():
                found[path.relative_to(directory).as_posix()] = path.read_bytes()
    return found


def decode_files(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Return path -> decoded text of each file; bytes that are not UTF-8 become U+FFFD."""
    return {path: data.decode("utf-8", "replace") for path, data in contents.items()}


def read_output_texts(directory: Path) -> dict[str, str]:
    """Return path -> text of each output file in ``directory``, with line endings of Unix.

    Line endings that a copy changed do not count as changes of the plan.

    Raises:
        OSError: the directory or one of the files cannot be read.
    """
    texts = decode_files(read_directory(directory))
    return {path: text.replace("\r\n", "\n") for path, text in texts.items()}


def _files_in_lock(directory: Path) -> Iterator[Path]:
    """Yield the paths inside ``directory`` that its ``parc.lock`` lists.

    If the lock cannot be read, yield no path.
    """
    try:
        files = json.loads((directory / LOCK_PATH).read_bytes()).get("files")
    except (OSError, ValueError, RecursionError, AttributeError):
        return
    for name in files if isinstance(files, dict) else ():
        path = directory / name
        # A damaged or hostile lock must not make PARC read files outside the folder.
        inside = path.is_relative_to(directory) and path != directory
        if inside and ".." not in path.parts:
            yield path


def _is_regular_file(path: Path) -> bool:
    """Return True if ``path`` is a file and not a link.

    Raises:
        PermissionError: the folder of ``path`` cannot be read.
    """
    try:
        return path.is_file() and not path.is_symlink()
    except PermissionError:
        raise
    except (OSError, ValueError):
        return False
