"""Edits of emitted files that the second route has to see."""

from __future__ import annotations

from collections.abc import Callable

from tests.compiled import Files

Edit = Callable[[Files], Files]


def swapped(file: str, old: str, new: str) -> Edit:
    """The first ``old`` in ``file`` becomes ``new``."""

    def edit(files: Files) -> Files:
        assert old in files[file], f"{old!r} is not in {file}"
        return files | {file: files[file].replace(old, new, 1)}

    return edit


def dropped(file: str) -> Edit:
    """``file`` is gone."""
    return lambda files: {name: text for name, text in files.items() if name != file}
