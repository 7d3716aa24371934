"""Network of racks on one machine: one namespace per host, one bridge per rack, and a core bridge.

Needs CAP_NET_ADMIN and ``ip`` of iproute2. Traffic that leaves a rack crosses its uplink, a pair of
interfaces whose counters the kernel maintains. The machine's own network is unchanged.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType

_numbers = itertools.count()


def reason_to_skip() -> str:
    """Return the reason why no network can be built here, or an empty string."""
    if shutil.which("ip") is None:
        return "not installed: ip (iproute2)"
    name = f"parc{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespaces (CAP_NET_ADMIN): {made.stderr.strip()}"
    parts = ("link add core type bridge", "link add one type veth peer name two")
    failed = [part for part in parts if _says_no(["ip", "-n", name, *part.split()])]
    subprocess.run(["ip", "netns", "del", name], check=False)
    return f"the kernel has no {failed[0]!r}" if failed else ""


def _says_no(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode != 0


class RackFabric:
    """Network of racks of hosts, ``{"rack1": ["n1", "n3"]}``; a context manager."""

    def __init__(self, racks: dict[str, Sequence[str]]) -> None:
        """Prepare at most 250 hosts. Names may have any length, because interfaces are numbered."""
        prefix = f"parc{os.getpid()}-{next(_numbers)}"
        self.racks = racks
        self.switch = f"{prefix}-switch"
        hosts = [host for names in racks.values() for host in names]
        self.namespaces = {host: f"{prefix}-{number}" for number, host in enumerate(hosts)}
        self._made: list[str] = []

    def __enter__(self) -> RackFabric:
        try:
            self._add(self.switch)
            self._ip(self.switch, "link add core type bridge", "link set core up")
            for number, rack in enumerate(self.racks):
                self._rack(number)
                for host in self.racks[rack]:
                    self._host(number, host)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "del", name], check=False)
        self._made.clear()

    @property
    def uplinks(self) -> dict[str, str]:
        """Rack -> interface in the namespace ``switch`` that sends the traffic leaving the rack."""
        return {rack: f"up{number}" for number, rack in enumerate(self.racks)}

    def _add(self, name: str) -> None:
        subprocess.run(["ip", "netns", "add", name], check=True)
        self._made.append(name)
        # IPv6 neighbor discovery and TCP tail-loss probes would be counted too
        quiet = "cd /proc/sys/net; echo 1 > ipv6/conf/default/disable_ipv6"
        quiet += "; echo 0 > ipv4/tcp_early_retrans"
        # bridges of a busy machine reorder packets, which must not count as loss
        quiet += "; echo 0 > ipv4/tcp_recovery; echo 1000000 > ipv4/tcp_max_reordering"
        quiet += "; echo 1000000 > ipv4/tcp_reordering"
        subprocess.run(["ip", "netns", "exec", name, "sh", "-c", quiet], check=False)

    def _rack(self, number: int) -> None:
        self._ip(
            self.switch,
            f"link add rack{number} type bridge",
            f"link add up{number} type veth peer name down{number}",
            f"link set up{number} master rack{number} up",
            f"link set down{number} master core up",
            f"link set rack{number} up",
        )

    def _host(self, rack: int, host: str) -> None:
        name = self.namespaces[host]
        index = list(self.namespaces).index(host)
        self._add(name)
        self._ip(
            self.switch,
            f"link add port{index} type veth peer name eth0 netns {name}",
            f"link set port{index} master rack{rack} up",
        )
        self._ip(
            name,
            f"addr add 10.213.0.{index + 1}/24 dev eth0",
            "link set lo up",
            "link set eth0 up",
            # late answers must not count as lost; this is also the delay of zero-window probes
            "route replace 10.213.0.0/24 dev eth0 rto_min 1s",
        )

    def _ip(self, namespace: str, *lines: str) -> None:
        subprocess.run(
            ["ip", "-n", namespace, "-batch", "-"], input="\n".join(lines), text=True, check=True
        )
