"""Verifier of ``router.sh``: it derives the router's command from the scripts of both pools."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

from parc.backends.registry import find_backend_declaration, verifier_of_backend
from parc.backends.shared.verify_known_lines import read_script, without_redundant_quotes
from parc.compiler.diagnostics import Sink
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.verify_program import verify_program

ROUTER = "router.sh"


@frozen
class RouterFormat:
    """Texts in the router script of one engine, as its verifier expects them."""

    command: str
    """Words up to the port of the router, which follows."""
    flag: str
    bootstrap_flag: str = ""
    """Flag of an engine whose port follows the address of the engine; empty if there is none."""


@frozen
class PoolServers:
    """API servers of a pool."""

    name: str
    nodes: int
    """Number of hosts."""
    hosts: tuple[str, ...]
    """Addresses of the hosts by node rank; empty if they are unknown."""
    servers: tuple[tuple[int, int, str], ...]
    """(node rank, port, port of the flag ``bootstrap_flag``) of each server; "" without one."""


def launcher_addresses(artifacts: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the addresses that the launcher of a service gives its hosts, sorted by node rank.

    None means that a router uses the names of the hosts.
    """
    folders = sorted({path.partition("/")[0] for path in artifacts})
    found = []
    for name in folders:
        # A folder of a pool, a plugin that cannot be loaded, or no backend has no such attribute.
        if getattr(find_backend_declaration(name), "needs_framework", False):
            verifier = verifier_of_backend(name)
            found.append(None if verifier is None else verifier.server_addresses(artifacts))
    return None if not found or None in found else found[0]


def verify_router(
    text: str, router: RouterFormat, port: int | None, pools: Iterable[PoolServers], sink: Sink
) -> None:
    """Report lines of ``router.sh`` that differ from those that the pools need (A18).

    ``port`` is the port of the router in plan.json; None if it is unknown.
    """
    lines = read_script(text).lines
    if port is None:
        words = next((line.text.split() for line in lines if "--port" in line.text.split()), [])
        written = words[words.index("--port") + 1] if "--port" in words[:-1] else ""
        port = int(written) if written.isdecimal() and len(written) < 6 else 0
    needed = map(without_redundant_quotes, _needed_lines(router, port, tuple(pools)))
    verify_program(ROUTER, lines, list(needed), sink)


def _needed_lines(router: RouterFormat, port: int, pools: tuple[PoolServers, ...]) -> Iterator[str]:
    """Yield the commands of the script."""
    yield from ("#!/bin/bash", "set -euo pipefail")
    for pool in pools:
        variable, count = f"PARC_{pool.name.upper()}_HOSTS", pool.nodes
        given = f'read -ra {pool.name} <<< "${variable}"'
        if pool.hosts:
            yield f"{pool.name}=({shlex.join(pool.hosts)})"
            yield f"[[ -z ${{{variable}:-}} ]] || {given}"
        else:
            reason = f"set it to the hosts of the {pool.name} pool by node rank"
            yield f'read -ra {pool.name} <<< "${{{variable}:?{reason}}}"'
        yield f"[[ ${{#{pool.name}[@]}} -eq {count} ]] || {{"
        yield f"printf 'router.sh: {variable} must have {count} host{'s' * (count != 1)}\\n' >&2"
        yield from ("exit 2", "}")
    servers = " ".join(
        f'--{pool.name} "http://${{{pool.name}[{node}]}}:{api}"{extra and " " + extra}'
        for pool in pools
        for node, api, extra in pool.servers
    )
    yield f'exec {router.command} --host 0.0.0.0 --port {port} {router.flag} {servers} "$@"'
