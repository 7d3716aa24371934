"""Reader of ``vllm/serve.sh``, which returns the processes that bash would start on every host.

It shares no code with the emitter. ``Malformed`` is raised for any text that is not such a script.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from parc.compiler.verify.read_emitted import LARGEST, Malformed

SCRIPT = "vllm/serve.sh"
_COMMON = re.compile(r"^common=\(\n(.*?)^\)$", re.MULTILINE | re.DOTALL)
_HOSTS = re.compile(r"^hosts=\((.*)\)$", re.MULTILINE)
_CASE = re.compile(r"^  (\d{1,7})\) # .*\n((?:    start .*\n)+)    ;;$", re.MULTILINE)
_ADDRESS = re.compile(r'"\$\{hosts\[(\d{1,7})\]\}"')
_NODES = re.compile(r"^nodes=(\d{1,7})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Process:
    """A ``vllm serve`` command in the script; the last value of a repeated flag counts."""

    node: int
    """Node rank of its host."""
    devices: tuple[int, ...]
    flags: dict[str, str]
    head: int | None
    """Node rank of the host on which it meets other processes; None if it runs without others."""

    def number(self, flag: str, default: int) -> int:
        """Return the whole number that ``--flag`` sets, or ``default`` if the flag is absent.

        Raises:
            Malformed: the value is not a whole number.
        """
        if flag not in self.flags:
            return default
        text = self.flags[flag]
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) > LARGEST:
            raise Malformed(SCRIPT, 1, f"--{flag} is {text!r:.40}, must be a number")
        return int(text)


@dataclass(frozen=True, slots=True)
class Script:
    """The hosts and the processes in the script."""

    nodes: int
    hosts: tuple[str, ...]
    """Host names by node rank; empty if the hosts have no names."""
    processes: tuple[Process, ...]
    """Processes in the order of the script."""


def read_script(text: str) -> Script:
    """Return the hosts and the processes in the script."""
    common, nodes = _COMMON.search(text), _NODES.search(text)
    if common is None or nodes is None:
        raise Malformed(SCRIPT, 1, "the script has no array common=( ... ), or no number of nodes")
    shared = _parse_flags(_split_words(common[1]))
    hosts = _HOSTS.search(text)
    processes = [
        _parse_process(int(case[1]), line, shared)
        for case in _CASE.finditer(text)
        for line in case[2].splitlines()
    ]
    names = tuple(_split_words(hosts[1])) if hosts else ()
    return Script(int(nodes[1]), names, tuple(processes))


def _split_words(text: str) -> list[str]:
    """Return the words of shell text, without comments."""
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise Malformed(SCRIPT, 1, f"it contains text that is not valid shell: {error}") from None


def _parse_process(node: int, line: str, shared: dict[str, str]) -> Process:
    """Return the process that one line of the script starts.

    For example ``start 0,1 --flag value "$@"`` starts one on the GPUs 0 and 1.
    """
    # Addresses are elements of the array ``hosts``, which only bash can expand; their index is the
    # node rank.
    heads = [int(found) for found in _ADDRESS.findall(line)]
    if len(set(heads)) > 1:
        raise Malformed(SCRIPT, 1, f"a process of host {node} has two rendezvous hosts")
    words = _split_words(_ADDRESS.sub("HOST", line).replace(' "$@"', ""))
    devices = words[1].split(",") if len(words) > 1 else []
    if not all(re.fullmatch(r"[0-9]{1,4}", device) for device in devices):
        raise Malformed(SCRIPT, 1, f"{words[1]!r:.40} is not a list of GPUs")
    # The flags of a process follow the shared ones on the command line, so they win.
    flags = shared | _parse_flags(words[2:])
    return Process(node, tuple(map(int, devices)), flags, heads[0] if heads else None)


def _parse_flags(words: list[str]) -> dict[str, str]:
    """Return flag -> value, with an empty value for a flag without one."""
    flags: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            flags[name] = value
        elif name:
            flags[name] = word
    return flags
