"""Check that the API server of a command and its rendezvous use different ports (L10)."""

from __future__ import annotations

from parc.backends.shared.serving.lint_manifest_ports import PORT, port_of_server
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import LaunchFlag, whole_number
from parc.compiler.tools.lint.script import LintedScript, ScriptSink


@frozen
class RendezvousPorts:
    """Ports over which the ranks of an engine find each other, and the port of its API server."""

    flag: str
    """Flag whose value is the first port, or ends in ``:PORT``."""
    count: int
    """Number of consecutive ports that the engine uses from the first one on."""
    api: int | None
    """Port of the API server without ``--port``; None if the command may get further flags."""
    free: tuple[int, int]
    """Two ports, one of which the fix suggests for the rendezvous."""


def check_rendezvous_port(
    script: LintedScript, flags: list[LaunchFlag], ports: RendezvousPorts, sink: ScriptSink
) -> None:
    """Report a rendezvous on the port of the API server, which runs on the same host (L10).

    A flag that some commands of the script lack, or whose value differs, causes no finding.
    """
    sure = {flag.name: flag for flag in script.sure_flags(flags)}
    written = [flag.name for flag in flags]
    rendezvous, listens = sure.get(ports.flag), port_of_server(sure, written, ports.api)
    if rendezvous is None or listens is None:
        return
    api, server = listens.number, listens.flag
    if server is not None and written.count(PORT) != written.count(ports.flag):
        return
    host, colon, number = rendezvous.value.rpartition(":")
    first = whole_number(number)
    if first is None or not first <= api < first + ports.count:
        return
    free = next(one for one in ports.free if not one <= api < one + ports.count)
    used = f"port {first}" if ports.count == 1 else f"ports {first} to {first + ports.count - 1}"
    default = "" if server else f" ({PORT} is {api} by default)"
    cause = (Cause("", "the API server gets its port here", server.word.span),) if server else ()
    finding = Finding(
        f"the API server listens on port {api}, which {ports.flag} {rendezvous.value} uses too",
        label=f"the rendezvous uses {used} of the first host of the server{default}",
        fix=f"{ports.flag} {host}{colon}{free}",
        causes=cause,
    )
    sink.report("L10", finding, span=rendezvous.word.span)
