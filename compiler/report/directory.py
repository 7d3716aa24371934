"""An output directory as a mapping, for the commands that read one."""

from __future__ import annotations

from pathlib import Path


def read_directory(directory: Path) -> dict[str, str]:
    """Relative path -> text of every file in ``directory`` and its folders, sorted.

    A compile writes no deeper, so nothing deeper is read: the wrong directory may be a large one.
    Bytes that are not UTF-8 become U+FFFD: whoever compares the text sees a difference.
    OSError where the directory or a file in it cannot be read.
    """
    if not directory.is_dir():
        raise NotADirectoryError(20, "not a directory", directory.as_posix())
    found = (*directory.glob("*"), *directory.glob("*/*"))
    paths = sorted(path for path in found if path.is_file() and not path.is_symlink())
    return {
        path.relative_to(directory).as_posix(): path.read_bytes().decode("utf-8", "replace")
        for path in paths
    }
