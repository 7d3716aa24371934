"""Tests that run job.sbatch with stand-ins for srun and scontrol."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parc.compiler.ir import Host, Plan
from tests.backends.plans import PLANS, named_plan, nameless_plan, with_names
from tests.backends.stage import Stage

HOSTS = ("n7", "n2", "n10", "n1")


def node_ranks(stage: Stage) -> dict[str, str]:
    """Return the node ranks that torchrun was started with, by host."""
    hosts = (stage.root / "work/logs/123456.0.hostfile").read_text().split()
    ranks = [call[2].removeprefix("--node-rank=") for call in stage.calls()]
    return dict(zip(hosts, ranks, strict=True))


def leaves(stage: Stage, **hosts: str) -> None:
    """Set the racks of the hosts: ``rack1="n1 n3"``."""
    rows = [f"spine.{leaf} {host}\n" for leaf, names in hosts.items() for host in names.split()]
    stage.put("leaves", "".join(rows))


def with_order(plan: Plan, *hosts: Host) -> Plan:
    return replace(plan, placement=replace(plan.placement, hosts=hosts))


def test_named_hosts_get_the_node_ranks_of_the_plan(stage: Stage) -> None:
    stage.emit(with_names(named_plan(), *HOSTS))
    done = stage.submit("n1", "n2", "n7", "n10")
    assert done.returncode == 0, done.stderr
    assert node_ranks(stage) == {"n7": "0", "n2": "1", "n10": "2", "n1": "3"}
    assert all("--master-addr=n7" in call for call in stage.calls())
    assert all("--master-port=26912" in call for call in stage.calls())


def test_steps_use_the_host_file_and_never_a_node_count(stage: Stage) -> None:
    stage.emit(with_names(named_plan(), *HOSTS))
    stage.submit("n1", "n2", "n7", "n10")
    _, proof, launch = stage.calls("srun")
    for flags in (proof, launch):
        assert flags[:3] == ["--mpi=none", "--distribution=arbitrary", "--ntasks=4"]
        assert not any(flag.startswith(("--nodes", "-N")) for flag in flags)
    assert {"--kill-on-bad-exit=1", "--wait=60", "--cpus-per-task=64"} <= set(launch)
    assert f"--output={stage.root}/work/logs/123456.0.%t.log" in launch


def test_a_percent_sign_in_the_path_is_not_a_log_name_pattern(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "100%")
    stage.emit(with_names(named_plan(), *HOSTS))
    stage.submit("n1", "n2", "n7", "n10")
    assert any("/100%%/work/logs/" in flag for flag in stage.calls("srun")[2])


def test_tasks_on_other_hosts_than_planned_stop_the_job_before_the_launch(stage: Stage) -> None:
    stage.emit(with_names(named_plan(), *HOSTS))
    done = stage.submit("n1", "n2", "n7", "n10", CHEAT=str(stage.root / "allocation"))
    assert done.returncode == 3
    assert "rank map violated" in done.stderr
    assert "-n7" in done.stderr
    assert stage.calls() == []


def test_a_different_number_of_hosts_is_rejected(stage: Stage) -> None:
    stage.emit(with_names(named_plan(), *HOSTS))
    done = stage.submit("n1", "n2")
    assert done.returncode == 3
    assert "the plan requires 4 hosts, the job has 2" in done.stderr


@pytest.mark.parametrize("sizes", [(2, 2), (3, 1), (1, 3), (1, 1, 2)])
def test_hosts_without_names_are_ordered_by_the_racks_of_the_plan(
    stage: Stage, sizes: tuple[int, ...]
) -> None:
    stage.emit(nameless_plan(*sizes))
    names = iter(["n1", "n3", "n2", "n4"])
    racks = {f"rack{index}": [next(names) for _ in range(size)] for index, size in enumerate(sizes)}
    leaves(stage, **{rack: " ".join(hosts) for rack, hosts in racks.items()})
    done = stage.submit("n1", "n2", "n3", "n4")
    assert done.returncode == 0, done.stderr
    wanted = [host for hosts in racks.values() for host in sorted(hosts)]
    assert node_ranks(stage) == {host: str(rank) for rank, host in enumerate(wanted)}


def test_racks_that_alternate_in_the_plan_alternate_in_the_job(stage: Stage) -> None:
    plan = nameless_plan(2, 2)
    first, second, third, fourth = plan.placement.hosts
    stage.emit(with_order(plan, first, third, second, fourth))
    leaves(stage, a="n1 n3", b="n2 n4")
    done = stage.submit("n1", "n2", "n3", "n4")
    assert done.returncode == 0, done.stderr
    assert list(node_ranks(stage)) == ["n1", "n2", "n3", "n4"]


def test_a_job_on_racks_of_other_sizes_is_rejected_with_the_numbers(stage: Stage) -> None:
    stage.emit(nameless_plan(2, 2))
    leaves(stage, a="n1 n2 n3", b="n4")
    done = stage.submit("n1", "n2", "n3", "n4")
    assert done.returncode == 3
    assert "the plan requires racks of 2 2 hosts, the job got spine.a=3 spine.b=1" in done.stderr
    assert stage.calls() == []


def test_a_variable_allows_any_racks(stage: Stage) -> None:
    stage.emit(nameless_plan(2, 2))
    leaves(stage, a="n1 n10 n2", b="n4")
    done = stage.submit("n1", "n2", "n4", "n10", PARC_ANY_SHAPE="1")
    assert done.returncode == 0, done.stderr
    assert list(node_ranks(stage)) == ["n1", "n2", "n10", "n4"]


def test_without_racks_in_the_plan_hosts_are_ordered_by_place_and_name(stage: Stage) -> None:
    stage.emit(nameless_plan(4))
    leaves(stage, a="n10 n2", b="n1 n3")
    done = stage.submit("n1", "n2", "n3", "n10")
    assert done.returncode == 0, done.stderr
    assert list(node_ranks(stage)) == ["n2", "n10", "n1", "n3"]


def test_without_a_topology_in_slurm_racks_cannot_be_matched(stage: Stage) -> None:
    stage.emit(nameless_plan(2, 2))
    done = stage.submit("n1", "n2", "n3", "n4")
    assert done.returncode == 3
    assert "the job got none=4" in done.stderr


@pytest.mark.parametrize("way", ["SLURM_SUBMIT_DIR", "PARC_DIR", "script"])
def test_the_output_folder_is_found_three_ways(stage: Stage, way: str) -> None:
    stage.emit(with_names(named_plan(), *HOSTS))
    stage.put("out/pretrain_gpt.py", "")
    stage.env = {} if way == "script" else {"SUBMITTED": "", way: str(stage.root / "out")}
    done = stage.submit("n1", "n2", "n7", "n10")
    assert done.returncode == 0, done.stderr


def test_a_missing_output_folder_is_explained(stage: Stage) -> None:
    stage.emit(with_names(named_plan(), *HOSTS))
    stage.env = {"SUBMITTED": "/var/spool/slurm/job1/slurm_script"}
    done = stage.submit("n1", "n2", "n7", "n10")
    assert done.returncode == 3
    assert "submit from the output folder, or set PARC_DIR" in done.stderr
    assert stage.calls() == []


def test_a_job_that_was_requeued_too_often_stops(stage: Stage) -> None:
    stage.emit(with_names(named_plan(), *HOSTS))
    done = stage.submit("n1", "n2", "n7", "n10", SLURM_RESTART_COUNT="17")
    assert done.returncode == 3
    assert "requeued 17 times" in done.stderr


def test_a_requeued_job_keeps_the_files_of_earlier_attempts(stage: Stage) -> None:
    stage.emit(with_names(named_plan(), *HOSTS))
    for life in ("0", "1"):
        stage.submit("n1", "n2", "n7", "n10", SLURM_RESTART_COUNT=life)
    names = {path.name for path in (stage.root / "work/logs").iterdir()}
    assert {"123456.0.hostfile", "123456.1.hostfile"} <= names


def test_a_failed_rank_fails_the_job(stage: Stage) -> None:
    stage.emit(with_names(named_plan(), *HOSTS))
    assert stage.submit("n1", "n2", "n7", "n10", TORCHRUN_STATUS="9").returncode == 9


def test_an_inherited_host_order_is_ignored(stage: Stage) -> None:
    stage.emit(nameless_plan(4))
    env = {"SLURM_HOSTFILE": "/nowhere", "SLURM_DISTRIBUTION": "arbitrary"}
    assert stage.submit("n1", "n2", "n3", "n4", **env).returncode == 0


def test_slurm_runs_a_copy_of_the_launch_script_if_torchrun_is_not_emitted(stage: Stage) -> None:
    stage.emit(with_names(PLANS["without torchrun"], *HOSTS))
    assert not (stage.root / "out/torchrun").exists()
    done = stage.submit("n1", "n2", "n7", "n10")
    assert done.returncode == 0, done.stderr
    assert node_ranks(stage)["n10"] == "2"
