"""Check several servers that one script starts on one host: GPUs (V03) and ports (L10)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from math import prod

from parc.backends.shared.serving.lint_server import first_number
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import LaunchFlag, whole_number
from parc.compiler.tools.importers.shell_words import (
    ASSIGNMENT,
    Word,
    command_with_separators,
    statements,
)
from parc.compiler.tools.lint.script import LintedScript, ScriptSink

_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_LOCAL = re.compile(
    r"(?:\S*/)?(?:nohup|setsid|exec|time|env|python[0-9.]*|-m|vllm|serve)|\w+=.*", re.S
)
"""Matches a word before the server that does not move the server to another host or container."""
_STOPS = frozenset(("kill", "pkill", "killall", "wait", "fg"))
"""Commands between two servers after which the first one may have ended."""


@frozen
class ServerDefaults:
    """Names and defaults of the flags of a server that decide what two servers share."""

    memory_flag: str
    memory_share: float
    """Share of the memory of each GPU that a server takes without ``memory_flag``."""
    port: int
    degrees: tuple[str, ...]
    """Flags whose product is the number of GPUs."""
    unlike: tuple[str, ...]
    """Flags of servers that form one deployment, or that choose their devices."""


@frozen
class Server:
    """Command that starts a server."""

    start: Word
    """Last word that names the server."""
    flags: tuple[LaunchFlag, ...]
    """Flags of the command and of the variables that it uses, with long names."""


@frozen
class _RunningServer:
    """Server that a script starts; None stands for a value that the script does not determine."""

    word: Word
    devices: frozenset[str] | None
    """GPUs that the server certainly uses."""
    share: float | None
    port: int | None


def check_servers_of_one_host(
    script: LintedScript,
    servers: Collection[Server],
    defaults: ServerDefaults,
    sink: ScriptSink,
) -> None:
    """Report a server that needs memory (V03) or a port (L10) of a server that already runs.

    Args:
        script: the script.
        servers: all servers that the script starts.
        defaults: names and defaults of the flags that matter.
        sink: receives the findings.
    """
    # The words of one statement, such as those of a variable or a loop, can start many servers.
    starts = {one.start.statement: one for one in servers}
    exported = any(
        ASSIGNMENT.fullmatch(one.text) and one.text.startswith(_DEVICES)
        for words in statements(script.words)
        if words[0].statement not in starts
        for one in words
    )
    if len(starts) < 2 or len(starts) < len(servers) or exported:
        return
    for before, after in pairwise(_running_servers(script, starts, defaults)):
        if before is None or after is None:
            continue
        both = before.devices & after.devices if before.devices and after.devices else frozenset()
        cause = (Cause("", "this server already runs", before.word.span),)
        if both and before.share and after.share and before.share + after.share > 1:
            gpu = min(both, key=lambda name: (len(name), name))
            finding = Finding(
                f"two servers take {before.share:g} + {after.share:g} of the memory of GPU {gpu}",
                label=f"the second one does not start: {before.share + after.share:g} > 1",
                help=f"start it on other GPUs with {_DEVICES[0]}, or set {defaults.memory_flag} of "
                "both servers",
                causes=cause,
            )
            sink.report("V03", finding, span=after.word.span)
        if before.port is not None and before.port == after.port:
            finding = Finding(
                f"two servers listen on port {after.port} of one host",
                label="the second one cannot open the port",
                fix=f"add --port {after.port + 1}",
                causes=cause,
            )
            sink.report("L10", finding, span=after.word.span)


def _running_servers(
    script: LintedScript, starts: Mapping[int, Server], defaults: ServerDefaults
) -> Iterator[_RunningServer | None]:
    """Yield the servers in the order of the script, with None where the earlier ones may end."""
    for words in statements(script.words):
        server = starts.get(words[0].statement)
        if server is None:
            if any(word.text in _STOPS for word in words):
                yield None
            continue
        prefix = [word for word in words if word.span < server.start.span]
        own = {one.name: one for one in server.flags}
        runs_here = all(_LOCAL.fullmatch(word.text) for word in prefix)
        sure = not any(word.span in script.branches or word.variable for word in words)
        # Another variable may contain any flag.
        after = [word for word in words if word.span > server.start.span]
        sure &= not any(_may_add_flags(script, *pair) for pair in pairwise([server.start, *after]))
        if not (runs_here and sure) or any(name in own for name in defaults.unlike):
            yield None
            continue
        yield _read_server(words[0], prefix, own, defaults)
        if command_with_separators(script.text, words[0])[2] != "&":
            yield None


def _read_server(
    first: Word, prefix: list[Word], flags: Mapping[str, LaunchFlag], defaults: ServerDefaults
) -> _RunningServer:
    count = prod(first_number(flags.get(name)) for name in defaults.degrees)
    named = [word.text.partition("=")[2] for word in prefix if word.text.startswith(_DEVICES)]
    devices: frozenset[str] | None = frozenset(map(str, range(count)))
    if named:
        plain = re.fullmatch(r"[0-9]+(,[0-9]+)*", named[-1])
        devices = frozenset(named[-1].split(",")[:count]) if plain else None
    share, port = flags.get(defaults.memory_flag), flags.get("--port")
    return _RunningServer(
        first,
        devices,
        defaults.memory_share if share is None else _as_share(share.value),
        defaults.port if port is None else whole_number(port.value),
    )


def _may_add_flags(script: LintedScript, before: Word, word: Word) -> bool:
    """Return True if ``word`` is a variable, and neither the model nor the value of a flag."""
    name = re.fullmatch(r"\$\{?(\w+|[@*])(?:\[[@*]\])?\}?", word.text)
    is_value = before.is_flag or before.text == "serve"
    return name is not None and not is_value and name[1] not in script.arrays


def _as_share(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[01]?\.[0-9]+|1", text) else None
