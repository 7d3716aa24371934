"""Compare an emitted shell script with the lines that its plan needs.

A file ``NAME.lines`` lists the commands of a script: ``%when WORD ...`` starts lines that are only
present under all of these conditions, ``%else`` those under the opposite, ``%always`` ends both.
``<<name>>`` stands for a text of the plan. The file is independent of the template that PARC
renders, so an edit of the script is named, and so is a mistake in the template.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from parc.backends.verifier import DerivedSetting
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.shell_lines import ShellLine, command_lines
from parc.compiler.verify.verify_settings import planned_value

_PLACEHOLDER = re.compile(r"<<([a-z_]+)>>")
_PIECE = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^'"\\]+""", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_INNER_COMMENT = re.compile(r"(?:^|[ \t])[ \t]*#[ \t].*$|^[ \t]+|[ \t]+$", re.MULTILINE)
"""Comments and indentation in a program that a script quotes, such as that of awk."""
_NOT_EMPTY = re.compile(r"(\[\[|\|\||&&) -n ")
"""Test for a text that is not empty: inside ``[[ ]]``, ``-n`` changes nothing."""
_BLANK_LINES = re.compile(r"\n+")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_LITERAL = re.compile(r"""(?:'[^']*'|"(?:[^"\\$`]|\\["\\])*"|\\.|[^'"\\$`])*""", re.DOTALL)
"""Text in which bash expands nothing."""
_GROUPS = {"nodes": r"\S*?", "ranks": r"\S*?"}
"""Name of a placeholder that stands for a single word -> pattern of the word."""
ENVIRONMENT = "<environment>"
"""Line that stands for consecutive exports of literal values."""


@frozen
class ExpectedValue:
    """A value in a script, which is compared with the plan or by another check."""

    name: str
    """Name of its placeholder in the lines of the script."""
    text: str = ""
    """Expected shell text."""
    path: str = ""
    """Path in ``plan.json``. If it is empty, another check compares the value, and any word is
    accepted here."""


@frozen
class ScriptLines:
    """Commands of an emitted script, and the exports among them."""

    lines: tuple[ShellLine, ...]
    """Commands. The line ``ENVIRONMENT`` stands for the first run of consecutive exports."""
    exports: Mapping[str, tuple[str, int]] = field(hash=False)
    """Name of each exported variable -> (value, line number) of its last export."""


@lru_cache(maxsize=8)
def read_script(text: str) -> ScriptLines:
    """Return the commands of the shell script ``text`` with normalized blanks and quotes."""
    lines: list[ShellLine] = []
    exports: dict[str, tuple[str, int]] = {}
    inside = False
    for line in command_lines(text):
        one = ShellLine(line.number, without_redundant_quotes(line.text))
        # The value of a variable counts with all of its blanks and comment signs.
        found = literal_exports(line.text)
        # Only consecutive exports are alike; a later run remains as lines that no plan needs.
        if not found or (exports and not inside):
            lines.append(one)
            # An export of another kind is a line of its own, but does not end the run.
            inside = inside and line.text.startswith("export ")
            continue
        if not exports:
            lines.append(ShellLine(one.number, ENVIRONMENT))
        inside = True
        exports |= {name: (value, one.number) for name, value in found}
    return ScriptLines(tuple(lines), exports)


def literal_exports(text: str) -> tuple[tuple[str, str], ...]:
    """Return (variable, value) of each export in ``text``, if the shell expands nothing in it.

    The result is empty for all other commands.
    """
    import shlex

    if not text.startswith("export ") or not _LITERAL.fullmatch(text):
        return ()
    try:
        words = shlex.split(text)[1:]
    except ValueError:
        return ()
    found = tuple(match for word in words if (match := _ASSIGNMENT.fullmatch(word)))
    return tuple((one[1], one[2]) for one in found) if len(found) == len(words) else ()


def without_redundant_quotes(text: str) -> str:
    """Return the shell command ``text`` without quotes that have no effect.

    A quoted text of several lines is a program in another language, such as awk. Its comments,
    blank lines and indentation are removed too.
    """
    text = _NOT_EMPTY.sub(r"\1 ", text)
    return "".join(map(_plain_piece, _PIECE.findall(text)))


def _plain_piece(piece: str) -> str:
    quote, inner = piece[0], piece[1:-1]
    if quote == "'" and "\n" in inner:
        return f"'{_BLANK_LINES.sub(chr(10), _INNER_COMMENT.sub('', inner))}'"
    if quote not in "'\"" or (quote == '"' and re.search(r"[$`\\!]", inner)):
        return piece
    if _PLAIN.fullmatch(inner):
        return inner
    return piece if "'" in inner or not inner else f"'{inner}'"


