"""Check the GPUs that a script makes visible to a server against its parallel sizes (L34)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from math import prod

from parc.backends.shared.serving.lint_manifest_ports import container_of
from parc.backends.shared.serving.lint_server import first_number
from parc.compiler.diagnostics import Cause, Finding, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import LaunchFlag
from parc.compiler.tools.importers.shell_words import Word, statements
from parc.compiler.tools.lint.script import LintedScript, ScriptSink
from parc.compiler.tools.lint.visible_devices import (
    DEVICES,
    DeviceLists,
    VisibleDevices,
    count_devices,
)

_SEVERAL_HOSTS = re.compile(r"\bray\b|\bmpirun\b|\bmpiexec\b|trtllm-llmapi-launch", re.I)
"""Matches programs that start the ranks of a server on several hosts."""


def check_gpus_of_server(
    script: LintedScript,
    starts: Mapping[int, Word],
    sure: Mapping[str, LaunchFlag],
    sizes: Sequence[str],
    sink: ScriptSink,
) -> None:
    """Report a server with more ranks than GPUs that it can see on its host (L34).

    A script with several servers is not checked, because ``sure`` contains the flags of all.

    Args:
        script: the script.
        starts: number of each statement that starts a server -> word of the server.
        sure: flags that have the same value in every run of the script.
        sizes: flags whose product is the number of ranks on the host; a missing flag counts as 1.
        sink: receives the findings.
    """
    unread = script.is_manifest and script.manifest is None
    if len(starts) != 1 or unread or _SEVERAL_HOSTS.search(script.text):
        return
    ((number, program),) = starts.items()
    words = next(one for one in statements(script.words) if one[0].statement == number)
    given = [name for name in sizes if first_number(sure.get(name)) > 1]
    ranks = prod(first_number(sure[name]) for name in given)
    if any(script.may_be_overridden(sure[name].values[0]) for name in given):
        return
    seen = DeviceLists(script).find(words, program) or _gpus_of_container(script, program)
    if seen is None or ranks <= seen.count:
        return
    product = " x ".join(f"{name} {first_number(sure[name])}" for name in given)
    finding = Finding(
        f"the server needs {ranks} GPUs, but {seen.text}",
        label=f"{product} = {ranks}" if len(given) > 1 else "each rank needs a GPU of its own",
        help=f"reduce {' or '.join(given)}, or {seen.more_advice.format(ranks)}",
        fix=_fix(given, sure, seen.count),
        causes=(Cause("", "visible GPUs", seen.span),),
    )
    sink.report("L34", finding, span=sure[given[0]].word.span)


@frozen
class _ContainerGpus:
    """GPUs that the limits of a container let a server see."""

    count: int
    span: Span

    @property
    def text(self) -> str:
        """Clause of a finding."""
        return f"the container gets {self.count}"

    more_advice = "set the limit of GPUs to {}"


def _gpus_of_container(
    script: LintedScript, program: Word
) -> _ContainerGpus | VisibleDevices | None:
    """Return the GPUs of the container that starts ``program``; None if they are not known.

    The pods of a group, such as a LeaderWorkerSet, can be the hosts of one server.
    """
    pod, container = container_of(script, program) or (None, None)
    if pod is None or container is None or pod.size != 1:
        return None
    for name, value, span in container.environment:
        count = count_devices(value or "") if name in DEVICES else None
        if count is not None:
            return VisibleDevices(name, count, span)
    limit = container.gpus
    return _ContainerGpus(limit.number, limit.span) if limit and limit.number else None


def _fix(given: Collection[str], sure: Mapping[str, LaunchFlag], visible: int) -> str:
    """Return the edit of the only flag in ``given`` that makes the server fit; else empty."""
    if len(given) != 1:
        return ""
    (name,) = given
    size = first_number(sure[name])
    # A divisor of the old size divides the heads and layers that the old one divides.
    fitting = max(one for one in range(1, visible + 1) if size % one == 0)
    return f"{sure[name].word.text.partition('=')[0]} {fitting}"
