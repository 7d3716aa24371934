"""Comparison of two plans that may have a prefill pool and a decode pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serialize import as_json
from parc.compiler.ir.serving import POOLS
from parc.compiler.report.diff.diff import Diff, diff
from parc.compiler.report.diff.file_changes import (
    FileChange,
    OutputFiles,
    file_changes,
    locked_digests,
)
from parc.compiler.report.diff.read_side import NotAnOutputDirectory, read_diff_side
from parc.compiler.report.diff.text import (
    DiffSection,
    diff_markdown,
    diff_text,
    file_section,
    section_markdown,
    section_text,
)

Files = Mapping[str, str]


@frozen
class PoolsDiff:
    """Differences between two plans: one diff, or one per pool."""

    parts: tuple[Diff, ...]
    files: tuple[FileChange, ...] = ()
    """Files of two pools that differ and belong to neither of them, such as ``router.sh``."""

    @property
    def has_changes(self) -> bool:
        """True if the two plans differ in any compared part."""
        return bool(self.files) or any(one.has_changes for one in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Return the diff as JSON types; that of two pools has a key for each pool."""
        documents = [one.to_json() for one in self.parts]
        if len(documents) == 1:
            return documents[0]
        own = dict(zip(POOLS, documents, strict=True))
        shared = {"files": as_json(self.files)}
        return {"format": 1, "changed": self.has_changes, **shared, **own}

    def text(self) -> str:
        """Return each diff as plain text, and then the differing files of both pools."""
        return "\n".join((*map(diff_text, self.parts), *map(section_text, self._sections())))

    def markdown(self) -> str:
        """Return each diff as Markdown, and then the differing files of both pools."""
        shared = map(section_markdown, self._sections())
        return "\n".join((*map(diff_markdown, self.parts), *shared))

    def _sections(self) -> tuple[DiffSection, ...]:
        planned = any(one.has_planned_changes for one in self.parts)
        section = file_section(self.files, planned)
        return (section,) if section.rows or section.notes else ()


def diff_plans(old: tuple[str, Files], new: tuple[str, Files]) -> PoolsDiff:
    """Return the differences between two plans; each is (name, text of each output file).

    Raises:
        NotAnOutputDirectory: a plan cannot be read, or only one of them has two pools.
    """
    pooled = [any(_in_pool(path) for path in files) for _, files in (old, new)]
    if not any(pooled):
        return PoolsDiff((diff(read_diff_side(*old), read_diff_side(*new)),))
    if not all(pooled):
        with_pools, other = (old[0], new[0]) if pooled[0] else (new[0], old[0])
        raise NotAnOutputDirectory(
            f"{with_pools} has a prefill pool and a decode pool, and {other} has none. Compare "
            "the folder prefill or decode of its output."
        )
    parts = []
    for pool in POOLS:
        sides = (
            read_diff_side(
                f"{name}/{pool}", _below(files, pool), _below(locked_digests(files), pool)
            )
            for name, files in (old, new)
        )
        parts.append(diff(*sides))
    shared = (
        OutputFiles(_outside(files), _outside(locked_digests(files))) for _, files in (old, new)
    )
    return PoolsDiff(tuple(parts), file_changes(*shared))


def _in_pool(path: str) -> bool:
    return path.partition("/")[0] in POOLS


def _outside(files: Files) -> dict[str, str]:
    return {path: text for path, text in files.items() if not _in_pool(path)}


def _below(files: Files, folder: str) -> dict[str, str]:
    """Return the files in ``folder``, with paths relative to it."""
    start = f"{folder}/"
    return {
        path.removeprefix(start): text for path, text in files.items() if path.startswith(start)
    }
