"""``vllm/serve.sh`` -> the processes that it starts, host by host, read as bash would.

Nothing here is shared with what wrote the script. ``Malformed`` for any text that is not one.
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
class Started:
    """One `vllm serve` of the script with all its flags; the last of equals wins."""

    node: int
    devices: tuple[int, ...]
    flags: dict[str, str]
    head: int | None
    """Node rank of the host that it meets the others on; None: it is alone."""

    def number(self, flag: str, default: int) -> int:
        """The value of ``--flag`` as a whole number; Malformed where it is none."""
        if flag not in self.flags:
            return default
        text = self.flags[flag]
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) > LARGEST:
            raise Malformed(SCRIPT, 1, f"--{flag} is {text!r:.40}, must be a number")
        return int(text)


@dataclass(frozen=True, slots=True)
class Script:
    """What the script says."""

    nodes: int
    hosts: tuple[str, ...]
    """By node rank; empty where the hosts have no names."""
    started: tuple[Started, ...]
    """In the order of the script."""


def read_serve(text: str) -> Script:
    """The table of hosts in the script."""
    common, nodes = _COMMON.search(text), _NODES.search(text)
    if common is None or nodes is None:
        raise Malformed(SCRIPT, 1, "it has no array common=( ... ), or no number of nodes")
    shared = _flags(_words(common[1], 1))
    hosts = _HOSTS.search(text)
    started = [
        _started(int(case[1]), line, shared)
        for case in _CASE.finditer(text)
        for line in case[2].splitlines()
    ]
    names = tuple(_words(hosts[1], 1)) if hosts else ()
    return Script(int(nodes[1]), names, tuple(started))


def _words(text: str, line: int) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise Malformed(SCRIPT, line, f"not shell words: {error}") from None


def _started(node: int, line: str, shared: dict[str, str]) -> Started:
    """``start 0,1 --flag value "$@"`` of one host."""
    heads = [int(found) for found in _ADDRESS.findall(line)]
    if len(set(heads)) > 1:
        raise Malformed(SCRIPT, 1, f"host {node} meets the others on two hosts")
    words = _words(_ADDRESS.sub("HOST", line).replace(' "$@"', ""), 1)
    devices = words[1].split(",") if len(words) > 1 else []
    if not all(re.fullmatch(r"[0-9]{1,4}", device) for device in devices):
        raise Malformed(SCRIPT, 1, f"no list of GPUs: {words[1]!r:.40}")
    flags = shared | _flags(words[2:])
    return Started(node, tuple(map(int, devices)), flags, heads[0] if heads else None)


def _flags(words: list[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            flags[name] = value
        elif name:
            flags[name] = word
    return flags
