"""Judges as processes that stay for the next test: what a judge imports takes it seconds.

A process is given a case a line and answers with a verdict a line. Those of the two judges that
were asked last are kept; all end with this process, which they notice on their stdin.
"""

from __future__ import annotations

import atexit
import json
import select
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

PROCESSES, KEPT = 2, 2
FEW = 6
"""Up to so many cases one process is quicker than two, which both import the tool."""
LONGEST_CASE_SECONDS = 900
Case = dict[str, Any]
Verdict = dict[str, Any]


class CheckerProcess:
    """One judge, started with ``command``."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process lives)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True
        )

    def verdicts(self, cases: Iterator[Case]) -> list[Verdict]:
        """Those of the cases that it gets hold of; ``cases`` is shared with other judges."""
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
"""By command, the one that was asked last at the end."""


def run_cases(command: list[str], cases: list[Case]) -> list[Verdict]:
    """Verdicts in any order; the cases are dealt to a few processes."""
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
    """At least so many of the judge, with those that are there already."""
    processes = _kept.pop(command, [])
    for other in list(_kept)[: 1 - KEPT]:
        end_checkers(other)
    processes += [CheckerProcess(command) for _ in range(count - len(processes))]
    _kept[command] = processes
    return processes


def end_checkers(*commands: tuple[str, ...]) -> None:
    """End those of the commands; without any, all."""
    for command in commands or list(_kept):
        for process in _kept.pop(command, []):
            process.end()


atexit.register(end_checkers)
