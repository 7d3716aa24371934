"""Tests of the signal before the time limit: forwarded only to programs that handle signals."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from tests.backends.plans import nameless_plan
from tests.backends.stage import Stage

HOSTS = ("n1", "n2", "n3", "n4")
PATIENCE_SECONDS = 300.0


def wait_for(stage: Stage, name: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (stage.root / name).exists():
        assert time.monotonic() < deadline, f"no {name}"
        time.sleep(0.01)


def launched(stage: Stage, words: str) -> subprocess.Popen[str]:
    """Run a job whose training step ends when the file ``end`` appears."""
    stage.emit(nameless_plan(4), words)
    env = {**stage.allocate(*HOSTS), "SRUN_LASTS": "1"}
    process = stage.start("slurm/job.sbatch", **env)
    wait_for(stage, "started")
    return process


def test_a_program_that_handles_signals_gets_the_warning_and_its_status_is_kept(
    stage: Stage,
) -> None:
    with launched(stage, "--exit-signal-handler") as job:
        job.send_signal(signal.SIGUSR1)
        out, _ = job.communicate(timeout=PATIENCE_SECONDS)
    assert job.returncode == 0
    assert (stage.root / "forwarded").exists()
    assert "signaling the ranks to save and stop" in out
    assert out.endswith("exit 0\n")


@pytest.mark.parametrize("warnings", [1, 2])
def test_a_program_that_does_not_handle_signals_continues(stage: Stage, warnings: int) -> None:
    with launched(stage, "--save x") as job:
        for _ in range(warnings):
            job.send_signal(signal.SIGUSR1)
            time.sleep(0.1)
        assert job.poll() is None
        stage.put("end", "")
        out, _ = job.communicate(timeout=PATIENCE_SECONDS)
    assert job.returncode == 0
    assert not (stage.root / "forwarded").exists()
    assert "does not handle signals" in out
