"""Check addresses and network interfaces of a launch on several hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from parc.backends.shared.network import GLOO_NAMES, gloo_interface
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.tools.lint.script import LintedScript

_MASTER = ("--master-addr", "--master_addr")
_MASTER_NAME = "use a name or an address of node rank 0 that all other hosts can reach"
# Names of hosts and interfaces that exist on each host, but lead to no other host.
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_UNROUTED = ("lo", "docker", "veth", "virbr", "cni")

_NCCL_TESTS = re.compile(r"\b(?:all_reduce|all_gather|alltoall|reduce_scatter|sendrecv)_perf\b")
"""Matches a program of nccl-tests, which do not use Gloo."""


def check_network(script: LintedScript, nodes: int, sink: Sink) -> None:
    """Report addresses and interfaces that other hosts cannot reach (L09, N01, N02).

    ``nodes`` is the number of hosts, which is at least 2.
    """
    found: dict[str, tuple[str, Word]] = {}
    for word in script.words:
        match = re.fullmatch(r"([A-Z_]+)=(\S*)", word.text)
        if match and not word.dynamic and word.span not in script.branches:
            found[match[1]] = (match[2], word)

    _check_master(script, found, nodes, sink)
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        if name in found and found[name][0].lstrip("=").startswith(_UNROUTED):
            value, word = found[name]
            finding = Finding(
                f"{name} is {value}, an interface that does not reach other hosts",
                help=f"set {name} to an interface on a network that connects all hosts",
            )
            sink.report("N01", finding, span=word.span)
    unset = "NCCL_SOCKET_IFNAME" in found and "GLOO_SOCKET_IFNAME" not in script.text
    if unset and not _NCCL_TESTS.search(script.text):
        value, word = found["NCCL_SOCKET_IFNAME"]
        # A copy of an interface that N01 reports would repeat the mistake.
        name = gloo_interface(value)
        name = "" if name.startswith(_UNROUTED) else name
        finding = Finding(
            "NCCL_SOCKET_IFNAME is set, but GLOO_SOCKET_IFNAME is not: Gloo may use 127.0.0.1",
            help="" if name else GLOO_NAMES,
            fix=f"export GLOO_SOCKET_IFNAME={name}" if name else "",
        )
        sink.report("N02", finding, span=word.span)


def _check_master(
    script: LintedScript, found: Mapping[str, tuple[str, Word]], nodes: int, sink: Sink
) -> None:
    """Report an address of node rank 0 that is a different machine on every host (L09).

    ``found`` contains the value and the position of the variables that the script sets.
    """
    if "MASTER_ADDR" in found and found["MASTER_ADDR"][0] in _LOCAL_HOSTS:
        value, word = found["MASTER_ADDR"]
        first = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
        finding = Finding(
            f"MASTER_ADDR is {value!r}, which is a different machine on every host",
            help="" if "SLURM" in script.text else _MASTER_NAME,
            fix=first if "SLURM" in script.text else "",
        )
        sink.report("L09", finding, span=word.span)
        return
    for flag in script.sure_flags(script.flags(_MASTER)):
        host = flag.value if flag.name in _MASTER else ""
        if host in _LOCAL_HOSTS:
            finding = Finding(
                f"{flag.name} is {host!r}, which is a different machine on every host",
                label=f"the script starts {nodes} hosts",
                help=_MASTER_NAME,
            )
            sink.report("L09", finding, span=flag.word.span)
