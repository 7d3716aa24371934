"""Tests of the preflight program: its groups match the plan, and it reports every difference.

It is loaded without PyTorch, which only its collectives need; real runs are in tests/conformance.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from parc.backends.preflight.backend import BACKEND, EXPECTED, PROGRAM
from parc.backends.registry import backend
from tests.backends.plans import launch_plan, named_plan, nameless_plan
from tests.placement.placement_plans import NODE, cluster, layout, plan

RUFF = Path(sys.executable).parent / "ruff"


def emitted(made: Any) -> dict[str, str]:
    return {artifact.path: artifact.text for artifact in BACKEND.emit(made)}


@pytest.fixture(name="program")
def _program(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name in ("torch", "torch.distributed"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["torch"].distributed = sys.modules["torch.distributed"]  # type: ignore[attr-defined]
    names: dict[str, Any] = {"__name__": "check_ranks", "__file__": PROGRAM}
    exec(compile(emitted(named_plan())[PROGRAM], PROGRAM, "exec"), names)
    return names


def reported(hosts: list[str], each: int) -> list[dict[str, Any]]:
    """Return the reports of ranks that run as planned."""
    return [
        {
            "rank": rank,
            "node_rank": rank // each,
            "local_rank": rank % each,
            "host": hosts[rank // each],
            "device": f"uuid {rank % each}",
        }
        for rank in range(len(hosts) * each)
    ]


def test_the_groups_of_a_rank_are_those_of_the_plan(program: dict[str, Any]) -> None:
    on = cluster(2, 2, node=replace(NODE, gpus=4, nvlink_domain=4))
    made = plan(on, layout(tp=2, cp=2, pp=2, dp=2))
    groups = json.loads(emitted(made)[EXPECTED])["groups"]
    placement = made.placement
    for family in placement.families:
        of = placement.mesh(family.mesh).groups_along(*family.axes)
        if len(of[0]) == 1:
            assert family.name not in groups
            continue
        for group in of:
            for rank in group:
                assert program["group_of"](rank, groups[family.name]) == group


def test_ranks_as_planned_have_no_differences(program: dict[str, Any]) -> None:
    expected = json.loads(emitted(named_plan())[EXPECTED])
    assert program["differences"](reported(expected["hosts"], 8), expected) == []
    nameless = json.loads(emitted(nameless_plan(2, 2))[EXPECTED])
    assert nameless["hosts"] == []
    assert program["differences"](reported(["w", "x", "y", "z"], 8), nameless) == []


def test_full_and_short_names_are_the_same_host_in_the_check(program: dict[str, Any]) -> None:
    expected = json.loads(emitted(named_plan())[EXPECTED])
    full = [f"{name}.cluster.local" for name in expected["hosts"]]
    assert program["differences"](reported(full, 8), expected) == []


def test_two_swapped_hosts_are_reported_with_their_ranks(program: dict[str, Any]) -> None:
    expected = json.loads(emitted(named_plan())[EXPECTED])
    first, second, *rest = expected["hosts"]
    lines = program["differences"](reported([second, first, *rest], 8), expected)
    assert len(lines) == 16
    assert lines[0] == f"rank 0: host {second}, planned {first}"


def test_a_host_with_two_node_ranks_and_a_shared_device_are_reported(
    program: dict[str, Any],
) -> None:
    ranks = reported(["w", "w", "y", "z"], 8)
    ranks[1]["device"] = ranks[0]["device"]
    lines = program["shared"](ranks[:8], 8)
    assert lines == ["2 ranks on w use uuid 0"]
    nameless = json.loads(emitted(nameless_plan(2, 2))[EXPECTED])
    assert "w has node ranks [0, 1]" in program["differences"](
        reported(["w", "w", "y", "z"], 8), nameless
    )


def test_a_slow_group_is_named(program: dict[str, Any]) -> None:
    times = [{"tp": (rank - rank % 2, 0.1 if rank < 6 else 0.2)} for rank in range(8)]
    lines = program["slow_groups"](times, 100.0)
    assert lines == [
        "tp: 4 groups, median 1.05 GB/s",
        "tp: the group of rank 6 has 50% of the median",
    ]


def test_the_program_passes_the_linter() -> None:
    checked = subprocess.run(
        [str(RUFF), "check", "--stdin-filename", "backends/check_ranks.py", "-"],
        input=emitted(named_plan())[PROGRAM],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


def test_launch_scripts_run_it_first_if_it_is_emitted() -> None:
    made = launch_plan(cluster(2), emit=("megatron", "preflight", "torchrun"))
    (script,) = (one for one in backend("torchrun").emit(made) if one.path.endswith(".sh"))
    check, program = script.text.index("check_ranks.py"), script.text.index("exec torchrun")
    assert check < program
    (plain,) = (one for one in backend("torchrun").emit(named_plan()) if one.path.endswith(".sh"))
    assert "check_ranks" not in plain.text


def test_substitute_hosts_of_the_job_replace_those_of_the_plan(
    program: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planned = program["planned_hosts"]
    assert planned(["n7", "n2"]) == ["n7", "n2"]
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("n1\nn4\n")
    monkeypatch.setenv("PARC_HOSTFILE", str(hostfile))
    assert planned(["n7", "n2"]) == ["n1", "n4"]
    monkeypatch.setenv("PARC_HOSTFILE", str(tmp_path / "unseen"))
    assert planned(["n7", "n2"]) == []


def test_the_table_is_printed_before_any_rank_exits(
    program: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Launchers end rank 0 when the first rank exits, so its output must be printed before."""
    seen = []
    fake: Any = program["torch"]
    fake.tensor = lambda values: values[0]
    program["dist"].get_rank = lambda: 0
    program["dist"].broadcast = lambda *_, **__: seen.append(capsys.readouterr().out)
    assert not program["agree"](["rank 3: host b, planned a"], None, "ranks elsewhere")
    assert seen == ["check_ranks: 1 ranks elsewhere\n  rank 3: host b, planned a\n"]
