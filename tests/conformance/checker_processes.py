"""Processes of checking programs that stay alive, because their imports take seconds.

A process reads one case per line and answers with one verdict per line. The processes of the
programs that were used last are kept. All end with this process, because their stdin closes.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def processes_per_program(workers: int, cores: int) -> int:
    """Return 2 if each worker of pytest-xdist has at least two cores, otherwise 1.

    Without a free core, a second process only adds the CPU time of its imports.
    """
    return 2 if cores >= 2 * workers else 1


PROCESSES = processes_per_program(
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), os.cpu_count() or 1
)
KEPT = 4 // PROCESSES
"""Number of programs whose processes are kept: together four processes of about 1 GB per worker."""
FEW = 30
"""Up to this number of cases one process is faster than two, because each imports the tool."""
LONGEST_CASE_SECONDS = 900
Case = dict[str, Any]
Verdict = dict[str, Any]


class CheckerProcess:
    """A checking program, started with ``command``."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process lives)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True
        )

    def verdicts(self, cases: Iterator[Case]) -> list[Verdict]:
        """Return the verdicts of the cases that this process takes from ``cases``, an iterator that
        it shares with other processes.
        """
        return [self._verdict(case) for case in cases]

    def _verdict(self, case: Case) -> Verdict:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            print(json.dumps(case), file=stdin, flush=True)
            ready, _, _ = select.select([stdout], [], [], LONGEST_CASE_SECONDS)
            answer = stdout.readline() if ready else ""
        except BrokenPipeError:
            answer = ""
        assert answer, f"no verdict of {self._process.args} on {case}: {self._last_words()}"
        verdict: Verdict = json.loads(answer)
        return verdict

    def _last_words(self) -> str:
        self._process.kill()
        self._process.wait()
        self._stderr.seek(0)
        return self._stderr.read()[-2000:].decode("utf-8", "replace")

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._stderr.close()


_kept: dict[tuple[str, ...], list[CheckerProcess]] = {}
"""Processes by command; the command that was used last is at the end."""


def run_cases(command: list[str], cases: list[Case]) -> list[Verdict]:
    """Return the verdicts in any order. The cases are distributed to ``PROCESSES`` processes."""
    processes = _processes(tuple(command), 1 if len(cases) <= FEW else PROCESSES)
    waiting = iter(cases)
    with ThreadPoolExecutor(PROCESSES) as pool:
        try:
            found = list(pool.map(lambda one: one.verdicts(waiting), processes))
        except BaseException:
            end_checkers(tuple(command))
            raise
    return [verdict for some in found for verdict in some]


def _processes(command: tuple[str, ...], count: int) -> list[CheckerProcess]:
    """Return at least ``count`` processes of a command and reuse those that are alive."""
    processes = _kept.pop(command, [])
    for other in list(_kept)[: 1 - KEPT]:
        end_checkers(other)
    processes += [CheckerProcess(command) for _ in range(count - len(processes))]
    _kept[command] = processes
    return processes


def end_checkers(*commands: tuple[str, ...]) -> None:
    """End the processes of these commands, or all processes if none is given."""
    for command in commands or list(_kept):
        for process in _kept.pop(command, []):
            process.end()


atexit.register(end_checkers)
