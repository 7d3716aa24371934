"""Verification of ``launch.sh``, the script that several launchers emit in their own folder.

Verifiers share no code with the emitter, so this cannot be a part of ``launch_script.py``.
"""

from __future__ import annotations

import re

from parc.backends.verifier import JobShape, LauncherNumber
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.launch_numbers import verify_numbers, verify_rendezvous

TORCHRUN = (
    LauncherNumber("--nnodes", r"--nnodes=(\d+)", "nodes"),
    LauncherNumber("--nproc-per-node", r"--nproc-per-node=(\d+)", "ranks_per_node"),
)
_DEVICES = re.compile(r"^export (?:CUDA|HIP)_VISIBLE_DEVICES='?([0-9,]+)'?$", re.MULTILINE)


def verify_launch_script(file: str, text: str, job: JobShape, sink: Sink) -> None:
    """Report A07 for numbers of the launcher, and a rendezvous, that differ from the rank map."""
    verify_numbers(file, text, job.launcher or TORCHRUN, job, sink)
    verify_rendezvous(file, text, job.hosts, sink)


def exported_devices(text: str) -> list[str] | None:
    """Return the devices that the script makes visible, by local rank; None if it sets none."""
    found = _DEVICES.search(text)
    return found[1].split(",") if found else None
