"""Tests of the checks that all launchers share: hosts, environment, interface, port."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.backends.launcher_findings import codes
from tests.backends.plans import (
    named_plan,
    small_plan,
    with_fabric,
    with_launch,
    with_names,
)


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
def test_host_names_must_be_valid_lines_of_a_host_file(names: tuple[str, ...], code: str) -> None:
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
        ("KEY", "$KEY", ["L31"]),
        ("KEY", "a:${OTHER}", ["L31"]),
        ("KEY", "$5 $(x) $", []),
    ],
)
def test_the_users_environment_must_not_break_the_rank_map(
    name: str, value: str, expected: list[str]
) -> None:
    assert codes(with_launch(named_plan(), env=((name, value),))) == expected


def test_sockets_are_valid_on_fabrics_without_rdma() -> None:
    plan = with_launch(with_fabric(named_plan(), "ethernet"), env=(("NCCL_IB_DISABLE", "1"),))
    assert codes(plan) == []


def test_a_gid_index_for_all_hosts_of_a_roce_fabric_gets_a_warning() -> None:
    plan = with_launch(with_fabric(named_plan(), "roce"), env=(("NCCL_IB_GID_INDEX", "3"),))
    assert codes(plan) == ["N06"]


def test_a_single_hardware_queue_gets_a_warning_on_blackwell() -> None:
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
def test_the_port_must_be_in_the_valid_range(port: int) -> None:
    assert codes(with_launch(named_plan(), master_port=port)) == ["L20"]


def test_program_and_arguments_must_not_contain_nul_bytes() -> None:
    assert codes(with_launch(named_plan(), program="a\0", args=("b\0",))) == ["L16", "L16"]
    assert codes(with_launch(named_plan(), program=" ")) == ["L15"]


@pytest.mark.parametrize("name", ["WORLD_SIZE", "SLURM_NTASKS"])
def test_a_variable_of_the_launch_cannot_come_from_the_environment(name: str) -> None:
    assert codes(with_launch(named_plan(), env_inherited=(name,))) == ["L14"]


@pytest.mark.parametrize("name", ["A-B", "a[$(touch pwned)]", "UID", ""])
def test_an_inherited_variable_must_have_a_valid_name(name: str) -> None:
    assert codes(with_launch(named_plan(), env_inherited=(name,))) == ["L18"]


def test_an_inherited_value_cannot_replace_one_that_the_framework_requires() -> None:
    plan = with_launch(named_plan(), env_inherited=("CUDA_DEVICE_MAX_CONNECTIONS",))
    assert codes(plan) == ["N08"]


@pytest.mark.parametrize(
    "line",
    [
        "module load cuda/12.8",
        "source venv/bin/activate # don't",
        "export A='x y' B=\"it's\" C=$'it\\'s' D=\\'",
        "grep x <<< 'y'; echo 'a << b' `date`",
        "ulimit -n 65536 && [[ -d /scratch ]] || exit 1\t",
    ],
)
def test_complete_commands_only_get_a_warning(line: str) -> None:
    assert codes(with_launch(named_plan(), setup=(line,))) == ["L29"]


@pytest.mark.parametrize(
    "line",
    [
        *("", "  ", "a\nb", "a\0", "a\rb", "a\u2028b", "echo 'a", 'echo "a', "echo `date"),
        *("cat << EOF", "cat <<EOF", "echo a \\", "echo \"it's", r"echo $'a\'"),
    ],
)
def test_a_command_that_would_swallow_other_lines_is_rejected(line: str) -> None:
    assert "L30" in codes(with_launch(named_plan(), setup=("true", line)))
