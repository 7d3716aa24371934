"""Edits of emitted files that the verification must find."""

from __future__ import annotations

from collections.abc import Callable

from tests.compiled import Files

Edit = Callable[[Files], Files]


def swapped(file: str, old: str, new: str) -> Edit:
    """Return an edit that replaces the first ``old`` in ``file`` by ``new``."""

    def edit(files: Files) -> Files:
        assert old in files[file], f"{old!r} is not in {file}"
        return files | {file: files[file].replace(old, new, 1)}

    return edit


def dropped(file: str) -> Edit:
    """Return an edit that removes ``file``."""
    return lambda files: {name: text for name, text in files.items() if name != file}
