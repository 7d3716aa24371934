"""Reader of ``serve.sh``: it returns the engine processes that bash would start on every host.

It shares no code with the emitter. ``MalformedFileError`` is raised for any text that is not such a
script.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from parc.backends.shared.serving.verify_aliases import long_flags
from parc.backends.shared.verify_known_lines import (
    ExpectedValue,
    ScriptComparison,
    ScriptLines,
    compare_lines,
    known_lines,
)
from parc.backends.shared.verify_known_lines import read_script as read_commands
from parc.backends.shared.verify_launch_script import replace_setup_by_marker
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.read_emitted import LARGEST, MalformedFileError
from parc.compiler.verify.shell_lines import ShellLine

LINES = "serve.sh"
_ADDRESS = re.compile(r'"\$\{hosts\[(\d{1,7})\]\}"(:\d{1,5})?')
_LABEL = re.compile(r"(\d{1,7})\)")
_NODES = re.compile(r"nodes=\d{1,7}")
_HOSTS = re.compile(r"hosts=\(.*\)", re.DOTALL)
_INTERFACE = re.compile(r"interface=[^$]+")
COMMON, CASE = "<common>", "<case>"
"""Lines of ``serve.sh.lines`` that stand for the shared arguments and the table of processes."""


def split_values(
    words: Sequence[ScriptWord], flag: str
) -> tuple[list[ScriptWord], list[ScriptWord]]:
    """Return (words without ``flag``, values of the flag), for a flag with any number of values."""
    others: list[ScriptWord] = []
    values: list[ScriptWord] = []
    is_value = False
    for word in words:
        if word.text == flag:
            is_value = True
        elif is_value and not word.text.startswith("--"):
            values.append(word)
        else:
            is_value = False
            others.append(word)
    return others, values


def contains_values(planned: object, found: object) -> bool:
    """Return True if the mapping ``planned`` has all keys and values of ``found``.

    plan.json has more values than a script, for example those that only the estimate reads.
    """
    if not isinstance(planned, Mapping) or not isinstance(found, Mapping):
        return False
    return all(name in planned and planned[name] == value for name, value in found.items())


@frozen
class ServeFormat:
    """Texts in the script of one engine, as its verifier expects them."""

    file: str
    command: str
    """Words before the checkpoint: ``vllm serve``."""
    address_variable: str
    """Variable with the address of the host; empty if the engine has none."""
    exports_hosts: bool = False
    """True if the command reads the node rank and the names of all hosts from the environment."""
    channel_flag: str = ""
    """Flag that requires a side channel for KV caches; empty if the engine never needs one."""
    channel: tuple[tuple[str, str], ...] = ()
    """Text of each placeholder of the side channel in ``serve.sh.lines``."""
    package: str = ""
    """Python package of the backend, whose ``known_flags.json`` lists aliases of flags; empty if
    there is no such table."""

    @property
    def start(self) -> re.Pattern[str]:
        """Pattern of the line that starts a process; groups: vendor, checkpoint."""
        return re.compile(
            rf"(CUDA|HIP)_VISIBLE_DEVICES=\$devices {re.escape(self.command)} (.+) "
            r'"\$\{common\[@\]\}" "\$@" &',
            re.DOTALL,
        )


@frozen
class ScriptWord:
    """A word on a command line, without quotes, and its line."""

    text: str
    line: int


@frozen
class ScriptProcess:
    """A process that the script starts; the last value of a repeated flag counts."""

    file: str
    """The script, for messages."""
    node: int
    """Node rank of the host that runs the process."""
    devices: tuple[int, ...]
    own: dict[str, str]
    """Flags of this process only. The host with node rank n has the address ``host n`` in them,
    or ``host n:port``."""
    flags: dict[str, str]
    """All flags: the shared flags, and the flags of this process, which replace shared ones."""
    head: int | None
    """Node rank of the rendezvous host; None if the process needs no rendezvous."""
    line: int

    def number(self, flag: str, default: int) -> int:
        """Return the whole number that ``--flag`` sets, or ``default`` if the flag is absent.

        Raises:
            MalformedFileError: the value is not a whole number.
        """
        if flag not in self.flags:
            return default
        return parse_whole_number(self.file, flag, self.flags[flag], self.line)


# Equal only to itself, so that functions of a script can be cached.
@dataclass(frozen=True, slots=True, eq=False)
class ServeScript:
    """The settings, the hosts and the processes in the script."""

    format: ServeFormat
    nodes: ScriptWord
    hosts: tuple[str, ...]
    """Host names by node rank; empty if the hosts have no names."""
    hosts_line: int
    exports: Mapping[str, tuple[str, int]]
    """Value and line of each exported variable."""
    interface: ScriptWord | None
    checkpoint: ScriptWord
    vendor: ScriptWord
    """Prefix of the variable that selects GPUs: ``CUDA`` or ``HIP``."""
    common: tuple[ScriptWord, ...]
    """Arguments of all processes."""
    processes: tuple[ScriptProcess, ...]
    """Processes in the order of the script."""
    program: ScriptLines
    """All lines; COMMON and CASE stand for the shared arguments and the table of processes."""

    @property
    def node_count(self) -> int:
        """Number of hosts."""
        return int(self.nodes.text)


def parse_whole_number(file: str, flag: str, text: str, line: int) -> int:
    """Return the value ``text`` of a flag in ``file`` as a number.

    Raises:
        MalformedFileError: the text is not a whole number, or is too large.
    """
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) > LARGEST:
        raise MalformedFileError(file, line, f"--{flag} is {text!r:.40}, must be a number")
    return int(text)


@lru_cache(maxsize=1)
def read_script(text: str, script: ServeFormat) -> ServeScript:
    """Return the content of the script: settings, hosts and processes.

    The most recent result is cached, because each check of the verifier reads the same script.
    """
    commands = read_commands(replace_setup_by_marker(text))
    reader = _Reader(script.file, script.package)
    before, common, after = reader.split_at_block(list(commands.lines), "common=(", ")")
    middle, table, tail = reader.split_at_block(after, "case $NODE_RANK in", "esac")
    marks = ShellLine(common[0].number, COMMON), ShellLine(table[0].number, CASE)
    program = (*before, marks[0], *middle, marks[1], *tail)
    words = tuple(reader.iterate_words(common[1:-1]))
    texts = long_flags(script.package, [word.text for word in words])
    words = tuple(ScriptWord(text, one.line) for text, one in zip(texts, words, strict=True))
    start, nodes = _last_line(script.start, program), _last_line(_NODES, program)
    found = script.start.fullmatch(start.text) if start is not None else None
    served = reader.split_words(found[2]) if found else []
    if start is None or found is None or len(served) != 1 or nodes is None:
        raise MalformedFileError(
            script.file,
            1,
            f"the script lacks the line {script.command} CHECKPOINT or the line nodes=N",
        )
    hosts, interface = _last_line(_HOSTS, program), _last_line(_INTERFACE, program)
    shared = parse_flags([word.text for word in words])
    return ServeScript(
        format=script,
        nodes=reader.assigned_value(nodes),
        hosts=tuple(reader.split_words(hosts.text[len("hosts=(") : -1])) if hosts else (),
        hosts_line=hosts.number if hosts else 1,
        exports=commands.exports,
        interface=reader.assigned_value(interface) if interface else None,
        checkpoint=ScriptWord(served[0], start.number),
        vendor=ScriptWord(found[1], start.number),
        common=words,
        processes=tuple(reader.iterate_processes(table[1:-1], shared)),
        program=ScriptLines(program, commands.exports),
    )


def compare_program(script: ServeScript, setup: bool, inherited: Sequence[str]) -> ScriptComparison:
    """Return a comparison of the script with the commands that ``serve.sh.lines`` requires.

    Args:
        script: the script, whose hosts, interface and exports decide which commands are required.
        setup: True if the plan has set-up commands (``launch.setup``).
        inherited: names of the variables that the script takes over from the calling shell.
    """
    named = "named" if script.hosts else "unnamed"
    conditions = {"single"} if script.node_count == 1 else {"several", named}
    conditions |= {"site"} if setup else set()
    conditions |= {"environment"} if script.exports else set()
    conditions |= {"inherited"} if inherited else set()
    conditions |= {"interface"} if script.interface else set()
    flag = script.format.channel_flag
    if flag and any(word.text.partition("=")[0] == flag for word in script.common):
        conditions |= {"channel"} if script.interface else {"channel", "default-address"}
    conditions |= {"exported"} if script.format.exports_hosts else set()
    texts = {
        **dict(script.format.channel),
        "inherited": shlex.join(inherited),
        "command": script.format.command,
        "address_variable": script.format.address_variable,
    }
    known = known_lines(__package__, LINES, conditions, texts)
    # Any word is accepted in these places; derive_settings compares the words with the plan.
    placeholders = ("nodes", script.nodes), ("vendor", script.vendor), ("model", script.checkpoint)
    values = [ExpectedValue(name, shlex.quote(word.text)) for name, word in placeholders]
    values += [ExpectedValue("hosts", shlex.join(script.hosts))]
    values += [ExpectedValue("interface", script.interface.text if script.interface else "")]
    return compare_lines(script.program, known, tuple(values))


def _last_line(pattern: re.Pattern[str], lines: Sequence[ShellLine]) -> ShellLine | None:
    """Return the last of ``lines`` that matches ``pattern``; None if no line matches."""
    return next((line for line in reversed(lines) if pattern.fullmatch(line.text)), None)


def parse_flags(words: list[str]) -> dict[str, str]:
    """Return the value of each flag in ``words`` as text, by the name of the flag without dashes.

    Several values are joined by blanks. A flag without a value has an empty text.
    """
    flags: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            name = name.replace("_", "-")
            flags[name] = value
        elif name:
            flags[name] = f"{flags[name]} {word}" if flags[name] else word
    return flags


@frozen
class _Reader:
    """Reader of the parts of the script ``file``."""

    file: str
    package: str
    """Backend of the engine, as in ``ServeFormat``."""

    def split_at_block(
        self, lines: list[ShellLine], first: str, last: str
    ) -> tuple[list[ShellLine], list[ShellLine], list[ShellLine]]:
        """Return (lines before a block, lines of the block, lines after the block).

        The block starts with the line ``first`` and ends with the next line ``last``.
        """
        start = next((at for at, line in enumerate(lines) if line.text == first), None)
        end = next(
            (at for at, line in enumerate(lines) if line.text == last and at > (start or 0)), 0
        )
        if start is None or not end:
            raise MalformedFileError(self.file, 1, f"the script has no block {first} ... {last}")
        return lines[:start], lines[start : end + 1], lines[end + 1 :]

    def assigned_value(self, line: ShellLine) -> ScriptWord:
        words = self.split_words(line.text)
        if len(words) != 1:
            raise MalformedFileError(
                self.file, line.number, f"{line.text!r:.60} is not a single assignment"
            )
        return ScriptWord(words[0].partition("=")[2], line.number)

    def iterate_words(self, lines: list[ShellLine]) -> Iterator[ScriptWord]:
        for line in lines:
            for word in self.split_words(line.text):
                yield ScriptWord(word, line.number)

    def split_words(self, text: str) -> list[str]:
        """Return the words into which a shell would split ``text``, without quotes."""
        try:
            return shlex.split(text)
        except ValueError as error:
            raise MalformedFileError(
                self.file, 1, f"the text is not valid shell: {error}"
            ) from None

    def iterate_processes(
        self, lines: list[ShellLine], shared: dict[str, str]
    ) -> Iterator[ScriptProcess]:
        """Yield the processes that the table at the end of the script starts.

        For each host, the table contains a label ``N)``, one line per process, and ``;;``.
        ``shared`` contains the flags that all processes share.
        """
        node: int | None = None
        started = 0
        for line in lines:
            label = _LABEL.fullmatch(line.text)
            if label and node is None:
                node, started = int(label[1]), 0
            elif node is not None and line.text == ";;" and started:
                node = None
            elif (
                node is not None and line.text.startswith("start ") and line.text.endswith(' "$@"')
            ):
                started += 1
                yield self._parse_process(node, line, shared)
            else:
                raise MalformedFileError(
                    self.file, line.number, f"{line.text!r:.60} is not a line that starts a process"
                )
        # The last host needs no ``;;``.
        if node is not None and not started:
            raise MalformedFileError(self.file, lines[-1].number, f"host {node} starts no process")

    def _parse_process(self, node: int, line: ShellLine, shared: dict[str, str]) -> ScriptProcess:
        """Return the process that a line of the table starts on host ``node``.

        For example, ``start 0,1 --flag value "$@"`` starts a process on the GPUs 0 and 1.
        ``shared`` contains the flags that all processes share.
        """
        # Addresses are elements of the array ``hosts``, which only bash can expand; their index is
        # the node rank.
        heads = [int(found) for found, _ in _ADDRESS.findall(line.text)]
        if len(set(heads)) > 1:
            raise MalformedFileError(
                self.file,
                line.number,
                f"host {node}: its command names two different rendezvous hosts",
            )
        words = self.split_words(_ADDRESS.sub(r"'host \1\2'", line.text.removesuffix(' "$@"')))
        devices = words[1].split(",") if len(words) > 1 else []
        if not all(re.fullmatch(r"[0-9]{1,4}", device) for device in devices):
            raise MalformedFileError(
                self.file, line.number, f"{words[1]!r:.40} is not a list of GPUs"
            )
        words[2:] = long_flags(self.package, words[2:])
        if len(words) > 2 and not words[2].startswith("--"):
            raise MalformedFileError(self.file, line.number, f"{words[2]!r:.40} is not a flag")
        # The flags of a process follow the shared ones on the command line, so they win.
        own = parse_flags(words[2:])
        head = heads[0] if heads else None
        return ScriptProcess(
            self.file, node, tuple(map(int, devices)), own, shared | own, head, line.number
        )
