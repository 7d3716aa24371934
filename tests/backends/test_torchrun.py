"""Tests of launch.sh: it finds its node rank, starts torchrun with it, or stops."""

from __future__ import annotations

import pytest

from tests.backends.plans import (
    PLANS,
    named_plan,
    nameless_plan,
    small_plan,
    with_launch,
    with_names,
)
from tests.backends.stage import Stage

LAUNCH = "torchrun/launch.sh"


def test_a_host_finds_its_node_rank_by_its_line(stage: Stage) -> None:
    stage.emit(with_names(named_plan(), "n10", "n2", "n1", "n3"))
    done = stage.run(LAUNCH, HOST="n1")
    assert done.returncode == 0, done.stderr
    assert stage.calls() == [
        [
            "--nnodes=4",
            "--nproc-per-node=8",
            "--node-rank=2",
            "--master-addr=n10",
            "--master-port=29500",
            "pretrain_gpt.py",
            "--a",
            "b c",
        ]
    ]


@pytest.mark.parametrize(
    ("listed", "host"), [("n1.cluster", "n1"), ("n1", "n1.cluster"), ("n1.a", "n1.a")]
)
def test_short_and_full_names_are_the_same_host(stage: Stage, listed: str, host: str) -> None:
    stage.emit(with_names(named_plan(), "n0", listed, "n2", "n3"))
    stage.run(LAUNCH, HOST=host)
    assert stage.calls()[0][2] == "--node-rank=1"


def test_a_full_name_takes_precedence_over_a_short_one(stage: Stage) -> None:
    stage.emit(with_names(named_plan(), "n1.a", "n1.b", "n2", "n3"))
    stage.run(LAUNCH, HOST="n1.b")
    assert stage.calls()[0][2] == "--node-rank=1"


@pytest.mark.parametrize("host", ["n1.c", "n", "n11", "login"])
def test_a_host_without_exactly_one_line_is_rejected(stage: Stage, host: str) -> None:
    stage.emit(with_names(named_plan(), "n1.a", "n1.b", "n2", "n3"))
    done = stage.run(LAUNCH, HOST=host)
    assert done.returncode == 2
    assert "set NODE_RANK" in done.stderr
    assert stage.calls() == []


@pytest.mark.parametrize("node_rank", ["4", "-1", "x", "08", "1 ", "99999999999999999999"])
def test_a_node_rank_outside_the_plan_is_rejected(stage: Stage, node_rank: str) -> None:
    stage.emit(named_plan())
    done = stage.run(LAUNCH, NODE_RANK=node_rank)
    assert done.returncode == 2
    assert "must be 0 to 3" in done.stderr


def test_the_environment_overrides_node_master_and_port(stage: Stage) -> None:
    stage.emit(named_plan())
    stage.run(LAUNCH, "--more", NODE_RANK="3", MASTER_ADDR="m", MASTER_PORT="7")
    words = stage.calls()[0]
    assert words[2:5] == ["--node-rank=3", "--master-addr=m", "--master-port=7"]
    assert words[-1] == "--more"


@pytest.mark.parametrize(
    ("given", "missing"),
    [({}, "NODE_RANK"), ({"NODE_RANK": "0"}, "MASTER_ADDR")],
)
def test_without_host_names_node_and_master_must_be_given(
    stage: Stage, given: dict[str, str], missing: str
) -> None:
    stage.emit(nameless_plan(2, 2))
    done = stage.run(LAUNCH, **given)
    assert done.returncode == 2
    assert f"set {missing}" in done.stderr
    assert not (stage.root / "out/torchrun/hosts").exists()


def test_part_of_a_host_gets_as_many_processes_as_there_are_ranks(stage: Stage) -> None:
    stage.emit(small_plan(4))
    done = stage.run(LAUNCH)
    assert done.returncode == 0, done.stderr
    assert stage.calls()[0][:4] == [
        "--nnodes=1",
        "--nproc-per-node=4",
        "--node-rank=0",
        "--master-addr=127.0.0.1",
    ]


def test_without_a_framework_the_program_gets_the_users_arguments(stage: Stage) -> None:
    stage.emit(PLANS["without megatron"])
    stage.run(LAUNCH, NODE_RANK="0")
    assert stage.calls()[0][5:] == ["pretrain_gpt.py", "--a b"]


def test_a_missing_program_is_reported_with_the_folder(stage: Stage) -> None:
    stage.emit(with_launch(named_plan(), program="train.py"))
    done = stage.run(LAUNCH, NODE_RANK="0")
    assert done.returncode == 2
    assert "no train.py in the current folder" in done.stderr
    assert str(stage.root / "work") in done.stderr


def test_the_exit_status_is_that_of_torchrun(stage: Stage) -> None:
    stage.emit(named_plan())
    assert stage.run(LAUNCH, NODE_RANK="0", TORCHRUN_STATUS="9").returncode == 9
