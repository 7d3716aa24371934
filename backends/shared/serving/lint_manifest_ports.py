"""Check the ports of a Kubernetes manifest against the port of the server (L41, L42)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import LaunchFlag, whole_number
from parc.compiler.tools.importers.manifests import Container, LocatedText, Pod
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.tools.lint.script import LintedScript, ScriptSink

PORT = "--port"


def container_of(script: LintedScript, word: Word) -> tuple[Pod, Container] | None:
    """Return the container, and its pod, whose command contains ``word``; None if there is none."""
    pods = script.manifest.pods if script.manifest is not None else ()
    return next(
        (
            (pod, one)
            for pod in pods
            for one in pod.containers
            if one.lines[0] <= word.span.line <= one.lines[1]
        ),
        None,
    )


@frozen
class ServerPort:
    """Port on which a server listens."""

    number: int
    flag: LaunchFlag | None
    """Flag that sets it; None for the default of the engine."""


def port_of_server(
    sure: Mapping[str, LaunchFlag], written: Collection[str], default: int | None
) -> ServerPort | None:
    """Return the port of the server; None if the script does not determine it.

    Args:
        sure: flags that have the same value in every run of the script.
        written: names of all flags.
        default: port without ``--port``; None if the command may get further flags.
    """
    flag = sure.get(PORT)
    number = default if PORT not in written else whole_number(flag.value) if flag else None
    return None if number is None else ServerPort(number, flag)


def check_ports_of_manifest(
    script: LintedScript, starts: Mapping[int, Word], port: ServerPort | None, sink: ScriptSink
) -> None:
    """Report ports of Services and probes (L41), and of the container (L42), without a server.

    ``starts`` maps the number of each statement that starts a server to the word of the server.
    """
    if script.manifest is None or len(starts) != 1 or port is None:
        return
    (program,) = starts.values()
    found = container_of(script, program)
    if found is None:
        return
    pod, container = found
    place = port.flag.word if port.flag is not None else program
    causes = (Cause("", f"the server listens on port {port.number}", place.span),)
    targets = [one.target for one in script.manifest.services if pod.has_labels(one.selector)]
    uses = [(one, "a Service", "targetPort") for one in targets]
    uses += [(one, "a probe of Kubernetes", "port") for one in container.probes]
    for target, user, key in uses:
        number = _number(target, pod)
        if number in (None, port.number) or _is_of_another(number, pod, container):
            continue
        finding = Finding(
            f"{user} connects to port {number}, but the server listens on port {port.number}",
            label="nothing answers on this port",
            fix=f"{key}: {port.number}",
            causes=causes,
        )
        sink.report("L41", finding, span=target.span)
    declared = [one for _, one in container.ports]
    if len(declared) == 1 and declared[0].number not in (None, port.number):
        finding = Finding(
            f"containerPort is {declared[0].number}, but the server listens on port {port.number}",
            label="the server does not use this port",
            fix=f"containerPort: {port.number}",
            causes=causes,
        )
        sink.report("L42", finding, span=declared[0].span)


def _number(target: LocatedText, pod: Pod) -> int | None:
    """Return the number of a port that may be the name of a port of a container."""
    named = (port for one in pod.containers for name, port in one.ports if name == target.text)
    return target.number or next((port.number for port in named), None)


def _is_of_another(number: int | None, pod: Pod, container: Container) -> bool:
    """Return True if another container of the pod may listen on the port."""
    others = [one for one in pod.containers if one is not container]
    return any(port.number == number for one in others for _, port in one.ports) or any(
        not one.ports for one in others
    )