@cache
def _read_sections(package: str, name: str) -> tuple[tuple[frozenset[str], bool, str], ...]:
    """Return (conditions, True if they are negated, text) for each section of ``<name>.lines``.

    A script contains the text of a section if all its conditions are met, or, for a negated
    section, if at least one condition is not met.
    """
    found: list[tuple[frozenset[str], bool, str]] = []
    conditions, negated, lines = frozenset[str](), False, list[str]()
    text = files(package).joinpath(f"{name}.lines").read_text("utf-8")
    for line in (*text.split("\n"), "%always"):
        if not line.startswith("%"):
            lines.append(line)
            continue
        found.append((conditions, negated, "\n".join(lines)))
        lines, words = [], line.split()
        negated = words[0] == "%else"
        conditions = conditions if negated else frozenset(words[1:])
    return tuple(section for section in found if section[2])


def known_lines(
    package: str, name: str, conditions: Collection[str], texts: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the commands that ``<name>.lines`` requires if ``conditions`` are the conditions met.

    Each placeholder ``<<name>>`` is replaced by the text that ``texts`` contains for its name.
    Other placeholders remain.
    """
    lines = "\n".join(
        text
        for needed, negated, text in _read_sections(package, name)
        if (needed <= set(conditions)) is not negated
    )
    return _plain_commands(_PLACEHOLDER.sub(lambda found: texts.get(found[1], found[0]), lines))


@lru_cache(maxsize=8)
def _plain_commands(text: str) -> tuple[str, ...]:
    return tuple(without_redundant_quotes(line.text) for line in command_lines(text))


@frozen
class FoundPlaceholderValue:
    """Text that a script contains where a line has the placeholder of ``value``."""

    value: ExpectedValue
    text: str
    line: ShellLine


@frozen
class ScriptComparison:
    """Commands of a script, compared with the commands that its plan requires."""

    found: tuple[ShellLine, ...]
    expected: tuple[str, ...]
    """Lines that the script must have. Values that are compared with the plan are left as they are
    in the script."""
    values: tuple[FoundPlaceholderValue, ...]

    def derive_settings(self, file: str, plan: Mapping[str, Any]) -> Iterator[DerivedSetting]:
        """Yield the settings that the script ``file`` contains, for comparison with ``plan``.

        If the script contains the expected text, the yielded setting has the value in ``plan``.
        """
        for one in self.values:
            path, needed = one.value.path, without_redundant_quotes(one.value.text)
            number, setting = one.line.number, one.line.text.split("\n")[0]
            if path and one.text == needed:
                yield DerivedSetting(path, planned_value(plan, path), file, number, setting)
            elif path:
                yield DerivedSetting(path, one.text, file, number, setting, needed=needed)


# Verifiers compare a script once for its settings and once for its lines.
@lru_cache(maxsize=4)
def compare_lines(
    script: ScriptLines, known: tuple[str, ...], values: tuple[ExpectedValue, ...]
) -> ScriptComparison:
    """Return a comparison of the commands in ``script`` with the commands that it must have.

    Args:
        script: the commands of the script.
        known: commands that the script must have, in which placeholders stand for values.
        values: expected value of each placeholder.
    """
    by_name = {one.name: one for one in values}
    unused = list(script.lines)
    expected: list[str] = []
    texts: list[FoundPlaceholderValue] = []
    for line in known:
        if not _PLACEHOLDER.search(line):
            expected.append(line)
            continue
        pattern, names = _line_pattern(line)
        match = next((m for one in unused if (m := pattern.fullmatch(one.text))), None)
        if match is None:
            expected.append(_PLACEHOLDER.sub(lambda found: by_name[found[1]].text, line))
            continue
        place = next(at for at, one in enumerate(unused) if one.text == match.string)
        found = unused.pop(place)
        expected.append(found.text)
        pairs = zip(names, match.groups(), strict=True)
        texts += [FoundPlaceholderValue(by_name[name], text, found) for name, text in pairs]
    return ScriptComparison(script.lines, tuple(expected), tuple(texts))


def _line_pattern(line: str) -> tuple[re.Pattern[str], list[str]]:
    """Return (pattern that matches ``line`` with any values, names of its placeholders).

    The placeholders are listed in the order of the groups that capture their values.
    """
    parts = _PLACEHOLDER.split(line)
    names = parts[1::2]
    # A placeholder that occurs twice on a line has one text.
    groups = [
        f"(?P={name})" if name in names[:at] else f"(?P<{name}>{_GROUPS.get(name, '.*?')})"
        for at, name in enumerate(names)
    ]
    texts = [re.escape(part) for part in parts[::2]]
    joined = texts[0] + "".join(f"{one}{two}" for one, two in zip(groups, texts[1:], strict=True))
    return re.compile(joined, re.DOTALL), list(dict.fromkeys(names))


def differing_variables(
    written: Mapping[str, tuple[str, int]], expected: Mapping[str, str]
) -> Iterator[tuple[str, str, str, int]]:
    """Yield (name, text in the file, required text, line) for each variable that differs.

    A text has the form ``NAME=VALUE``. It is empty if the variable is not set. ``written`` maps
    each variable of the file to (value, line).
    """
    for name in sorted(written.keys() | expected.keys()):
        text, line = written.get(name, (None, 1))
        needed = expected.get(name)
        if text != needed:
            here, must = ("" if one is None else f"{name}={one}" for one in (text, needed))
            yield name, here, must, line
