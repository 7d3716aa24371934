"""Tests of the environment of the ranks, by fabric, GPU and spec."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.backends.shared.launch_environment import launch_environment
from parc.backends.shared.network import network_environment
from parc.compiler.ir import Plan
from tests.backends.plans import (
    named_plan,
    nvl72_plan,
    small_plan,
    with_fabric,
    with_launch,
)
from tests.backends.stage import Stage


def environment(plan: Plan) -> dict[str, str]:
    return {name: value for name, value, _ in launch_environment(plan)}


def with_nics(plan: Plan, *names: str) -> Plan:
    on = plan.problem.cluster
    changed = replace(on, node=replace(on.node, nic_names=names))
    return replace(plan, problem=replace(plan.problem, cluster=changed))


@pytest.mark.parametrize(
    ("kind", "present"),
    [
        ("infiniband", {"NCCL_IB_TIMEOUT": "22", "NCCL_IB_RETRY_CNT": "7"}),
        ("roce", {"NCCL_IB_TIMEOUT": "22", "NCCL_IB_QPS_PER_CONNECTION": "4"}),
        ("efa", {"FI_PROVIDER": "efa", "NCCL_SOCKET_IFNAME": "^docker,lo,veth"}),
        ("slingshot", {"FI_PROVIDER": "cxi", "NCCL_SOCKET_IFNAME": "hsn"}),
        ("ethernet", {}),
    ],
)
def test_each_fabric_gets_its_variables(kind: str, present: dict[str, str]) -> None:
    plan = with_fabric(named_plan(), kind)
    found = environment(plan)
    assert {name: found.get(name) for name in present} == present
    if kind not in {"infiniband", "roce"}:
        assert not any(name.startswith("NCCL_IB") for name in found)


@pytest.mark.parametrize("kind", ["infiniband", "roce", "efa", "slingshot", "ethernet"])
def test_variables_tuned_by_nccl_are_not_set_and_all_others_have_a_reason(kind: str) -> None:
    plan = with_fabric(nvl72_plan(4, 4), kind)
    variables = network_environment(plan.problem.cluster, plan.problem.launch)
    names = [name for name, _, _ in variables]
    assert len(set(names)) == len(names)
    assert not {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS"} & set(names)
    assert all(why and "\n" not in why for _, _, why in variables)


def test_known_adapters_are_listed_by_exact_name() -> None:
    plan = with_nics(named_plan(), "mlx5_0", "mlx5_10")
    assert environment(plan)["NCCL_IB_HCA"] == "=mlx5_0,mlx5_10"
    assert "NCCL_IB_HCA" not in environment(with_fabric(plan, "efa"))
    assert "NCCL_IB_HCA" not in environment(named_plan())


def test_nccl_and_gloo_use_the_same_interface() -> None:
    found = environment(with_launch(named_plan(), network_interface="eth0"))
    assert found["NCCL_SOCKET_IFNAME"] == found["GLOO_SOCKET_IFNAME"] == "eth0"


def test_a_job_of_one_host_needs_no_network() -> None:
    assert not any(name.startswith("NCCL_") for name in environment(small_plan()))


def test_multi_node_nvlink_is_enabled_if_a_domain_spans_hosts() -> None:
    assert environment(nvl72_plan(4, 4))["NCCL_MNNVL_ENABLE"] == "1"
    assert "NCCL_MNNVL_ENABLE" not in environment(named_plan())


def test_amd_gets_no_unsupported_allocator_option() -> None:
    plan = named_plan()
    on = plan.problem.cluster
    amd = replace(on, gpu=replace(on.gpu, vendor="amd", generation="cdna3"))
    found = environment(replace(plan, problem=replace(plan.problem, cluster=amd)))
    assert "PYTORCH_CUDA_ALLOC_CONF" not in found
    assert "PYTORCH_CUDA_ALLOC_CONF" in environment(plan)


def test_variables_of_the_framework_are_set_and_the_user_may_override_them() -> None:
    found = launch_environment(with_launch(named_plan(), env=(("OMP_NUM_THREADS", "3"),)))
    values = {name: value for name, value, _ in found}
    assert values["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert values["OMP_NUM_THREADS"] == "3"
    assert len(found) == len(values)


def test_torchrun_gets_the_variables(stage: Stage) -> None:
    plan = with_launch(named_plan(), env=(("nodes", "9"), ("here", "a\nb"), ("E", "")))
    stage.emit(plan)
    done = stage.run("torchrun/launch.sh", NODE_RANK="1")
    assert done.returncode == 0, done.stderr
    seen = stage.environment(1)
    assert seen["NCCL_IB_TIMEOUT"] == "22"
    assert seen["E"] == ""
    assert stage.calls()[0][0] == "--nnodes=4"


@pytest.mark.parametrize(
    ("kind", "value"), [("infiniband", "0"), ("roce", "0"), ("slingshot", "1")]
)
def test_rings_stay_on_their_rail_if_the_fabric_has_rails(kind: str, value: str) -> None:
    plan = with_fabric(named_plan(), kind)
    on = plan.problem.cluster
    railed = replace(on, fabric=replace(on.fabric, rails=8))
    found = network_environment(railed, plan.problem.launch)
    assert [one for name, one, _ in found if name == "NCCL_CROSS_NIC"] == [value]
