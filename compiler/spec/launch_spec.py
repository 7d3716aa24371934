"""``launch:``: how the program starts."""

from __future__ import annotations

from pydantic import Field

from parc.compiler.spec.base import Strict
from parc.compiler.spec.numbers import Port
from parc.compiler.spec.units import Seconds


class SlurmSpec(Strict):
    """What the batch script asks of Slurm beyond its shape."""

    partition: str | None = None
    """--partition"""
    account: str | None = None
    """--account"""
    qos: str | None = None
    """--qos"""
    time_limit: str | None = None
    """--time, as Slurm writes it: 1-00:00:00"""
    reservation: str | None = None
    """--reservation"""
    container_image: str | None = None
    """--container-image of pyxis"""
    container_mounts: tuple[str, ...] = ()
    """--container-mounts of pyxis: src:dst"""
    requeue: bool = True
    """Requeue after a node failure."""
    signal: Seconds = 300.0
    """Warning before the time limit: 300s."""
    log_dir: str = "logs"
    """Folder of the logs, relative to the submit directory."""


class LaunchSpec(Strict):
    """How the program starts."""

    program: str | None = None
    """Script that is started on every rank; absent: the framework's own, pretrain_gpt.py of
    Megatron-LM or the one that is emitted."""
    args: tuple[str, ...] = ()
    """Extra framework arguments; one that the plan already sets is an error."""
    env: dict[str, str] = Field(default_factory=dict)
    """Extra environment variables; they win over PARC's own."""
    master_port: Port = 29500
    """Rendezvous port of torchrun without Slurm; under Slurm it comes from the job id."""
    network_interface: str | None = None
    """Interface for NCCL and Gloo bootstrap, the same on every host."""
    slurm: SlurmSpec = SlurmSpec()
    """Slurm directives."""
