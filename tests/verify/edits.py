"""Random single edits of emitted files, and an oracle for edits that change behavior.

An edit changes behavior if the file means something else to its own parser: bash prints other
commands, JSON and YAML have other values, Python has another syntax tree. The oracle shares no code
with the verifiers. ``measure_edits`` counts how many of the edits that change behavior the
verification names; ``neutral_edits`` are edits that it must accept.

``PARC_EDITS`` sets the number of edits per file; ``make test`` uses a few, conformance tests 500.
``PARC_EDITS_SEED`` selects other edits.
"""

from __future__ import annotations

import ast
import json
import os
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from parc.compiler.diagnostics import Sink
from parc.compiler.verify.verify_plan import verify_artifacts
from tests.compiled import Files

EDITS = int(os.environ.get("PARC_EDITS", "12"))
"""Edits per file; of these, the ones that change behavior must be named."""
SEED = int(os.environ.get("PARC_EDITS_SEED", "1"))
NAMED = 0.98
"""Least fraction of the edits that change behavior which the verification must name."""
Behavior = Callable[[str], object]
"""Function from the text of a file to a value that is equal for texts of equal behavior."""

_NUMBER = re.compile(r"(?<![A-Za-z_\d.])\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![A-Za-z_\d])")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_]{2,}")
_EXPORT = re.compile(r"export \w+=[^$`]*;?")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_COMMENT = re.compile(r"(^|\s)#(?!SBATCH|!).*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RandomEdit:
    """Text of a file after one edit, and the edit in words."""

    text: str
    what: str


def change_number(text: str, choose: random.Random) -> RandomEdit | None:
    """Replace one number by another one."""
    found = _pick(_NUMBER, text, choose)
    if found is None:
        return None
    old = found[0]
    whole = old.isdecimal()
    choices = [str(int(old) + 1), str(int(old) * 2), "0", "1"] if whole else ["0.5", f"{old}1"]
    new = choose.choice([one for one in choices if one != old])
    return _replaced(text, found, new, f"number {old} -> {new}")


def change_word(text: str, choose: random.Random) -> RandomEdit | None:
    """Change one letter of a word, such as a flag, a key, a variable or a value."""
    found = _pick(_WORD, text, choose)
    if found is None:
        return None
    at = choose.randrange(len(found[0]))
    letter = "q" if found[0][at] != "q" else "z"
    new = found[0][:at] + letter + found[0][at + 1 :]
    return _replaced(text, found, new, f"word {found[0]} -> {new}")


def swap_values(text: str, choose: random.Random) -> RandomEdit | None:
    """Exchange two different numbers of the file."""
    first, second = _pick(_NUMBER, text, choose), _pick(_NUMBER, text, choose)
    if first is None or second is None or first[0] == second[0]:
        return None
    low, high = sorted((first, second), key=lambda one: one.start())
    middle = text[low.end() : high.start()]
    changed = text[: low.start()] + high[0] + middle + low[0] + text[high.end() :]
    return RandomEdit(changed, f"numbers {low[0]} and {high[0]} exchanged")


def drop_line(text: str, choose: random.Random) -> RandomEdit | None:
    """Remove one line."""
    lines = text.split("\n")
    at = choose.randrange(len(lines))
    return RandomEdit("\n".join(lines[:at] + lines[at + 1 :]), f"line dropped: {lines[at]}")


def duplicate_line(text: str, choose: random.Random) -> RandomEdit | None:
    """Repeat one line."""
    lines = text.split("\n")
    at = choose.randrange(len(lines))
    return RandomEdit("\n".join([*lines[:at], *lines[at:][:1], *lines[at:]]), f"twice: {lines[at]}")


def move_line(text: str, choose: random.Random) -> RandomEdit | None:
    """Move one line to another place."""
    lines = text.split("\n")
    line = lines.pop(choose.randrange(len(lines)))
    lines.insert(choose.randrange(len(lines) + 1), line)
    return RandomEdit("\n".join(lines), f"line moved: {line}")


def drop_word(text: str, choose: random.Random) -> RandomEdit | None:
    """Remove one word with the characters up to the next blank."""
    found = _pick(re.compile(r"\S+"), text, choose)
    return None if found is None else _replaced(text, found, "", f"word dropped: {found[0]}")


OPERATIONS = (
    change_number,
    change_number,
    change_word,
    change_word,
    swap_values,
    drop_line,
    drop_line,
    duplicate_line,
    move_line,
    drop_word,
)
"""The random edits; common mistakes occur twice and are therefore chosen more often."""


def random_edits(text: str, seed: int) -> Iterator[RandomEdit]:
    """Yield edits of ``text`` without end; equal seeds give equal edits."""
    choose = random.Random(seed)
    while True:
        edit = choose.choice(OPERATIONS)(text, choose)
        if edit is not None and edit.text != text:
            yield edit


def shell_neutral(text: str, seed: int) -> Iterator[RandomEdit]:
    """Yield edits of a bash script that bash ignores, without end."""
    choose = random.Random(seed)
    while True:
        lines = text.split("\n")
        at = choose.randrange(1, len(lines))
        after_continuation = lines[at - 1].endswith("\\")
        indent = choose.choice((" ", "   ", "\t"))
        if choose.random() < 0.3 and _is_command(lines[at]):
            lines[at] = indent + lines[at]
            yield RandomEdit("\n".join(lines), f"indented: {lines[at]}")
        elif choose.random() < 0.3 and not lines[at].endswith("\\"):
            lines[at] += indent
            yield RandomEdit("\n".join(lines), f"trailing blanks: {lines[at]}")
        elif not after_continuation:
            lines.insert(at, choose.choice(("", "  # a remark", "# reviewed: 8 nodes")))
            yield RandomEdit("\n".join(lines), f"line {lines[at]!r} inserted")


def shell_behavior(text: str) -> object:
    """Return the directives and the commands of a script, as bash parses and prints them.

    Comments in quoted programs (awk, bash -c) are removed as well, because those ignore them too.
    """
    script = f"f() {{\n{text}\n}}\ndeclare -f f\n"
    # Restricted, because an edit can end the function early: the rest would run and write files.
    run = subprocess.run(["bash", "-r"], input=script, capture_output=True, text=True, check=False)
    if run.returncode or run.stderr:
        return ("bash rejects", text)
    head = text.split("\nset ", 1)[0]
    directives = [line.rstrip() for line in head.split("\n") if line.startswith("#SBATCH")]
    printed = _COMMENT.sub("", run.stdout).split("\n")
    lines = [line.strip() for line in printed if line.strip()]
    # The order of directives and of neighboring exports has no effect; the last of a name wins.
    first = text.split("\n", 1)[0]
    return (
        first if first.startswith("#!") else "",
        _last_of_names(directives),
        list(_joined_exports(lines)),
    )


def _last_of_names(lines: list[str]) -> dict[str, str]:
    return {line.partition("=")[0]: line for line in lines}


def _joined_exports(lines: list[str]) -> Iterator[object]:
    for exports, run in groupby(lines, lambda line: bool(_EXPORT.fullmatch(line))):
        found = list(run)
        yield from [_last_of_names(found)] if exports else found


def json_behavior(text: str) -> object:
    """Return the values of a JSON file."""
    try:
        return ("json", json.dumps(json.loads(text), sort_keys=True))
    except ValueError:
        return ("not JSON", text)


def yaml_behavior(text: str) -> object:
    """Return the documents of a YAML file."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return ("yaml", repr([_sorted(tree) for tree in YAML(typ="safe").load_all(text)]))
    except (YAMLError, ValueError):
        return ("not YAML", text)


def python_behavior(text: str) -> object:
    """Return the syntax tree of a Python program without texts that are statements."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ("not Python", text)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            node.body = [one for one in node.body if not _is_text(one)]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    """Return True for a docstring, or another text without effect."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


@dataclass
class EditScore:
    """Edits of a file that were tried, and what the verification found."""

    changed: int = 0
    """Edits that change behavior."""
    neutral: int = 0
    """Edits that do not."""
    missed: list[str] = field(default_factory=list)
    """Edits that change behavior and were not named."""
    alarms: list[str] = field(default_factory=list)
    """Edits that change no behavior and were named."""

    @property
    def named(self) -> float:
        """Fraction of the edits that change behavior which were named."""
        return 1 - len(self.missed) / max(1, self.changed)


def measure_edits(
    files: Files, file: str, behavior: Behavior, count: int = EDITS, seed: int = SEED
) -> EditScore:
    """Try random edits of ``file`` until ``count`` of them have changed its behavior."""
    assert not findings(files), "the files without an edit have findings"
    score, before = EditScore(), behavior(files[file])
    for edit in random_edits(files[file], seed):
        named = bool(findings(files | {file: edit.text}))
        if behavior(edit.text) != before:
            score.changed += 1
            if not named:
                score.missed.append(edit.what)
        else:
            score.neutral += 1
            if named:
                score.alarms.append(edit.what)
        if score.changed >= count:
            break
    return score


def false_alarms(
    files: Files, file: str, neutral: Iterator[RandomEdit], count: int = EDITS
) -> list[str]:
    """Return the neutral edits, of ``count`` tried, that the verification names."""
    return [
        f"{edit.what}: {found[0]}"
        for _, edit in zip(range(count), neutral, strict=False)
        if (found := findings(files | {file: edit.text}))
    ]


def findings(files: Files) -> list[str]:
    """Return code and message of each finding; checksums are not compared."""
    sink = Sink()
    verify_artifacts(files, sink)
    return [f"{one.code} {one.finding.message}" for one in sink.diagnostics]


def _sorted(tree: Any) -> Any:
    """Return ``tree`` with the keys of all mappings in order."""
    if isinstance(tree, dict):
        return sorted((str(key), _sorted(value)) for key, value in tree.items())
    return [_sorted(one) for one in tree] if isinstance(tree, list) else tree


def _pick(pattern: re.Pattern[str], text: str, choose: random.Random) -> re.Match[str] | None:
    found = list(pattern.finditer(text))
    return choose.choice(found) if found else None


def _replaced(text: str, found: re.Match[str], new: str, what: str) -> RandomEdit:
    return RandomEdit(text[: found.start()] + new + text[found.end() :], what)


def _is_command(line: str) -> bool:
    """Return True for a line whose indentation bash ignores."""
    return bool(re.match(r"\s*[a-z]", line))
