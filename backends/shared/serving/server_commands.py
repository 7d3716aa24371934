"""Find the commands of a script that start a server, with the arguments that each of them gets.

A script with a server also starts other programs, such as clients that measure it, whose flags can
have the names of the server's flags. The arguments of a server are therefore only the words of its
own command, and the values of the variables and arrays that this command uses.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from parc.backends.shared.extra_arguments import COUNTS
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import LaunchFlag, flags_in_statements, split_flags
from parc.compiler.tools.importers.manifest_arguments import join_manifest_arguments
from parc.compiler.tools.importers.script_commands import USED, starts_program
from parc.compiler.tools.importers.shell_words import Word, statements
from parc.compiler.tools.shell.pieces import PIECE
from parc.compiler.topology.readers.reader_state import Reading

FindServer = Callable[[list[Word]], Word | None]
"""Function that returns the word of a statement that names the server; None if there is none."""
_ASSIGNED = re.compile(
    r"(?<![\w$-])(?P<name>[A-Za-z_]\w*)\+?="
    r"(?:(?P<array>\()|(?P<value>\"(?:[^\"\\]|\\[\s\S])*+\"|'[^']*'|[^\s;&|()\"']*))"
)
"""Matches an assignment with its value, or with the start of an array."""
_USE = re.compile(r"\$\{?([A-Za-z_]\w*)(?:\[[@*]\])?\}?\"?")
_MESSAGE = re.compile(
    r"\s*(?:echo|printf|log|info|warn|error|die|usage|cat|export|unset|test|\[)\b"
)
_BEFORE_COMMAND = re.compile(
    r"(?:\s|\w+=(?:\"[^\"]*\"|'[^']*'|[^\s\"'])*\s|(?:if|then|do|else|while|until|!|\{|\()(?=\s))*"
    r"[\"']?(?:$|(?:\S*/)?(?:exec|nohup|setsid|eval|time|env|srun|mpirun|stdbuf|timeout|numactl|taskset"
    r"|bash|sh|ssh|docker|podman|apptainer|singularity|sudo|command|nice|xargs|unbuffer)\s)"
)
"""Matches the start of a command up to the program, with the launchers before it."""
_VALUE = re.compile(r"\w\+?=(?:[\"'(]?[^\s\"']*|\([^)]*|\"[^\"]*)$")
"""Matches the start of a command up to a value that it assigns."""
MOST_WORDS = 50_000
"""Maximum number of words of all commands that are read; each can use all variables again."""
LONGEST_PREFIX = 400
"""Number of characters before a variable in which its command begins."""
_COMMAND_END = re.compile(r"(?<!\\)\n|[;&|]")
_KEY = re.compile(r"[\w.-]+:")
"""Matches a key of YAML as a word."""
_REDIRECTION = re.compile(r"[0-9&]?[<>]|\|")
_ALL_ELEMENTS = re.compile(r"\$\{\w+\[[@*]\]\}|\$[@*]")
"""Matches all elements of an array, or all arguments of a script."""
_IMAGE_TOOLS = ("docker", "podman", "enroot", "apptainer", "singularity")
_OTHER_ACTIONS = frozenset(
    ("pull", "build", "tag", "push", "rmi", "inspect", "load", "save", "import", "pkill", "pgrep")
)


@frozen
class ServerCommand:
    """Command that starts a server."""

    start: Word
    """Word that names the server."""
    words: tuple[Word, ...]
    """Words of the command from ``start`` on, and of the variables that it uses."""

    @property
    def flags(self) -> list[LaunchFlag]:
        """Flags of the command, with their values."""
        found = [flag for one in statements(self.words) for flag in split_flags(one)]
        # Without a blank, a redirection is a part of the word: ``--trust-remote-code>log``.
        return [replace(flag, name=re.split("[<>]", flag.name)[0]) for flag in found]


def is_manifest_text(words: Iterable[Word]) -> bool:
    """Return True if the words are those of a file in YAML, whose lists contain arguments."""
    return any(_KEY.fullmatch(one[0].text) for one in statements(words))


def contains_only_arguments(words: list[Word]) -> bool:
    """Return True if the words start no program, such as those of a file with arguments only."""
    return is_manifest_text(words) or not starts_program(words)


def is_other_action(statement: Sequence[Word]) -> bool:
    """Return True for a command about an image or a process, such as ``docker pull``."""
    texts = [word.text.rpartition("/")[2] for word in statement]
    if texts[0] in ("pkill", "pgrep"):
        return True
    tool = next((at for at, text in enumerate(texts) if text in _IMAGE_TOOLS), None)
    return tool is not None and any(text in _OTHER_ACTIONS for text in texts[tool + 1 : tool + 3])


def positional_argument(
    words: Sequence[Word], rows: Mapping[str, Mapping[str, Any]]
) -> Word | None:
    """Return the first word that is neither a flag nor its value, such as the name of a model.

    Return None if there is none, or if an unknown flag may take this word as its value.

    Args:
        words: arguments of a command.
        rows: known flags of the command.
    """
    at = 0
    while at < len(words) and not _REDIRECTION.match(words[at].text):
        word = words[at]
        at += 1
        if _ALL_ELEMENTS.fullmatch(word.text):
            continue
        if not word.is_flag:
            return word
        left = _most_values(word.text, rows)
        followed = at < len(words) and not words[at].is_flag
        if left is None and followed:
            return None
        while left and at < len(words) and not words[at].is_flag:
            at, left = at + 1, left - 1
    return None


def _most_values(flag: str, rows: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return the largest number of words after ``flag`` that are its values; None if unknown."""
    name, equals, _ = flag.partition("=")
    if equals:
        return 0
    row = rows.get(name) or rows.get(name.replace("_", "-"))
    if row is None:
        return None
    takes = row.get("takes", 1)
    return float(COUNTS[takes][1] if takes in COUNTS else takes)


