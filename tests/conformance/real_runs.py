"""Run an emitted launch script on this machine: several ranks over gloo, on the loopback."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from pathlib import Path

from tests.conformance.tool_judging import tool_python

LONGEST_SECONDS = 240


GLOO_ABORT = "terminate called without an active exception"
"""Gloo ends a thread of its own while the process leaves: an abort after all work is done."""


def run_script(script: Path, *words: str, seconds: float = LONGEST_SECONDS, **env: str) -> str:
    """What a launch script prints; fails where it fails, or where it takes too long.

    The script finds ``python``, ``torchrun`` and ``deepspeed`` of the judges' environment, the
    loopback for gloo, and a free port in MASTER_PORT. It runs in its own folder. Its processes
    are a session of their own, and none of them survives this function. A run that gloo aborts
    as it leaves is started once more.
    """
    status, said = _run(script, words, seconds, env)
    if status and GLOO_ABORT in said:
        status, said = _run(script, words, seconds, env)
    assert status == 0, f"{script.name} ended with {status}:\n{said[-4000:]}"
    return said


def _run(
    script: Path, words: tuple[str, ...], seconds: float, env: dict[str, str]
) -> tuple[int, str]:
    """(exit status, output) of one run."""
    with subprocess.Popen(
        ["bash", str(script), *words],
        cwd=script.parent,
        env=environment() | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            said, _ = running.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as late:
            end(running)
            said, _ = running.communicate()
            raise AssertionError(f"{script.name} ran past {seconds} s:\n{said[-4000:]}") from late
        finally:
            end(running)
    return running.returncode, said


def environment() -> dict[str, str]:
    """This process's, with the judges' tools first and nothing of a surrounding job."""
    python = Path(tool_python("torch"))
    foreign = re.compile(r"SLURM_|PET_|TORCHELASTIC_|(RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR)$")
    kept = {name: value for name, value in os.environ.items() if not foreign.match(name)}
    return kept | {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
        "PYTHONWARNINGS": "ignore",
    }


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end(running: subprocess.Popen[str]) -> None:
    """Kill what is left of the session."""
    try:
        os.killpg(running.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def reference(program: Path, *words: str) -> str:
    """What a program prints that needs one process and no launcher."""
    done = subprocess.run(
        [tool_python("torch"), str(program), *words],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def losses(said: str) -> list[float]:
    """The numbers of the line `losses: 1.0 0.5 ...`, which rank 0 prints once."""
    (line,) = re.findall(r"^(?:\[\w+\]:)?losses:(.*)$", said, re.MULTILINE)
    return [float(number) for number in line.split()]
