"""Read cases from stdin and write verdicts to stdout, one line of JSON per case.

A case has a "name"; the verdict repeats it. A verdict has "accepted" and, if that is false, "stage"
and "error". "fault" is true if the checking program itself failed, so that the verdict contains
nothing about the case. Every case runs in a separate process that is forked after the imports: it
finds the tool in its initial state and cannot end the checking program.

Runs under the Python of a tool; imports neither PARC nor pytest.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

Case = dict[str, Any]
Verdict = dict[str, Any]
Check = Callable[[Case, Verdict], None]
HERE = str(Path(__file__).parents[1])
LONGEST_ERROR = 2000
LONGEST_CASE_SECONDS = 600
FAULTS: tuple[type[Exception], ...] = (ImportError, NameError)
"""Exceptions that no tool raises about a case: a module or name that the checking program needs is
missing.
"""


class Rejected(Exception):
    """The tool rejects the case in a way that is not one of its own exceptions."""


def import_before_forks(*modules: str) -> None:
    """Import modules that every case needs, once. torch gets one thread, because a process with
    several threads cannot be forked safely.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    for module in modules:
        import_module(module)
        if module == "torch":
            sys.modules[module].set_num_threads(1)


def no_modules(_: Case) -> tuple[str, ...]:
    """Return no modules: the case needs no further imports."""
    return ()


def answer_cases(
    check: Check,
    faults: tuple[type[Exception], ...] = FAULTS,
    needs: Callable[[Case], tuple[str, ...]] = no_modules,
) -> int:
    """Check the cases of stdin and return 0. Output of the tool goes to stderr; only verdicts go to
    stdout.

    Args:
        check: writes its results into the verdict, keeps "stage" current, and raises if the tool
            rejects the case.
        faults: exceptions that mean that the checking program failed.
        needs: returns the modules that this case needs and many other cases do not.
    """
    verdicts = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        case = json.loads(line)
        import_before_forks(*needs(case))
        gc.freeze()  # otherwise a collection in a child copies all pages of the imports
        print(_run_in_child(check, case, faults), file=verdicts, flush=True)
    return 0


def _run_in_child(check: Check, case: Case, faults: tuple[type[Exception], ...]) -> str:
    """Return the verdict as JSON, even if the forked process dies before it writes one."""
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as pipe_in:
            pipe_in.write(json.dumps(_verdict(check, case, faults), default=str))
        os._exit(0)
    os.close(writer)
    text = _read(reader, child)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    lost = {"name": case["name"], "accepted": False, "stage": "crash", "fault": True}
    return text or json.dumps(lost | {"error": f"the process of the case ended with {status}"})


def _read(reader: int, child: int) -> str:
    """Read the output of the child, and kill it if it is silent for too long."""
    chunks: list[bytes] = []
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], LONGEST_CASE_SECONDS)
            if not ready:
                os.kill(child, signal.SIGKILL)
            if not (chunk := pipe.read(1 << 16)):
                return b"".join(chunks).decode()
            chunks.append(chunk)


def _verdict(check: Check, case: Case, faults: tuple[type[Exception], ...]) -> Verdict:
    verdict: Verdict = {"name": case["name"], "accepted": False, "stage": "read", "fault": False}
    try:
        check(case, verdict)
        verdict.update(accepted=True, stage="")
    except (Exception, SystemExit) as rejection:
        verdict["error"] = f"{type(rejection).__name__}: {rejection}"[:LONGEST_ERROR]
        ours = isinstance(rejection, faults) or _raised_by_us(rejection)
        verdict["fault"] = ours and not isinstance(rejection, Rejected)
    return verdict


def _raised_by_us(rejection: BaseException) -> bool:
    """Return True if the exception was raised by a line of the conformance tests and not of a
    tool.
    """
    return traceback.extract_tb(rejection.__traceback__)[-1].filename.startswith(HERE)
