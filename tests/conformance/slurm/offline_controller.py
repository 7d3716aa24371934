"""Slurm controller over nodes without daemons, which checks job scripts of any size.

The nodes are cloud nodes and powered down, so Slurm plans jobs on them although no daemon runs
there. Nothing can be run; ``sbatch --test-only`` reports whether a job could be.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pytest

from tests.conformance.free_ports import free_ports
from tests.conformance.slurm.private_cluster import (
    ATTEMPTS,
    CONFIG,
    PATIENCE_SECONDS,
    topology_text,
)
from tests.conformance.slurm.release import SlurmRelease

PARTITIONS = """\
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=86400
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=batch Nodes=ALL MaxTime=INFINITE State=UP
PartitionName=serve Nodes=ALL MaxTime=INFINITE State=UP
"""
NODES = (
    "NodeName={names} CPUs=64 Sockets=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=1000 "
    "Gres=gpu:{gpus} State=CLOUD\n"
)
AS_CONTROLLER = "hostname localhost"


class OfflineController:
    """Controller over racks of nodes, ``{"rack1": ["n1", "n3"]}``; a context manager."""

    def __init__(
        self,
        root: Path,
        racks: dict[str, Sequence[str]],
        gpus: int,
        release: SlurmRelease,
        topology: str = "tree",
    ) -> None:
        """Write the configuration; ``topology`` is "tree" or "block" as for SlurmCluster."""
        self.root, self.release, self.topology = root, release, topology
        (root / "state").mkdir(parents=True)
        self.nodes = "".join(
            NODES.format(names=",".join(names), gpus=gpus) for names in racks.values()
        )
        (root / "topology.conf").write_text(topology_text(racks, topology))
        (root / "gres.conf").write_text(f"Name=gpu Count={gpus}\n")

    def __enter__(self) -> OfflineController:
        for _ in range(ATTEMPTS):
            if self._started():
                return self
        output = (self.root / "slurmctld.out").read_text("utf-8", "replace")[-900:]
        pytest.skip(f"slurmctld does not run on this machine: {output}")

    def _started(self) -> bool:
        """Start slurmctld and return True if it answers, or False if it ended, for example because
        another process took its port.
        """
        ports = free_ports(2)
        text = CONFIG.format(root=self.root, spool=self.root, ports=ports, topology=self.topology)
        (self.root / "slurm.conf").write_text(
            text + self.release.plugins() + self.nodes + PARTITIONS
        )
        daemon = ["slurmctld", "-D", "-c", "-i", "-f", str(self.root / "slurm.conf")]
        with (self.root / "slurmctld.out").open("wb") as log:
            self.controller = subprocess.Popen(
                self.release.within(AS_CONTROLLER, *daemon),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._client("scontrol", "ping")[0]:
            if self.controller.poll() is not None:
                return False
            if time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise AssertionError((self.root / "slurmctld.log").read_text()[-2000:])
            time.sleep(0.1)
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.controller.kill()  # a clean shutdown would only save state that is not used
        self.controller.wait()

    def test_only(self, script: str, *flags: str) -> tuple[int, str]:
        """Return the exit status and output of ``sbatch --test-only`` for the text of a job
        script.
        """
        path = self.root / "job.sbatch"
        path.write_text(script)
        return self._client("sbatch", "--test-only", *flags, str(path))

    def _client(self, *command: str) -> tuple[int, str]:
        done = subprocess.run(
            self.release.within("true", *command),
            env={**os.environ, "SLURM_CONF": str(self.root / "slurm.conf")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout
