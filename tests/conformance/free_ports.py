"""Free ports of this machine for tools that listen."""

from __future__ import annotations

import itertools
import os
import socket
from contextlib import ExitStack, suppress

FIRST, LAST = 12000, 19999
"""Below the ports that the kernel assigns to connections (from 32768), and below those of Slurm's
jobs.
"""
_turns = itertools.count()


def free_ports(count: int) -> list[int]:
    """Return consecutive free ports. Every call starts its search at another port, so that
    concurrent tests do not collide.
    """
    places = (LAST - FIRST) // count
    start = os.getpid() * 131 + next(_turns) * 7
    for turn in range(places):
        first = FIRST + (start + turn) % places * count
        ports = list(range(first, first + count))
        if _are_free(ports):
            return ports
    raise AssertionError(f"no {count} free ports in a row from {FIRST} to {LAST}")


def _are_free(ports: list[int]) -> bool:
    with ExitStack() as held, suppress(OSError):
        for port in ports:
            held.enter_context(socket.socket()).bind(("", port))
        return True
    return False
