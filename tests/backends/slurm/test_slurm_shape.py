"""Tests of job.sbatch with named hosts: racks or hosts of the job that differ from the plan."""

from __future__ import annotations

from pathlib import Path

from tests.backends.plans import named_plan, with_names
from tests.backends.slurm.test_slurm_job import HOSTS, leaves, node_ranks
from tests.backends.stage import Stage


def moved(stage: Stage) -> None:
    """Emit a plan with two racks of two hosts, n7 n2 and n10 n1."""
    stage.emit(with_names(named_plan(), *HOSTS))


def test_named_hosts_whose_racks_are_as_planned_keep_the_order_of_the_plan(stage: Stage) -> None:
    moved(stage)
    leaves(stage, b="n2 n7", a="n1 n10")
    done = stage.submit("n1", "n2", "n7", "n10")
    assert done.returncode == 0, done.stderr
    assert list(node_ranks(stage)) == list(HOSTS)
    assert "PARC_HOSTFILE" not in stage.environment(0)


def test_named_hosts_in_other_racks_than_planned_are_rejected(stage: Stage) -> None:
    moved(stage)
    leaves(stage, a="n1 n7", b="n2 n10")
    done = stage.submit("n1", "n2", "n7", "n10")
    assert done.returncode == 3
    wanted = "n7 and n2 share a rack in the plan, and are in spine.a and spine.b of Slurm"
    assert wanted in done.stderr
    assert stage.calls() == []
    assert stage.submit("n1", "n2", "n7", "n10", PARC_ANY_SHAPE="1").returncode == 0


def test_planned_racks_that_are_one_rack_in_slurm_are_valid(stage: Stage) -> None:
    moved(stage)
    leaves(stage, a="n1 n2 n7 n10")
    assert stage.submit("n1", "n2", "n7", "n10").returncode == 0


def test_other_hosts_in_racks_of_the_same_sizes_are_ordered_by_place(stage: Stage) -> None:
    moved(stage)
    leaves(stage, a="n1 n4", b="n3 n5")
    done = stage.submit("n1", "n3", "n4", "n5")
    assert done.returncode == 0, done.stderr
    assert list(node_ranks(stage)) == ["n1", "n4", "n3", "n5"]
    hostfile = Path(stage.environment(0)["PARC_HOSTFILE"])
    assert hostfile.read_text().split() == ["n1", "n4", "n3", "n5"]
    assert "ignore host names in the rank map" in done.stdout


def test_other_hosts_in_racks_of_other_sizes_are_rejected(stage: Stage) -> None:
    moved(stage)
    leaves(stage, a="n1 n4 n3", b="n5")
    done = stage.submit("n1", "n3", "n4", "n5")
    assert done.returncode == 3
    assert "the plan requires racks of 2 2 hosts, the job got spine.a=3 spine.b=1" in done.stderr
    assert stage.calls() == []


def test_a_place_with_only_the_host_name_is_not_a_rack(stage: Stage) -> None:
    moved(stage)
    names = ("n1", "n2", "n7", "n10")
    srun = (stage.root / "bin/srun").read_text()
    stage.put("bin/srun", srun.replace("${place:+$place.$host}", "$host"), executable=True)
    assert stage.submit(*names).returncode == 0
