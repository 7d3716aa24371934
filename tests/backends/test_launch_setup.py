"""Tests that run scripts with set-up commands and variables from the environment."""

from __future__ import annotations

import pytest

from parc.backends.slurm.directives import directive_table
from tests.backends.plans import HOSTILE, launch_plan, named_plan, with_launch, with_slurm
from tests.backends.stage import Stage
from tests.placement.placement_plans import cluster

HOSTS = ("r01n01", "r01n02", "r02n01", "r02n02")
FROM_SHELL = {name: "1" for names in directive_table()["unset"].values() for name in names}
"""Variables of a submitting shell that would change the steps of the job."""


def test_set_up_commands_run_first_on_each_host(stage: Stage) -> None:
    lines = (
        'echo "$NODE_RANK" >> "$STAGE/order"',
        "export A=setup B=setup",
        "echo $UNSET_VARIABLE",
    )
    stage.emit(with_launch(named_plan(), setup=lines, env=(("A", "spec"),)))
    done = stage.submit(*HOSTS)
    assert done.returncode == 0, done.stderr
    assert sorted((stage.root / "order").read_text().split()) == ["0", "1", "2", "3"]
    seen = stage.environment(0)
    assert (seen["A"], seen["B"]) == ("spec", "setup")


def test_a_failed_set_up_command_stops_the_launch(stage: Stage) -> None:
    stage.emit(with_launch(named_plan(), setup=("false", "touch $STAGE/later")))
    assert stage.run("torchrun/launch.sh", NODE_RANK="0").returncode != 0
    assert not (stage.root / "later").exists()
    assert stage.calls() == []


def test_set_up_commands_may_change_the_folder(stage: Stage) -> None:
    stage.emit(with_launch(launch_plan(cluster(1)), setup=("cd ..", "cd work")))
    done = stage.run("torchrun/launch.sh")
    assert done.returncode == 0, done.stderr


def test_an_inherited_value_reaches_all_ranks_and_no_file(stage: Stage) -> None:
    stage.emit(with_launch(named_plan(), env_inherited=("KEY", "OMP_NUM_THREADS")))
    done = stage.submit(*HOSTS, KEY=HOSTILE, OMP_NUM_THREADS="3")
    assert done.returncode == 0, done.stderr
    for node in range(4):
        seen = stage.environment(node)
        assert (seen["KEY"], seen["OMP_NUM_THREADS"]) == (HOSTILE, "3")
    scripts = [path for path in (stage.root / "out").rglob("*") if path.is_file()]
    logs = [path for path in (stage.root / "work").rglob("*") if path.is_file()]
    assert not [path for path in (*scripts, *logs) if HOSTILE in path.read_text()]
    assert HOSTILE not in done.stdout + done.stderr
    assert not stage.pwned()


@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_inherited_value_stops_before_any_step(stage: Stage, value: str | None) -> None:
    stage.emit(with_launch(named_plan(), env_inherited=("KEY",)))
    given = {} if value is None else {"KEY": value}
    for done in (
        stage.submit(*HOSTS, **given),
        stage.run("torchrun/launch.sh", NODE_RANK="0", **given),
    ):
        assert done.returncode != 0
        assert "KEY is not set" in done.stderr
    assert stage.calls() == stage.calls("srun") == []


def test_variables_of_the_submitting_shell_do_not_reach_the_steps(stage: Stage) -> None:
    stage.emit(named_plan())
    done = stage.submit(*HOSTS, **FROM_SHELL)
    assert done.returncode == 0, done.stderr
    kept = {"SLURM_HOSTFILE"}  # the job sets its own
    assert not (set(FROM_SHELL) - kept) & set(stage.environment(0))


def test_a_job_with_too_few_gpus_per_host_stops_before_any_step(stage: Stage) -> None:
    stage.emit(named_plan())
    done = stage.submit(*HOSTS, SLURM_GPUS_ON_NODE="1")
    assert done.returncode == 3
    assert "the plan uses 8 GPUs per host, the job has 1" in done.stderr
    assert stage.calls("srun") == []


def test_a_task_of_an_array_finds_the_output_folder_from_any_folder(stage: Stage) -> None:
    """scontrol lists all tasks of an array under the number that its last task has."""
    stage.emit(with_slurm(named_plan(), array="1-2"))
    script = stage.root / "out/slurm/job.sbatch"
    stage.env["SUBMITTED"] = f"{script}\n   Command={script}"
    done = stage.submit(*HOSTS)
    assert done.returncode == 0, done.stderr
