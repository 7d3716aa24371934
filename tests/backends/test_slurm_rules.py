"""What the launchers refuse, each with its code, its place and its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parc.backends.registry import backend
from parc.backends.slurm.rules import time_limit_seconds
from parc.compiler.diagnostics import Diagnostic, Sink
from parc.compiler.ir import Plan
from tests.backends.plans import (
    PLANS,
    named_plan,
    nvl72_plan,
    small_plan,
    with_fabric,
    with_launch,
    with_names,
    with_slurm,
)


def found(plan: Plan) -> tuple[Diagnostic, ...]:
    sink = Sink()
    for name in ("slurm", "torchrun"):
        backend(name).check(plan, sink)
    return sink.diagnostics


def codes(plan: Plan) -> list[str]:
    return [diagnostic.code.removeprefix("PARC-") for diagnostic in found(plan)]


@pytest.mark.parametrize("title", sorted(set(PLANS) - {"old Slurm", "NVL72, named"}))
def test_a_sound_plan_gets_no_diagnostic(title: str) -> None:
    assert found(PLANS[title]) == ()


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("partition", "a\nb", "L16"),
        ("account", "\0", "L16"),
        ("qos", "", "L15"),
        ("reservation", " ", "L15"),
        ("time_limit", "2 days", "L17"),
        ("time_limit", "1:2:3:4", "L17"),
        ("time_limit", "01:00:00\n#SBATCH --nodes=9", "L16"),
        ("signal_seconds", 0, "L19"),
        ("signal_seconds", 70000, "L19"),
        ("signal_seconds", 3600, "L19"),
        ("log_dir", "/tmp/x", "L21"),
        ("log_dir", "a%j", "L21"),
        ("log_dir", "~/x", "L21"),
        ("log_dir", "", "L21"),
        ("log_dir", "a\\b", "L21"),
        ("container_mounts", ("/a:/b",), "L22"),
        ("container_image", "", "L22"),
        ("container_image", "a\nb", "L22"),
    ],
)
def test_slurm_is_asked_only_what_it_can_read(field: str, value: Any, code: str) -> None:
    diagnostics = found(with_slurm(named_plan(), **{field: value}))
    assert code in {diagnostic.code.removeprefix("PARC-") for diagnostic in diagnostics}
    path = field.removesuffix("_seconds")
    assert any(diagnostic.path.startswith(f"launch.slurm.{path}") for diagnostic in diagnostics)


@pytest.mark.parametrize("mount", ["/a", "/a:/b,/c:/d", "", ":", "/a:/b:ro:x", "/a:/b\n"])
def test_a_mount_that_pyxis_cannot_read_is_refused(mount: str) -> None:
    plan = with_slurm(named_plan(), container_image="i", container_mounts=("/x:/y", mount))
    assert codes(plan) == ([] if mount == "/a" else ["L22"])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:05", 1805),
        ("01:02:03", 3723),
        ("2-3", 2 * 86400 + 3 * 3600),
        ("1-00:30", 86400 + 1800),
        ("1-00:00:09", 86409),
        ("", None),
        ("1h", None),
        ("-1", None),
        ("1-", None),
    ],
)
def test_a_time_limit_is_read_as_slurm_reads_it(text: str, seconds: int | None) -> None:
    assert time_limit_seconds(text) == seconds


@pytest.mark.parametrize("text", ["unlimited", "INFINITE", "30", "1-00:00:00", None])
def test_a_time_limit_in_any_form_of_slurm_is_fine(text: str | None) -> None:
    assert codes(with_slurm(named_plan(), time_limit=text)) == []


@pytest.mark.parametrize("name", ["a/b", "", "a\nb"])
def test_a_job_name_must_make_a_file_name(name: str) -> None:
    plan = named_plan()
    named = replace(plan, problem=replace(plan.problem, name=name))
    assert set(codes(named)) <= {"L15", "L16"}
    assert codes(named)


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (("a", "b", "a", "d"), "L11"),
        (("a b", "b", "c", "d"), "L11"),
        (("$(x)", "b", "c", "d"), "L11"),
        (("n[1-2]", "b", "c", "d"), "L11"),
        (("a\nb", "b", "c", "d"), "L11"),
        (("-a", "b", "c", "d"), "L11"),
        (("localhost", "b", "c", "d"), "L09"),
        (("127.0.0.1", "b", "c", "d"), "L09"),
    ],
)
def test_host_names_must_stand_in_a_host_file(names: tuple[str, ...], code: str) -> None:
    assert codes(with_names(named_plan(), *names)) == [code]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("WORLD_SIZE", "8", ["L14"]),
        ("NODE_RANK", "0", ["L14"]),
        ("SLURM_NTASKS", "8", ["L14"]),
        ("CUDA_VISIBLE_DEVICES", "0", ["L14"]),
        ("A-B", "x", ["L18"]),
        ("A B", "x", ["L18"]),
        ("", "x", ["L18"]),
        ("A\n", "x", ["L18"]),
        ("UID", "0", ["L18"]),
        ("A", "x\0y", ["L16"]),
        ("A", "x\ny $(z)", []),
        ("NCCL_ALGO", "Ring", ["N14"]),
        ("NCCL_IB_DISABLE", "1", ["N04"]),
        ("NCCL_IB_DISABLE", "0", []),
        ("NCCL_NET", "Socket", ["N04"]),
        ("NCCL_SOCKET_IFNAME", "eth0", ["N02"]),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "8", ["N08"]),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "1", []),
        ("NCCL_DEBUG", "INFO", []),
    ],
)
def test_the_users_environment_must_not_break_the_rank_map(
    name: str, value: str, expected: list[str]
) -> None:
    assert codes(with_launch(named_plan(), env=((name, value),))) == expected


def test_sockets_are_right_where_there_is_no_rdma() -> None:
    plan = with_launch(with_fabric(named_plan(), "ethernet"), env=(("NCCL_IB_DISABLE", "1"),))
    assert codes(plan) == []


def test_one_address_index_for_all_hosts_of_a_roce_fabric_is_a_risk() -> None:
    plan = with_launch(with_fabric(named_plan(), "roce"), env=(("NCCL_IB_GID_INDEX", "3"),))
    assert codes(plan) == ["N06"]


def test_one_hardware_queue_costs_speed_on_blackwell() -> None:
    plan = with_launch(named_plan(), env=(("CUDA_DEVICE_MAX_CONNECTIONS", "1"),))
    on = plan.problem.cluster
    gpu = replace(on.gpu, generation="blackwell", compute_capability=(10, 0))
    newer = replace(plan.problem, cluster=replace(on, gpu=gpu))
    assert codes(replace(plan, problem=newer)) == ["N09"]


@pytest.mark.parametrize(
    ("interface", "expected"),
    [("eth0", []), ("lo", ["N01"]), ("docker0", ["N01"]), ("^lo", ["N01"]), ("a b", ["N01"])],
)
def test_the_interface_must_reach_the_other_hosts(interface: str, expected: list[str]) -> None:
    assert codes(with_launch(named_plan(), network_interface=interface)) == expected
    assert codes(with_launch(small_plan(), network_interface=interface)) == []


@pytest.mark.parametrize("port", [1, 1023, 65536])
def test_the_port_must_be_one(port: int) -> None:
    assert codes(with_launch(named_plan(), master_port=port)) == ["L20"]


def test_program_and_arguments_hold_no_nul_byte() -> None:
    assert codes(with_launch(named_plan(), program="a\0", args=("b\0",))) == ["L16", "L16"]
    assert codes(with_launch(named_plan(), program=" ")) == ["L15"]


def test_shares_of_nvlink_domains_that_slurm_may_not_keep_are_told() -> None:
    assert codes(PLANS["old Slurm"]) == ["L23"]
    spread = nvl72_plan(4, 4)
    assert codes(spread) == ["L23"]
    assert codes(with_slurm(spread, version="26.05")) == []
    assert codes(nvl72_plan(18, 4)) == []
