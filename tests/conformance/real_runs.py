"""Run an emitted launch script on this machine: several ranks over gloo, on the loopback."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.conformance.tool_judging import tool_python

LONGEST_SECONDS = 240
STANDSTILL_SECONDS = 60
"""A run whose processes together compute for less than a second in this time has stopped."""
GLOO_ABORT = "terminate called without an active exception"
"""Gloo ends a thread of its own while the process leaves: an abort after all work is done."""


class StoodStillError(Exception):
    """Gloo's thread waits for the interpreter to let go of a tensor, and that for the thread."""


def run_script(script: Path, *words: str, seconds: float = LONGEST_SECONDS, **env: str) -> str:
    """What a launch script prints; fails where it fails, or where it takes too long.

    The script finds ``python``, ``torchrun`` and ``deepspeed`` of the judges' environment, the
    loopback for gloo, and a free port in MASTER_PORT. It runs in its own folder, and none of its
    processes survives this function. A run that gloo aborts or holds up as it leaves is started
    once more.
    """
    try:
        status, said = _run(script, words, seconds, env)
        again = status != 0 and GLOO_ABORT in said
    except StoodStillError:
        again = True
    if again:
        status, said = _run(script, words, seconds, env)
    assert status == 0, f"{script.name} ended with {status}:\n{said[-4000:]}"
    return said


def _run(
    script: Path, words: tuple[str, ...], seconds: float, env: dict[str, str]
) -> tuple[int, str]:
    """(exit status, output) of one run; StoodStillError where it does nothing any more."""
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
            said = _listen(running, seconds)
        except subprocess.TimeoutExpired as late:
            end(running)
            said, _ = running.communicate()
            raise AssertionError(f"{script.name} ran past {seconds} s:\n{said[-4000:]}") from late
        finally:
            end(running)
    return running.returncode, said


def _listen(running: subprocess.Popen[str], seconds: float) -> str:
    """The output, once the run has ended."""
    start = moved = time.monotonic()
    spent = 0.0
    while True:
        try:
            return running.communicate(timeout=5)[0]
        except subprocess.TimeoutExpired:
            now, busy = time.monotonic(), cpu_seconds(running.pid)
            if now - start > seconds:
                raise
            if abs(busy - spent) > 1:
                spent, moved = busy, now
            if now - moved > STANDSTILL_SECONDS:
                raise StoodStillError from None


def family(pid: int) -> list[int]:
    """A process and all that came from it; ranks lead sessions of their own."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [one for child in children.read_text().split() for one in family(int(child))]
    return found


def cpu_seconds(pid: int) -> float:
    """What a process and all that came from it have computed, those that have ended too."""
    ticks = 0
    for one in family(pid):
        with suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])  # of its own, of awaited children
    return ticks / os.sysconf("SC_CLK_TCK")


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
    """Kill what is left of a run."""
    for pid in family(running.pid) if running.poll() is None else []:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)


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
