"""Commands of containers in a YAML file, as a script with the lines of the file.

Only the commands are kept, so that readers of scripts find each word at its line and column; all
other lines are empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from parc.backends.registry import all_declarations
from parc.compiler.tools.importers.manifest_arguments import join_manifest_arguments

_KEY = re.compile(r"^([ \t]*(?:-[ \t]+)?)(command|args|entrypoint):")
_BLOCK = re.compile(r"^[ \t]*(?:-[ \t]+)*[|>][+-]?\d?[ \t]*(?:#.*)?$")
"""Matches the mark of a block of text, after the key was removed."""
_SHELL = re.compile(r"(?:\S*/)?(?:ba|da|z)?sh(?: -\w+)+")
"""Matches a shell that runs its next argument."""
_MARKS = re.compile(r"[\\\"']")


def yaml_mapping(node: Node | None) -> dict[str, Node]:
    """Return key -> value of a mapping with scalar keys; empty for another node."""
    if not isinstance(node, MappingNode):
        return {}
    return {key.value: value for key, value in node.value if isinstance(key, ScalarNode)}


def yaml_items(node: Node | None) -> list[Node]:
    """Return the items of a list; none for another node."""
    return list(node.value) if isinstance(node, SequenceNode) else []


def yaml_text(node: Node | None) -> str:
    """Return the text of a scalar; an empty text for another node."""
    return str(node.value) if isinstance(node, ScalarNode) else ""


def last_line(node: Node) -> int:
    """Return the number of the last line of a node."""
    if isinstance(node, ScalarNode):
        # A block ends at the start of the line after it.
        return int(node.end_mark.line) + (node.style not in ("|", ">"))
    if not isinstance(node, SequenceNode | MappingNode) or node.flow_style or not node.value:
        return int(node.end_mark.line) + 1
    last = node.value[-1]
    return last_line(last[1] if isinstance(last, tuple) else last)


class CommandLines:
    """Lines of a YAML file that contain commands."""

    def __init__(self, text: str) -> None:
        """Start with no line of the file ``text``."""
        self._joined = join_manifest_arguments(text).split("\n")
        self._kept: dict[int, str] = {}
        self._commands: dict[tuple[str, ...], set[int]] = {}

    def __len__(self) -> int:
        """Return the number of lines that were kept."""
        return len(self._kept)

    def script(self) -> str:
        """Return the commands as a script; its lines have the numbers of those in the file."""
        return "\n".join(self._kept.get(one, "") for one in range(1, len(self._joined) + 1))

    def keep_line(self, number: int, text: str) -> None:
        """Use ``text`` as the line with this number."""
        self._kept[number] = text

    def keep_script(self, key: str, value: Node) -> None:
        """Keep a script of a ConfigMap, which a container can start."""
        if (
            isinstance(value, ScalarNode)
            and value.style == "|"
            and (key.endswith(".sh") or str(value.value).startswith("#!"))
        ):
            for number in range(int(value.start_mark.line) + 2, last_line(value) + 1):
                self._kept[number] = self._joined[number - 1].rstrip("\r")

    def keep_commands(
        self, node: MappingNode, image: str, keys: tuple[str, str] = ("command", "args")
    ) -> None:
        """Keep the lines of a container's command and arguments; join them if they are adjacent.

        ``keys`` are the keys of the command and of the arguments, which follow the entry point of
        ``image`` if there is no command.
        """
        ranges = {
            key.value: (int(key.start_mark.line) + 1, last_line(value))
            for key, value in node.value
            if isinstance(key, ScalarNode) and key.value in keys
        }
        command, arguments = (ranges.get(key) for key in keys)
        entry = "" if command is not None else entry_point(image)
        for key, (first, last) in ranges.items():
            for number in range(first, last + 1):
                line = self._joined[number - 1].rstrip("\r")
                match = _KEY.match(line) if number == first else None
                if match is not None:  # a list of arguments has lost its key already
                    line = " " * match.end() + line[match.end() :]
                self._kept[number] = "" if _BLOCK.match(line) else line
            if key == keys[1] and entry:
                self._start_with(entry, first)
        for _, value in node.value:
            self._continue_lines(value)
        if command is not None and arguments is not None and command < arguments:
            for number in range(command[1], arguments[0]):
                line = self._kept.get(number, "").rstrip()
                self._kept[number] = line if line.endswith("\\") else f"{line} \\"
        self._drop_repeated(ranges.values())
        self._drop_shell(command, arguments)

    def _start_with(self, entry: str, number: int) -> None:
        """Put the command ``entry`` before the words of a line."""
        line = self._kept[number]
        indent = len(line) - len(line.lstrip()) if line.strip(" \\") else len(line)
        kept = " " * max(0, indent - len(entry) - 1) + entry + " "
        rest = line[indent:].strip()
        self._kept[number] = kept + (rest or "\\")

    def _drop_repeated(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Drop a command that an earlier container has too, such as that of the other pods."""
        lines = [number for first, last in ranges for number in range(first, last + 1)]
        words = tuple(_MARKS.sub(" ", " ".join(self._kept.get(one, "") for one in lines)).split())
        if words not in self._commands:
            self._commands[words] = set(lines)
            return
        for number in set(lines) - self._commands[words]:
            self._kept[number] = ""

    def _drop_shell(self, command: tuple[int, int] | None, args: tuple[int, int] | None) -> None:
        """Drop the words of a shell that runs the script in ``args``, which starts with a mark."""
        if command is None or args is None or command > args:
            return
        words = [self._kept.get(one, "") for one in range(command[0], args[0])]
        marks = [self._joined[one - 1] for one in range(args[0], args[1] + 1)]
        text = " ".join(_MARKS.sub(" ", " ".join(words)).split())
        if _SHELL.fullmatch(text) and any(_BLOCK.match(_KEY.sub("", one)) for one in marks):
            for number in range(command[0], args[0]):
                self._kept[number] = ""

    def _continue_lines(self, node: Node) -> None:
        """Continue the lines of a text that YAML joins: one that is folded or has no marks."""
        for item in (node, *yaml_items(node)):
            if not isinstance(item, ScalarNode) or item.style == "|":
                continue
            for number in range(int(item.start_mark.line) + 1, last_line(item)):
                line = self._kept.get(number, "").rstrip()
                if line and not line.endswith("\\"):
                    self._kept[number] = f"{line} \\"


def entry_point(image: str) -> str:
    """Return the command that a known image starts with the arguments; empty if it is unknown."""
    found = (one.entry_points for one in all_declarations())
    return next(
        (command for pairs in found for name, command in pairs if _is_image(image, name)), ""
    )


def _is_image(image: str, name: str) -> bool:
    return re.fullmatch(rf"(?:\S+/)?{re.escape(name)}[\w-]*(?:[:@]\S+)?", image) is not None
