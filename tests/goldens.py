"""Expected output of the examples: in full for three of them, as scripts and a summary for others.

``examples/<name>/summary.txt`` describes the plan in a few lines, and lists files that are stored
as a digest or in another example. ``examples/<name>/expected/`` holds the other files as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from parc.compiler.ir import AnyPlan
from parc.compiler.report.text.summary import summary_text
from tests.compiled import EXAMPLES, ROOT, example, example_files

FULL = ("deepseek-v3-serve", "llama-3-70b-hsdp", "llama-65b-pipeline")
"""Examples whose output is stored in full: a service, plain torch, and DeepSpeed with a pipeline.

Their layouts are pinned, so that plan.json lists few candidates whose estimates change."""
PAGE = "report.html"
"""Stored as a digest everywhere, because coordinates of a picture do not review well."""
FIGURES = ("plan.json", "parc.lock", "rankmap.md", PAGE)
"""Files full of estimates. They share one digest, so that a changed constant changes one line."""
BY_DIGEST = ("rankmap.csv", "rankmap.json", "preflight/expected.json")
"""Files that list every rank."""
SUMMARY = "summary.txt"
FOLDER = "expected"


def golden_files(name: str) -> dict[str, str]:
    """Return path below ``examples/<name>`` -> expected text, for the plan as it is today."""
    plan, artifacts = example(name), emitted_by(name)
    if name in FULL:
        stored = {path: text for path, text in artifacts.items() if path != PAGE}
        notes = [f"sha256 {_digest(artifacts[PAGE])}  {PAGE}"]
    else:
        stored, notes = _folded(name, artifacts)
    summary = _summary_lines(plan, artifacts)
    files = {f"{FOLDER}/{path}": text for path, text in stored.items()}
    return {SUMMARY: "".join(f"{line}\n" for line in (*summary, "", *notes)), **files}


def _summary_lines(plan: AnyPlan, artifacts: Mapping[str, str]) -> list[str]:
    """Return the lines that ``parc compile`` prints, and the number of files."""
    return [*summary_text(plan).splitlines(), f"files     {len(artifacts)}"]


def _folded(name: str, artifacts: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return (files that are stored as they are, a line per file that is not)."""
    figures = {path: text for path, text in artifacts.items() if path in FIGURES}
    stored, notes = {}, [f"sha256 {_digest(*figures.values())}  {' '.join(sorted(figures))}"]
    for path, text in sorted(artifacts.items()):
        first = _first_with(path, text, before=name)
        if path in BY_DIGEST:
            notes.append(f"sha256 {_digest(text)}  {path}")
        elif path not in figures and first:
            notes.append(f"same as {first}  {path}")
        elif path not in figures:
            stored[path] = text
    return stored, notes


def _first_with(path: str, text: str, before: str) -> str:
    """Return the first example that stores the same file, full ones first; empty if none does."""
    order = [*FULL, *(one for one in EXAMPLES if one not in FULL)]
    earlier = order[: order.index(before)]
    return next((one for one in earlier if emitted_by(one).get(path) == text), "")


@cache
def emitted_by(name: str) -> Mapping[str, str]:
    """Return path -> text of everything that an example compiles to."""
    return example_files(name)


def _digest(*texts: str) -> str:
    """Return the first 16 hexadecimal digits of the sha256 of all texts, one after the other."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def stored_files(name: str) -> dict[str, str]:
    """Return path below ``examples/<name>`` -> text of the files that are stored today."""
    folder = ROOT / "examples" / name
    paths = [folder / SUMMARY, *sorted((folder / FOLDER).rglob("*"))]
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in paths
        if path.is_file()
    }


def write_files(name: str, files: Mapping[str, str]) -> list[str]:
    """Replace the stored files of an example. Return the changes in words, a line per change."""
    before = stored_files(name)
    folder = ROOT / "examples" / name
    for path in before.keys() - files.keys():
        (folder / path).unlink()
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="\n")
    _remove_empty_folders(folder)
    return changes(before, files)


def _remove_empty_folders(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return what differs in words: summary lines, flags of scripts, files added and removed.

    Estimates first, because they show what a changed constant does.
    """
    old, new = _labeled(before.get(SUMMARY, "")), _labeled(after.get(SUMMARY, ""))
    lines = [
        f"{label}: {old.get(label, 'absent')} -> {new.get(label, 'absent')}"
        for label in dict.fromkeys((*old, *new))
        if old.get(label) != new.get(label)
    ]
    for path in sorted((before.keys() | after.keys()) - {SUMMARY}):
        if path not in before or path not in after:
            lines.append(f"{path}: {'added' if path in after else 'removed'}")
        elif before[path] != after[path]:
            lines.append(f"{path}: {_line_changes(before[path], after[path])}")
    return lines


def _labeled(summary: str) -> dict[str, str]:
    """Return label -> text of a summary; digests and references under the path they describe."""
    found = {}
    for line in summary.splitlines():
        if line.startswith(("sha256 ", "same as ")):
            text, _, label = line.partition("  ")
        else:
            label, _, text = line.partition(" ")
        if label:
            found[label] = text.strip()
    return found


MOST_SHOWN = 3
"""Changed lines of a script that are shown; the number of all is always shown."""


def _line_changes(before: str, after: str) -> str:
    """Return the number of changed lines, and the first of them if the file has few."""
    old, new = before.splitlines(), after.splitlines()
    gone = [line.strip() for line in old if line not in set(new)]
    come = [line.strip() for line in new if line not in set(old)]
    if max(len(gone), len(come)) > MOST_SHOWN:
        return f"{len(gone)} lines removed, {len(come)} added"
    return f"{', '.join(gone) or 'nothing'} -> {', '.join(come) or 'nothing'}"
