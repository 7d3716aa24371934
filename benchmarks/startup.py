"""CPU time of interactive commands, relative to a bare interpreter.

Each command runs N times and the minimum counts, because other load on the machine can only add
time. Results are in milliseconds and as a multiple of the bare interpreter, which is comparable
between machines.

    python benchmarks/startup.py --runs 20 [--fail-over]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
SPEC = str(ROOT / "examples" / "llama-3-70b" / "spec.yaml")
BARE = (sys.executable, "-c", "")
PARC = (sys.executable, "-m", "parc")
ENVIRONMENT = {name: os.environ[name] for name in os.environ if name != "PYTHONDONTWRITEBYTECODE"}
"""Environment in which byte code is cached between runs, as for an installed package."""


@dataclass(frozen=True)
class CommandCase:
    """Command line, and its limit as a multiple of the bare interpreter."""

    title: str
    command: tuple[str, ...]
    limit: float


def cases(folder: str) -> tuple[CommandCase, ...]:
    """Return the commands; ``folder`` receives the output of ``compile``."""
    return (
        CommandCase("parc --help", (*PARC, "--help"), 2.5),
        CommandCase("parc compile --help", (*PARC, "compile", "--help"), 4),
        CommandCase("parc check", (*PARC, "check", SPEC), 16),
        CommandCase("parc explain PARC-D01", (*PARC, "explain", "PARC-D01"), 4),
        CommandCase("parc compile", (*PARC, "compile", SPEC, "-o", f"{folder}/out"), 21),
    )


def cpu_seconds(command: tuple[str, ...]) -> float:
    """Return user plus system time of one run of ``command``; CalledProcessError if it fails."""
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(command, stdout=quiet, stderr=quiet, env=ENVIRONMENT)
    # wait4 reports the resources of this child only, unlike resource.getrusage
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return usage.ru_utime + usage.ru_stime


def fastest_ms(command: tuple[str, ...], runs: int) -> float:
    """Return the minimum milliseconds of ``runs`` runs, after one that warms the caches."""
    cpu_seconds(command)
    return 1000 * min(cpu_seconds(command) for _ in range(runs))


def main() -> int:
    """Print the table; with ``--fail-over``, return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--fail-over", action="store_true", help="exit 1 when a limit is passed")
    options = parser.parse_args()
    bare_ms = fastest_ms(BARE, options.runs)
    print(f"bare interpreter      {bare_ms:7.1f} ms CPU (minimum of {options.runs})")
    print(f"{'command':22}{'ms':>8}{'over bare':>12}{'x bare':>8}{'limit':>8}")
    slow = 0
    with TemporaryDirectory() as folder:
        for case in cases(folder):
            total_ms = fastest_ms(case.command, options.runs)
            over_ms = total_ms - bare_ms
            ratio = total_ms / bare_ms
            slow += ratio > case.limit
            print(f"{case.title:22}{total_ms:8.1f}{over_ms:12.1f}{ratio:8.1f}{case.limit:8.1f}")
    return 1 if slow and options.fail_over else 0


if __name__ == "__main__":
    sys.exit(main())
