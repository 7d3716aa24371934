"""Environment variables that a launch file exports, compared with the network of the plan.

The variables per kind of network are written here a second time, because a verifier shares no code
with the emitters. Source: NCCL user guide, environment variables; libfabric's fi_cxi(7).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parc.backends.verifier import DerivedSetting
from parc.compiler.diagnostics import Sink
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.verify_program import report_program_change

_INFINIBAND = {"NCCL_IB_TIMEOUT": "22", "NCCL_IB_RETRY_CNT": "7"}
_BY_FABRIC: dict[str, dict[str, str]] = {
    "infiniband": _INFINIBAND,
    "roce": {
        **_INFINIBAND,
        "NCCL_IB_QPS_PER_CONNECTION": "4",
        "NCCL_IB_SPLIT_DATA_ON_QPS": "0",
    },
    "efa": {"FI_PROVIDER": "efa", "NCCL_SOCKET_IFNAME": "^docker,lo,veth"},
    "slingshot": {
        "NCCL_NET": "AWS Libfabric",
        "NCCL_NET_GDR_LEVEL": "PHB",
        "NCCL_CROSS_NIC": "1",
        "FI_PROVIDER": "cxi",
        "FI_CXI_DISABLE_HOST_REGISTER": "1",
        "FI_CXI_DEFAULT_CQ_SIZE": "131072",
        "FI_MR_CACHE_MONITOR": "userfaultfd",
        "NCCL_SOCKET_IFNAME": "hsn",
    },
}
_NVLINK_BETWEEN_HOSTS = dict.fromkeys(
    ("NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_NET_GDR_C2C"), "1"
)


@frozen
class ExportedVariable:
    """A variable that a launch file sets."""

    name: str
    value: str
    line: int


def network_variables(problem: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables that the network between hosts requires, as name -> value.

    ``problem`` is the section ``problem`` of plan.json.
    """
    cluster = problem["cluster"]
    fabric, node = cluster["fabric"], cluster["node"]
    verbs = fabric["kind"] in ("infiniband", "roce")
    found = dict(_BY_FABRIC.get(fabric["kind"], {}))
    if interface := problem["launch"].get("network_interface"):
        found |= {"NCCL_SOCKET_IFNAME": interface, "GLOO_SOCKET_IFNAME": interface}
    if verbs and node.get("nic_names"):
        # A leading = requests exact names.
        found["NCCL_IB_HCA"] = "=" + ",".join(node["nic_names"])
    if verbs and fabric.get("rails", 1) > 1:
        found["NCCL_CROSS_NIC"] = "0"
    if node["link_kind"] == "nvlink" and node["nvlink_domain"] > node["gpus"]:
        found |= _NVLINK_BETWEEN_HOSTS
    return found


def verify_required_variables(
    file: str,
    exports: Sequence[ExportedVariable],
    required: Mapping[str, str],
    user: Mapping[str, str],
    sink: Sink,
) -> None:
    """Report each required variable that is missing or has another value (A18).

    Args:
        file: path of the launch file.
        exports: variables that the launch file sets.
        required: required variables, as name -> value.
        user: variables of ``launch.env``, which may have other values than required.
        sink: receives the findings.
    """
    found = {one.name: one for one in exports}
    last = exports[-1].line if exports else 1
    for name, value in required.items():
        if name in user or (name in found and found[name].value == value):
            continue
        one = found.get(name)
        state = f"{name} is {one.value!r:.40}" if one else f"{name} is not set"
        message = f"{state}, the network of the plan needs {value!r:.40}"
        report_program_change(file, one.line if one else last, message, sink)


def read_environment_settings(
    file: str,
    exports: Sequence[ExportedVariable],
    required: Mapping[str, str],
    user: Mapping[str, str],
) -> Iterator[DerivedSetting]:
    """Yield the setting ``launch.env`` of a launch file.

    Its value contains the exported variables that are in ``user``, and those that are not in
    ``required``.
    """
    found = {one.name: one for one in exports}
    pairs = [[name, found[name].value] for name in user if name in found]
    # The last export of a repeated variable counts.
    foreign = [one for name, one in found.items() if name not in user and name not in required]
    pairs += [[one.name, one.value] for one in foreign]
    lines = [one.line for one in foreign] or [found[name].line for name in user if name in found]
    line = lines[0] if lines else 1
    yield DerivedSetting(
        "problem.launch.env", pairs, file, line, ", ".join("=".join(p) for p in pairs)
    )
