"""Slurm cluster of several nodes on one machine: the real daemons, all on the loopback interface.

Needs root, ``slurmctld`` and ``slurmd`` (Debian: apt-get install slurmctld slurmd slurm-client).
Every slurmd gets a separate host name and /etc/hosts; those of the machine are unchanged.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conformance.free_ports import free_ports
from tests.conformance.slurm.release import SlurmRelease

CONFIG = """\
ClusterName=conformance
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={root}/state
SlurmdSpoolDir={spool}/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
TopologyPlugin=topology/{topology}
SlurmdParameters=config_overrides
ReturnToService=2
PropagateResourceLimits=NONE
GresTypes=gpu
Licenses=compiler:4
MessageTimeout=100
TCPTimeout=60
BatchStartTimeout=300
SlurmdTimeout=0
UnkillableStepTimeout=600
"""
"""slurm.conf with the longest timeouts that Slurm accepts, because a busy machine answers late and
must not lose nodes.
"""
NODE = (
    "NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs=64 Sockets=2 "
    "CoresPerSocket=32 ThreadsPerCore=1 RealMemory=1000 Gres=gpu:{gpu_type}8 Feature=fast,gpu "
    "State=UNKNOWN\n"
)
AS_NODE = 'hostname "$1"; mount --bind "$2" /etc/hosts; shift 2'
ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Separate process namespace per node, so that all its processes, including jobs, end with it."""
PATIENCE_SECONDS = 600.0
ATTEMPTS = 3


class NotStartedError(Exception):
    """A daemon ended before the cluster was ready; contains its output."""


def topology_text(racks: dict[str, Sequence[str]], topology: str) -> str:
    """Return topology.conf with racks as leaves of a spine, or as blocks, which must have the same
    size.
    """
    rows = {rack: ",".join(nodes) for rack, nodes in racks.items()}
    if topology == "block":
        blocks = [f"BlockName={rack} Nodes={nodes}" for rack, nodes in rows.items()]
        size = len(next(iter(racks.values())))
        return "\n".join([*blocks, f"BlockSizes={size}", ""])
    leaves = [f"SwitchName={rack} Nodes={nodes}" for rack, nodes in rows.items()]
    return "\n".join([*leaves, f"SwitchName=spine Switches={','.join(rows)}", ""])


class SlurmCluster:
    """Cluster of racks of nodes, ``{"rack1": ["n1", "n3"]}``; a context manager."""

    def __init__(
        self,
        root: Path,
        racks: dict[str, Sequence[str]],
        release: SlurmRelease,
        topology: str = "tree",
        gpu_type: str = "",
    ) -> None:
        """Prepare the cluster; the daemons start when it is entered.

        Args:
            root: an empty folder; jobs are submitted from its subfolder ``job``.
            racks: hosts of each rack.
            release: the Slurm to start.
            topology: "tree", or "block" if ``release`` supports it and all racks are of one size.
            gpu_type: type of the GPUs, such as h100; empty for none.
        """
        self.root, self.racks, self.release, self.topology = root, racks, release, topology
        self.gpu_type = gpu_type
        self.nodes = sorted(node for nodes in racks.values() for node in nodes)
        self.spool = ""
        self.daemons: list[subprocess.Popen[bytes]] = []

    def place(self, rack: str) -> str:
        """Return a rack in the notation of SLURM_TOPOLOGY_ADDR."""
        return rack if self.topology == "block" else f"spine.{rack}"

    def __enter__(self) -> SlurmCluster:
        for folder in ("dev", "job"):
            (self.root / folder).mkdir()
        for gpu in range(8):  # devices like /dev/null: without a file Slurm reports no GPU
            os.mknod(self.root / f"dev/nvidia{gpu}", 0o20666, os.makedev(1, 3))
        # contains sockets of steps, whose paths the kernel limits to 108 bytes
        self.spool = tempfile.mkdtemp(prefix="spool", dir="/tmp")
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._start_all()
                return self
            except NotStartedError as error:
                # another process took a port meanwhile, or the machine does not support it
                self._stop()
                if attempt == ATTEMPTS:
                    self.__exit__()
                    pytest.skip(f"Slurm's daemons do not run on this machine: {error}")
            except BaseException:
                self.__exit__()
                raise
        raise AssertionError("unreachable")

    def _start_all(self) -> None:
        (self.root / "state").mkdir(exist_ok=True)  # with -c slurmctld ignores old state
        self._configure()
        self._start("localhost", "slurmctld", "-D", "-c", "-i")
        for node in self.nodes:
            self._start(node, "slurmd", "-D", "-N", node)
        self._wait()

    def __exit__(self, *_: object) -> None:
        self._stop()
        shutil.rmtree(self.spool, ignore_errors=True)

    def _stop(self) -> None:
        for daemon in self.daemons:
            daemon.kill()
        for daemon in self.daemons:
            daemon.wait()
        self.daemons.clear()

    def run(self, *command: str, cwd: Path | None = None, **env: str) -> str:
        """Return the output of a client command: both streams together, with any exit status."""
        done = subprocess.run(
            self._as("localhost", *command),
            cwd=cwd or self.root / "job",
            env={**os.environ, "SLURM_CONF": str(self.root / "slurm.conf"), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return done.stdout

    def _as(self, node: str, *command: str) -> list[str]:
        return self.release.within(AS_NODE, node, str(self.root / "hosts"), *command)

    def _start(self, node: str, *command: str) -> None:
        line = [*ALONE, *self._as(node, *command, "-f", str(self.root / "slurm.conf"))]
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
                raise NotStartedError(self._last_words())
            assert time.monotonic() < deadline, self.run("sinfo", "-N", "-l")
            time.sleep(0.1)

    def _last_words(self) -> str:
        """Return the last output of the daemons."""
        logs = sorted(self.root.glob("slurm*.out"))
        return " ".join(log.read_text("utf-8", "replace")[-300:] for log in logs)[-900:]

    def _configure(self) -> None:
        ports = free_ports(2 + len(self.nodes))
        text = CONFIG.format(root=self.root, spool=self.spool, ports=ports, topology=self.topology)
        text += self.release.plugins()
        for node, port in zip(self.nodes, ports[2:], strict=True):
            kind = f"{self.gpu_type}:" if self.gpu_type else ""
            text += NODE.format(name=node, port=port, gpu_type=kind)
        text += "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        (self.root / "slurm.conf").write_text(text)
        (self.root / "topology.conf").write_text(topology_text(self.racks, self.topology))
        (self.root / "cgroup.conf").write_text(self._cgroup())
        kind = f"Type={self.gpu_type} " if self.gpu_type else ""
        gres = f"Name=gpu {kind}File={self.root}/dev/nvidia[0-7]\n"
        (self.root / "gres.conf").write_text(gres)
        names = ["localhost", *self.nodes]
        hosts = "".join(f"127.0.0.1 {name}\n" for name in names)
        (self.root / "hosts").write_text(Path("/etc/hosts").read_text() + hosts)

    def _cgroup(self) -> str:
        """Return cgroup.conf, which must disable cgroups since 23.x, because slurmd then requires a
        plugin.
        """
        return "" if self.release.number < (23,) else "CgroupPlugin=disabled\n"
