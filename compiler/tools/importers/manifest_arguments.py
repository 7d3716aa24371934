"""Turn the arguments in YAML files into command lines that a shell reader understands.

A container of Kubernetes or Compose lists its command as ``command:`` and ``args:``, with one item
per word. The items become words of one command. Other files map flags to values, such as the test
cases of Megatron: ``--num-layers: 32``. Each word keeps its line and its column.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

_KEY = re.compile(r"(?P<indent>[ \t]*(?:-[ \t]+)?)(?:command|args):[ \t]*(?P<rest>.*)")
"""Matches the key of a list of words, and what follows on its line."""
_ARGUMENTS = re.compile(r"(?:-[ \t]+)?args:")
_ITEM = re.compile(r"(?P<indent>[ \t]*)-[ \t]+(?P<value>\S.*)")
_COMMENT = re.compile(r"(?:^|[ \t])#.*$")
_BLOCK = re.compile(r"[|>][+-]?\d?[ \t]*$")
"""Matches the start of a block of text, which is a script instead of a word."""
_TEMPLATE = re.compile(r"[ \t]*\{\{-?[ \t]*(\w*)")
"""Matches a line of a Helm template that adds or removes items."""
_CONDITIONS = ("if", "range", "with")
_UNKNOWN = " {{}}"
"""Line with a word that stands for words which only the template engine knows."""
_VARIABLE = re.compile(r"\$\((\w+)\)")
"""Matches a variable in a list of Kubernetes, which the shell would write as ``${NAME}``."""
_QUOTED = re.compile(r"""("[^"\n]*"|'[^'\n]*')|[\[\],]""")
_MAPPING = re.compile(r"[\w.-]+:([ \t]|$)")
"""Matches a list item that is a mapping, such as ``name: server``."""
_FLAG = re.compile(r"(?P<indent>[ \t]+)(?P<flag>--[\w.-]+):(?P<value>[ \t].*|$)")
"""Matches a flag that is the key of a mapping, and its value."""
_SPECIAL = re.compile(r"[()<>|&;*?\[\]{}!`\\]")
"""Matches a character that the shell would interpret."""


def join_manifest_arguments(text: str) -> str:
    """Return ``text`` with the items of each ``command:`` and ``args:`` list on one shell line.

    The same applies to the flags of a mapping. Line ends between two items are escaped, and the
    marks of the list are replaced by blanks. The text is returned unchanged if it contains neither.
    """
    text = _join_flags(text)
    if "args:" not in text and "command:" not in text:
        return text
    lines = text.split("\n")
    previous: tuple[str, int] | None = None
    at = 0
    while at < len(lines):
        key = _KEY.fullmatch(lines[at].rstrip("\r"))
        items = dict(_list_items(lines, at, key)) if key is not None else {}
        if key is None or not items:
            at += 1
            continue
        # The arguments of a container follow its command.
        indent = key["indent"].replace("-", " ")
        if previous == (indent, at - 1) and "args:" in lines[at]:
            lines[at - 1] += " \\"
        # Without its key, a list of arguments starts with a flag, also if it precedes the command.
        line = items.get(at, lines[at])
        items[at] = _ARGUMENTS.sub(lambda match: " " * len(match[0]), line, count=1)
        end = max(items)
        for number in range(at, end + 1):
            line = _VARIABLE.sub(r"${\1}", items.get(number, lines[number]))
            lines[number] = line + " \\" if number < end else line
        previous, at = (indent, end), end + 1
    return "\n".join(lines)


def _list_items(lines: list[str], at: int, key: re.Match[str]) -> Iterator[tuple[int, str]]:
    """Yield (line number, line as words of a shell) for the list whose key is in line ``at``."""
    rest = _COMMENT.sub("", key["rest"])
    if rest.startswith("["):
        yield from _flow_items(lines, at)
        return
    if rest:
        return
    depth, conditions = -1, 0
    for number in range(at + 1, len(lines)):
        line = lines[number].rstrip("\r")
        if not _COMMENT.sub("", line).strip():
            if depth >= 0 and line.strip():
                yield number, ""  # a comment between two items
            continue
        if (template := _TEMPLATE.match(line)) is not None:
            conditions += -1 if template[1] == "end" else template[1] in _CONDITIONS
            yield number, _UNKNOWN
            continue
        item = _ITEM.fullmatch(line)
        if item is not None and conditions > 0:  # the template decides whether the item exists
            yield number, _UNKNOWN
            continue
        if item is None or (depth >= 0 and len(item["indent"]) != depth):
            return
        depth = len(item["indent"])
        value = _COMMENT.sub("", item["value"])
        if _BLOCK.fullmatch(value) or _MAPPING.match(value):
            return
        yield number, " " * item.start("value") + value


def _flow_items(lines: list[str], at: int) -> Iterator[tuple[int, str]]:
    """Yield the lines of a list in brackets, without brackets and commas."""
    for number in range(at, len(lines)):
        line = _COMMENT.sub("", lines[number].rstrip("\r"))
        yield number, _QUOTED.sub(lambda match: match[1] or " ", line)
        if "]" in _QUOTED.sub(lambda match: "" if match[1] else match[0], line):
            return


def _join_flags(text: str) -> str:
    """Return ``text`` with each mapping of flags as one command.

    As in the programs that read such files, ``true`` stands for a flag without a value, and a flag
    with the value ``false`` is left out.
    """
    if re.search(r"^[ \t]+--[\w.-]+:", text, re.MULTILINE) is None:
        return text
    lines = text.split("\n")
    last = ("", -1)
    """Indent and line of the flag before."""
    for at, line in enumerate(lines):
        match = _FLAG.fullmatch(line.rstrip("\r"))
        if match is None:
            if _COMMENT.sub("", line).strip():
                last = ("", -1)
            continue
        if last[0] == match["indent"]:
            for between in range(last[1], at):
                lines[between] = f"{_COMMENT.sub('', lines[between])} \\"
        value = _shell_value(_COMMENT.sub("", match["value"]).rstrip())
        lines[at] = "" if value is None else f"{match['indent']}{match['flag']} {value}"
        last = (match["indent"], at)
    return "\n".join(lines)


def _shell_value(value: str) -> str | None:
    """Return the value of a flag as a shell would read it; None if the flag is left out.

    Each word keeps its column. A list, and a text of several numbers, become several words.
    """
    text = value.strip()
    if text in ("true", "false", "null", "~"):
        return "" if text == "true" else None
    marks = []
    for first, last in ('""', "''", "[]"):
        if len(text) > 1 and text.startswith(first) and text.endswith(last):
            marks.append(first)
            text = text[1:-1]
    indent = " " * (len(value) - len(value.lstrip()) + len(marks))
    is_list = "[" in marks or all(map(str.isdigit, text.split()))
    literal = re.sub(r"\$\{\w+\}", "", text)
    if not _SPECIAL.search(literal) and (is_list or " " not in literal):
        return indent + text
    # The quotation mark takes the place of a blank.
    return indent[:-1] + (f'"{text}"' if "$" in text else shlex.quote(text))
