"""Run an emitted launch script on this machine: several ranks over gloo on the loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from parc.compiler.diagnostics import Sink
from parc.compiler.pipeline import plan_spec
from parc.compiler.spec.reading.source import SpecSource
from tests.compiled import emitted, messages_of, write_files
from tests.conformance.free_ports import free_ports
from tests.conformance.tool_checkers import tool_python

LONGEST_SECONDS = 900
STANDSTILL_SECONDS, STANDSTILL_CPU_SECONDS = 60, 2
"""A run has stopped if all its processes together compute for less than this within
STANDSTILL_SECONDS.
"""
NOT_OURS = {
    "terminate called without an active exception": "gloo ended a thread as the process left",
    "EADDRINUSE": "another process took the port meanwhile",
    "ddress already in use": "another process took the port meanwhile",
}
"""Output of runs that failed for reasons outside of the tested files; such a run is started once
more.
"""
RANK_SITE = Path(__file__).with_name("rank_site")


class StoodStillError(Exception):
    """Deadlock at exit: gloo's thread waits for the interpreter to release a tensor, and the
    interpreter waits for the thread.
    """


def write_planned_files(spec: dict[str, Any], folder: Path) -> None:
    """Write the files of ``spec``, whose relative paths start in ``folder``, to ``folder``."""
    sink = Sink()
    plan = plan_spec(SpecSource("spec.yaml", json.dumps(spec), folder), (), sink)
    assert plan is not None, messages_of(sink)
    write_files(emitted(plan), folder)


def run_script(script: Path, *words: str, seconds: float = LONGEST_SECONDS, **env: str) -> str:
    """Return the output of a launch script; fail if it fails or takes too long.

    The script finds ``python``, ``torchrun`` and ``deepspeed`` of the tools' environment, the
    loopback interface for gloo, and a free port in MASTER_PORT; the port after it is free too. It
    runs in its own folder, and none of its processes survives this function. If gloo aborts or
    hangs when the program exits, or if the port was taken, the script is started once more.
    """
    try:
        status, output = _run(script, words, seconds, env)
        again = [why for what, why in NOT_OURS.items() if status and what in output]
    except StoodStillError:
        again = ["gloo hung at exit"]
    if again:
        print(f"{script}: started once more: {again[0]}")
        status, output = _run(script, words, seconds, env)
    assert status == 0, f"{script.name} ended with {status}:\n{output[-4000:]}"
    return output


def _run(
    script: Path, words: tuple[str, ...], seconds: float, env: dict[str, str]
) -> tuple[int, str]:
    """Return (exit status, output) of one run; raise StoodStillError if it stops computing."""
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
            output = _listen(running, seconds)
        except subprocess.TimeoutExpired as late:
            end(running)
            output, _ = running.communicate()
            raise AssertionError(f"{script.name} ran past {seconds} s:\n{output[-4000:]}") from late
        finally:
            end(running)
    return running.returncode, output


def _listen(running: subprocess.Popen[str], seconds: float) -> str:
    """Return the output after the run has ended."""
    start = moved = time.monotonic()
    spent = 0.0
    while True:
        try:
            return running.communicate(timeout=5)[0]
        except subprocess.TimeoutExpired:
            now, busy = time.monotonic(), cpu_seconds(running.pid)
            if now - start > seconds:
                raise
            if abs(busy - spent) > STANDSTILL_CPU_SECONDS:
                spent, moved = busy, now
            if now - moved > STANDSTILL_SECONDS:
                raise StoodStillError from None


def family(pid: int) -> list[int]:
    """Return the ids of a process and all its descendants. Ranks lead separate sessions, so a
    process group does not contain them.
    """
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [one for child in children.read_text().split() for one in family(int(child))]
    return found


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its descendants, including children that have ended."""
    ticks = 0
    for one in family(pid):
        with suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])  # of itself and of awaited children
    return ticks / os.sysconf("SC_CLK_TCK")


def environment() -> dict[str, str]:
    """Return this process's environment with the tools first on the path and without variables of a
    surrounding job.
    """
    python = Path(tool_python("torch"))
    foreign = re.compile(r"SLURM_|PET_|TORCHELASTIC_|(RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR)$")
    kept = {name: value for name, value in os.environ.items() if not foreign.match(name)}
    return kept | {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_PORT": str(free_ports(2)[0]),
        "PYTHONPATH": str(RANK_SITE),
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
        "PYTHONWARNINGS": "ignore",
    }


def end(running: subprocess.Popen[str]) -> None:
    """Kill all remaining processes of a run."""
    for pid in family(running.pid) if running.poll() is None else []:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)


def reference(program: Path, *words: str) -> str:
    """Return the output of a program that runs in one process without a launcher."""
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


def losses(output: str) -> list[float]:
    """Return the numbers of the line `losses: 1.0 0.5 ...`, which rank 0 prints once."""
    (line,) = re.findall(r"losses:((?: \d+\.\d{6})+)", output)
    return [float(number) for number in line.split()]
