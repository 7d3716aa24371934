"""A Slurm of several nodes on one machine: the real daemons, all on the loopback interface.

Needs root, ``slurmctld`` and ``slurmd`` (Debian: apt-get install slurmctld slurmd slurm-client).
Every slurmd gets a host name and an /etc/hosts of its own; the machine's stay as they are.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

TOOLS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "unshare")
CONFIG = """\
ClusterName=conformance
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={port}
SlurmdPort={slurmd_port}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
TopologyPlugin=topology/tree
SlurmdParameters=config_overrides
ReturnToService=2
PropagateResourceLimits=NONE
GresTypes=gpu
"""
NODE = (
    "NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs=64 Sockets=2 "
    "CoresPerSocket=32 ThreadsPerCore=1 RealMemory=1000 Gres=gpu:8 State=UNKNOWN\n"
)
AS_NODE = 'hostname "$1"; mount --bind "$2" /etc/hosts; shift 2; exec "$@"'
PATIENCE_SECONDS = 30.0
BLOCK_SINCE = (23, 11)


def missing() -> str:
    """Why no cluster can be started here; empty where one can."""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    return "" if os.geteuid() == 0 else "needs root, for namespaces of the nodes"


def installed_release() -> tuple[int, ...]:
    """Release of this machine's Slurm: (22, 5)."""
    said = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in said.split()[1].split(".")[:2])


class SlurmCluster:
    """Racks of nodes, ``{"rack1": ["n1", "n3"]}``; a context manager."""

    def __init__(
        self, root: Path, racks: dict[str, Sequence[str]], port: int, topology: str = "tree"
    ) -> None:
        """``port`` and as many above it as there are nodes must be free.

        ``topology``: "tree", or "block" where ``installed_release`` is BLOCK_SINCE or later and
        all racks are of one size.
        """
        self.root, self.racks, self.port, self.topology = root, racks, port, topology
        self.nodes = sorted(node for nodes in racks.values() for node in nodes)
        self.daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SlurmCluster:
        for folder in ("state", "spool", "dev", "job"):
            (self.root / folder).mkdir()
        self._configure()
        try:
            self._start("localhost", "slurmctld", "-D", "-c", "-i")
            for node in self.nodes:
                self._start(node, "slurmd", "-D", "-N", node)
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in self.daemons:
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            daemon.wait(PATIENCE_SECONDS)

    def run(self, *command: str, cwd: Path | None = None, **env: str) -> str:
        """Output of a client's command; both streams together, any exit status."""
        done = subprocess.run(
            self._as("localhost", *command),
            cwd=cwd or self.root / "job",
            env={**os.environ, "SLURM_CONF": str(self.root / "slurm.conf"), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout

    def _as(self, node: str, *command: str) -> list[str]:
        hosts = str(self.root / "hosts")
        return ["unshare", "--uts", "--mount", "bash", "-c", AS_NODE, "_", node, hosts, *command]

    def _start(self, node: str, *command: str) -> None:
        line = self._as(node, *command, "-f", str(self.root / "slurm.conf"))
        with (self.root / f"{command[0]}.{node}.out").open("wb") as log:
            self.daemons.append(
                subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            idle = self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split()
            if sorted(set(idle)) == self.nodes:
                return
            if any(daemon.poll() is not None for daemon in self.daemons):
                pytest.skip(f"Slurm's daemons do not run on this machine: {self._last_words()}")
            assert time.monotonic() < deadline, self.run("sinfo", "-N", "-l")
            time.sleep(0.1)

    def _last_words(self) -> str:
        """What the daemons that ended have said."""
        logs = sorted(self.root.glob("slurm*.out"))
        return " ".join(log.read_text("utf-8", "replace")[-300:] for log in logs)[-900:]

    def _configure(self) -> None:
        text = CONFIG.format(root=self.root, port=self.port, slurmd_port=self.port + 1)
        text = text.replace("topology/tree", f"topology/{self.topology}")
        for number, node in enumerate(self.nodes):
            text += NODE.format(name=node, port=self.port + 2 + number)
        text += "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        (self.root / "slurm.conf").write_text(text)
        (self.root / "topology.conf").write_text(self._topology())
        (self.root / "cgroup.conf").write_text(self._cgroup())
        (self.root / "gres.conf").write_text(f"Name=gpu File={self.root}/dev/nvidia[0-7]\n")
        for gpu in range(8):  # devices like /dev/null: without a file Slurm reports no GPU
            os.mknod(self.root / f"dev/nvidia{gpu}", 0o20666, os.makedev(1, 3))
        names = ["localhost", *self.nodes]
        hosts = "".join(f"127.0.0.1 {name}\n" for name in names)
        (self.root / "hosts").write_text(Path("/etc/hosts").read_text() + hosts)

    def _topology(self) -> str:
        """Racks as leaves of a spine, or as blocks."""
        rows = {rack: ",".join(nodes) for rack, nodes in self.racks.items()}
        if self.topology == "block":
            blocks = [f"BlockName={rack} Nodes={nodes}" for rack, nodes in rows.items()]
            size = len(next(iter(self.racks.values())))
            return "\n".join([*blocks, f"BlockSizes={size}", ""])
        leaves = [f"SwitchName={rack} Nodes={nodes}" for rack, nodes in rows.items()]
        return "\n".join([*leaves, f"SwitchName=spine Switches={','.join(rows)}", ""])

    def _cgroup(self) -> str:
        """Since 23.x slurmd wants a cgroup plugin, and must be told that there is none."""
        return "" if installed_release() < (23,) else "CgroupPlugin=disabled\n"
