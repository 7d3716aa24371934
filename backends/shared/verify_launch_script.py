"""Verification of ``launch.sh``, which several launchers emit in their own folders.

It is separate from ``launch_script.py`` because a verifier must not share code with the emitter.
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
    """Report rank counts, or a rendezvous host, that differ from the rank map (A07)."""
    verify_numbers(file, text, job.launcher or TORCHRUN, job, sink)
    verify_rendezvous(file, text, job.hosts, sink)


def exported_devices(text: str) -> list[str] | None:
    """Return the GPU indices that the script makes visible, by local rank; None if it sets none."""
    found = _DEVICES.search(text)
    return found[1].split(",") if found else None