def server_starts(words: Iterable[Word], find: FindServer) -> list[Word]:
    """Return the word that names the server, for each statement that starts one."""
    return [start for one in statements(words) if (start := find(one)) is not None]


def read_servers(words: Sequence[Word], text: str, find: FindServer) -> tuple[ServerCommand, ...]:
    """Return the commands of a script that start a server; empty for a file in YAML.

    The lists of a file in YAML can belong to the server without being a part of its command.
    """
    return () if is_manifest_text(words) else read_server_commands(words, text, find)


def flags_of_servers(
    words: list[Word], text: str, find: FindServer, signs: Collection[str], is_own: bool = False
) -> list[list[LaunchFlag]]:
    """Return the flags of each server that a script starts.

    The result has one list for a file that contains only arguments, and for the scripts of PARC,
    whose servers have the same flags. It is empty if the script starts only other programs.

    Args:
        words: words of the script.
        text: the script.
        find: function that finds the start of a server.
        signs: flags by which a list of arguments is recognized.
        is_own: True if PARC emitted the script.
    """
    if not (is_own or is_manifest_text(words)):
        commands = read_server_commands(words, text, find)
        if commands or starts_program(words):
            return [one.flags for one in commands]
    flags = flags_in_statements(words, signs)
    return [flags] if flags else []


def distinct_flags(servers: Iterable[Iterable[LaunchFlag]]) -> list[LaunchFlag]:
    """Return the flags of all servers in the order of the file, each word once."""
    found = {id(flag.word): flag for flags in servers for flag in flags}
    return sorted(found.values(), key=lambda flag: flag.word.span)


def report_other_servers(
    servers: Sequence[Sequence[LaunchFlag]], shared: Collection[str], reading: Reading
) -> None:
    """Report the flags by which further servers differ from the first one (I04).

    ``shared`` are flags that PARC sets itself for each server of a job, such as ``--port``.
    """
    # Commands that differ only in flags about hosts start parts of one server.
    of_hosts = set(shared) - {"--port"}
    settings = [
        {(flag.name, flag.value) for flag in flags if flag.name not in of_hosts}
        for flags in servers
    ]
    own = {id(flag.word) for flag in servers[0]} if servers else ()
    for flag in distinct_flags(servers[1:]):
        reading.account(flag.word.span)
        equal = (flag.name, flag.value) in settings[0] or flag.name in shared
        if id(flag.word) not in own and not equal:
            text = " ".join((flag.name, flag.value)).rstrip()
            hint = "it is a flag of another server: import the command of that server alone"
            reading.leave_out(text, flag.word.span, hint)
    if any(one != settings[0] for one in settings[1:]):
        reading.notes.append(f"the script starts {len(servers)} servers: this is the first one")


def read_server_commands(
    words: Sequence[Word], text: str, find: FindServer
) -> tuple[ServerCommand, ...]:
    """Return the commands of the script ``text`` that start a server, in the order of the script.

    ``words`` are the words of the script.
    """
    starts = server_starts(words, find)
    return _CommandReader(words, text, starts).commands() if starts else ()


class _CommandReader:
    """Reader of the commands of one script that start servers."""

    def __init__(self, words: Sequence[Word], text: str, starts: Sequence[Word]) -> None:
        self._text = text = join_manifest_arguments(text)
        self._left = MOST_WORDS
        """Number of words that further commands can have."""
        self._starts = starts
        lines = [0, *(match.end() for match in re.finditer("\n", text))]
        located = [(lines[one.span.line - 1] + one.span.column - 1, one) for one in words]
        self._located = sorted(located, key=lambda pair: pair[0])
        self._offsets = [offset for offset, _ in self._located]
        self._offset = {id(word): offset for offset, word in self._located}
        self._by_statement: dict[int, list[Word]] = {}
        for _, word in self._located:
            self._by_statement.setdefault(word.statement, []).append(word)
        self._values: dict[str, list[Word]] = {}
        """Variable -> words of its values."""
        self._named: dict[str, list[str]] = {}
        """Variable -> names of the variables in its values."""
        self._read_values()
        names = {id(word): name for name, value in self._values.items() for word in value}
        self._start_in: dict[str, Word] = {}
        """Variable -> start of the server in its value."""
        for start in starts:
            if id(start) in names:
                self._start_in.setdefault(names[id(start)], start)
        self._in_values = {id(start) for start in starts if id(start) in names}

    def commands(self) -> tuple[ServerCommand, ...]:
        """Return the commands that start servers."""
        found = [
            (self._offset[id(start)], self._direct_command(start))
            for start in self._starts
            if id(start) not in self._in_values
        ]
        started = set()
        for at, name, command in self._started_variables():
            started.add(name)
            found.append((at, command))
        for name, start in self._start_in.items():
            if name not in started:
                found.append((self._offset[id(start)], self._command(start, [], [name])))
        return tuple(command for _, command in sorted(found, key=lambda pair: pair[0]))

    def _read_values(self) -> None:
        """Store the words of each variable, and the variables that its values use."""
        for _, word in self._located:
            if word.variable:
                self._values.setdefault(word.variable.rstrip("+"), []).append(word)
        done = 0
        for match in _ASSIGNED.finditer(self._text):
            if match.start() < done:
                continue
            name, end = match["name"], match.end()
            if match["array"]:
                start = match.start("array")
                done = end = self._end_of_command(start, len(self._text))
                elements = self._words_between(start, end)
                self._values.setdefault(name, []).extend(elements)
            used = USED.findall(self._text, match.start(), end)
            self._named.setdefault(name, []).extend(one for one in used if one != name)

    def _words_between(self, start: int, end: int) -> list[Word]:
        first, last = bisect_left(self._offsets, start), bisect_left(self._offsets, end)
        return [word for _, word in self._located[first:last] if not word.variable]

    def _end_of_command(self, start: int, bound: int) -> int:
        """Return the offset at which the command, or the array, that begins at ``start`` ends."""
        at, depth, is_new_word = start, 0, False
        while at < bound and (match := PIECE.match(self._text, at, bound)) is not None:
            kind = match.lastgroup
            if is_new_word and match[0].startswith("#"):
                line_end = self._text.find("\n", at, bound)
                at = bound if line_end < 0 else line_end
                continue
            depth += (kind == "open") - (kind == "close")
            ends = kind == "end" and not depth and not self._is_redirection(at)
            if depth < 0 or kind == "other" or ends:
                return at
            at, is_new_word = match.end(), kind in ("blank", "end", "open")
            if kind == "close" and not depth and self._text[start] == "(":
                return at
        return min(at, bound)

    def _is_redirection(self, at: int) -> bool:
        """Return True for the sign in ``2>&1`` and ``&>file``, which separates no commands."""
        around = {*self._text[max(at - 1, 0) : at], *self._text[at + 1 : at + 2]}
        return self._text[at] == "&" and bool({"<", ">"} & around)

    def _direct_command(self, start: Word) -> ServerCommand:
        """Return the command that contains ``start`` in its own words."""
        at = self._offset[id(start)]
        own = [one for one in self._by_statement[start.statement] if self._offset[id(one)] >= at]
        after = bisect_left(self._offsets, self._offset[id(own[-1])] + 1)
        bound = self._offsets[after] if after < len(self._offsets) else len(self._text)
        end = self._end_of_command(at, bound)
        return self._command(start, own, USED.findall(self._text, at, end))

    def _started_variables(self) -> Iterator[tuple[int, str, ServerCommand]]:
        """Yield (offset, variable, command) of each command that is the value of a variable.

        The value can contain another variable, which contains the start of the server.
        """
        origin = self._origins()
        uses = list(self._uses(origin)) if origin else []
        run = {origin[match[1]] for match, before in uses if _BEFORE_COMMAND.match(before)}
        done, passed = 0, set(run)
        for match, before in uses:
            name = origin[match[1]]
            # A function that gets the command as its argument may only print it.
            is_run = _BEFORE_COMMAND.match(before) is not None or name not in passed
            if match.start() < done or not is_run:
                continue
            passed.add(name)
            done = self._end_of_use(match, before)
            own = self._words_between(match.end(), done)
            used = [match[1], *USED.findall(self._text, match.end(), done)]
            yield match.start(), name, self._command(self._start_in[name], own, used)

    def _uses(self, names: Collection[str]) -> Iterator[tuple[re.Match[str], str]]:
        """Yield (use, part of its command before it) of the variables that are not only printed."""
        for match in _USE.finditer(self._text):
            if match[1] in names:
                before = self._start_of_command(match.start())
                if not (_MESSAGE.match(before) or _VALUE.search(before)):
                    yield match, before

    def _end_of_use(self, use: re.Match[str], before: str) -> int:
        """Return the offset at which the command with the variable ``use`` ends."""
        if before.count('"') % 2 and not use[0].endswith('"'):
            quote = self._text.find('"', use.end())
            return len(self._text) if quote < 0 else quote
        return self._end_of_command(use.end(), len(self._text))

    def _origins(self) -> dict[str, str]:
        """Return variable -> variable in its value, or itself, that starts a server."""
        users: dict[str, list[str]] = {}
        for name, used in self._named.items():
            for one in used:
                users.setdefault(one, []).append(name)
        origin = {name: name for name in self._start_in}
        todo = list(origin)
        while todo:
            name = todo.pop()
            for user in users.get(name, ()):
                if user not in origin:
                    origin[user] = origin[name]
                    todo.append(user)
        return origin

    def _start_of_command(self, at: int) -> str:
        """Return the part of a command before the offset ``at``."""
        first = max(0, at - LONGEST_PREFIX)
        ends = [match.end() for match in _COMMAND_END.finditer(self._text, first, at)]
        return self._text[ends[-1] if ends else first : at]

    def _reachable(self, names: Iterable[str]) -> list[str]:
        """Return ``names`` and the variables in their values, each once."""
        todo = list(dict.fromkeys(names))
        seen = dict.fromkeys(todo)
        while todo:
            new = dict.fromkeys(one for one in self._named.get(todo.pop(), ()) if one not in seen)
            seen |= new
            todo += new
        return list(seen)

    def _command(self, start: Word, own: list[Word], used: Iterable[str]) -> ServerCommand:
        """Return the command with the words ``own`` and those of the variables ``used``."""
        chosen = {id(word): word for word in own}
        first = self._offset[id(start)]
        names = self._reachable(used)
        # Each command can use all variables again.
        self._left -= len(own) + sum(len(self._values.get(name, ())) for name in names)
        for name in names if self._left > 0 else ():
            value = self._values.get(name, ())
            # The words before the start belong to a launcher.
            whole = self._start_in.get(name) is not start
            chosen |= {id(one): one for one in value if whole or self._offset[id(one)] >= first}
        ordered = sorted(chosen.values(), key=lambda one: self._offset[id(one)])
        return ServerCommand(start, tuple(ordered))
