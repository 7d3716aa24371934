"""Environment variables that the network between hosts requires, by kind of network.

Variables that would override NCCL's own tuning (NCCL_ALGO, NCCL_PROTO, numbers of channels) are
never set.
"""

from __future__ import annotations

import re

from parc.compiler.ir import Cluster, Launch

Variable = tuple[str, str, str]
"""Name, value, and the reason in one line, which emitted files print as a comment."""

_IB: tuple[Variable, ...] = (
    # NCCL user guide, environment variables: the default timeout of 20 is short for large fabrics.
    ("NCCL_IB_TIMEOUT", "22", "survives rerouting of a link: 4.096 us x 2^22 = 17 s"),
    ("NCCL_IB_RETRY_CNT", "7", "the maximum that the hardware supports"),
)
_ROCE: tuple[Variable, ...] = (
    ("NCCL_IB_QPS_PER_CONNECTION", "4", "several flows, so that ECMP uses several uplinks"),
    ("NCCL_IB_SPLIT_DATA_ON_QPS", "0", "each message uses one flow; flows alternate"),
)
_EFA: tuple[Variable, ...] = (("FI_PROVIDER", "efa", "prevents libfabric's fallback to TCP"),)
# https://github.com/HewlettPackard/shs-ccl-docs, ccl_env.sh
_SLINGSHOT: tuple[Variable, ...] = (
    ("NCCL_NET", "AWS Libfabric", "fails without the libfabric plugin, instead of using slow TCP"),
    ("NCCL_NET_GDR_LEVEL", "PHB", "GPUDirect RDMA to GPUs in the NUMA node of the NIC"),
    ("NCCL_CROSS_NIC", "1", "Slingshot is not rail-optimized"),
    ("FI_PROVIDER", "cxi", "prevents libfabric's fallback to TCP"),
    ("FI_CXI_DISABLE_HOST_REGISTER", "1", "registration deadlocks with CUDA allocation"),
    ("FI_CXI_DEFAULT_CQ_SIZE", "131072", "the default completion queue overflows in large jobs"),
    ("FI_MR_CACHE_MONITOR", "userfaultfd", "the default monitor deadlocks with CUDA allocation"),
)
# Multi-node NVLink: NCCL user guide, NCCL_MNNVL_ENABLE (2.21) and NCCL_NET_GDR_C2C (2.26).
_NVLINK_RACK: tuple[Variable, ...] = (
    ("NCCL_MNNVL_ENABLE", "1", "requires NVLink between hosts; NCCL fails without it"),
    ("NCCL_CUMEM_ENABLE", "1", "allocates memory that other hosts of the NVLink domain can map"),
    ("NCCL_NVLS_ENABLE", "1", "reductions in the NVLink switches"),
    ("NCCL_NET_GDR_C2C", "1", "GPUDirect RDMA through the CPU over C2C"),
)
_BY_KIND: dict[str, tuple[Variable, ...]] = {
    "infiniband": _IB,
    "roce": _IB + _ROCE,
    "efa": _EFA,
    "slingshot": _SLINGSHOT,
    "ethernet": (),
}
_DEFAULT_INTERFACES: dict[str, str] = {"efa": "^docker,lo,veth", "slingshot": "hsn"}
"""NCCL_SOCKET_IFNAME if the spec sets no interface: on EFA hosts a list of prefixes to avoid
(``^``), on Slingshot the prefix of the high-speed NICs."""


def network_environment(cluster: Cluster, launch: Launch) -> tuple[Variable, ...]:
    """Return the environment variables that the network of a job on several hosts requires.

    Each name occurs once.
    """
    kind = cluster.fabric.kind
    rack = _NVLINK_RACK if cluster.node.nvlink_spans_hosts else ()
    return (
        _interface_variables(kind, launch)
        + _adapter_variables(cluster)
        + _BY_KIND[kind]
        + _rail_variables(cluster)
        + rack
    )


def _rail_variables(cluster: Cluster) -> tuple[Variable, ...]:
    """Return the variable that keeps each ring of NCCL on one rail.

    Return nothing if the network is not rail-optimized, that is, if the NICs of a host are not
    connected to different leaf switches. Source: NCCL user guide, NCCL_CROSS_NIC.
    """
    if cluster.fabric.rails < 2 or cluster.fabric.kind not in {"infiniband", "roce"}:
        return ()
    return (("NCCL_CROSS_NIC", "0", "keeps each ring on one rail, so that it avoids the spine"),)


def _interface_variables(kind: str, launch: Launch) -> tuple[Variable, ...]:
    """Return the variables that select the network interface over which NCCL and Gloo connect.

    Gloo's variable is set only if the spec names an interface. The default values are prefixes, and
    Gloo accepts only exact names.
    """
    name = launch.network_interface
    if name is not None:
        why = "interface for NCCL's bootstrap on every host"
        return (
            ("NCCL_SOCKET_IFNAME", name, why),
            ("GLOO_SOCKET_IFNAME", name, "without this, Gloo may choose 127.0.0.1"),
        )
    if kind in _DEFAULT_INTERFACES:
        why = "keeps NCCL's bootstrap on interfaces that all hosts reach"
        return (("NCCL_SOCKET_IFNAME", _DEFAULT_INTERFACES[kind], why),)
    return ()


def _adapter_variables(cluster: Cluster) -> tuple[Variable, ...]:
    """Return the variable that lists the RDMA NICs of a host.

    Return nothing if the spec does not name them. The value starts with ``=``, which requests exact
    names. Without it, mlx5_1 would match mlx5_10 too.
    """
    if cluster.fabric.kind not in {"infiniband", "roce"} or not cluster.node.nic_names:
        return ()
    names = "=" + ",".join(cluster.node.nic_names)
    return (("NCCL_IB_HCA", names, "compute NICs by exact name; excludes storage NICs"),)


GLOO_NAMES = (
    "set GLOO_SOCKET_IFNAME to the full name of one interface: Gloo supports neither the start of "
    "a name nor ^, which excludes names"
)
"""Advice for a value of NCCL_SOCKET_IFNAME that Gloo cannot use."""


def gloo_interface(nccl: str) -> str:
    """Return the interface in NCCL_SOCKET_IFNAME as Gloo needs it; "" if the value names none.

    Gloo needs the full name of an interface (``eth0``). NCCL also accepts the start of a name
    (``eth``), several names, ``=eth0`` for exactly this name, and ``^lo`` for all other names.
    """
    name = nccl.removeprefix("=")
    return name if re.fullmatch(r"[A-Za-z]\w*\d[\w.-]*", name) else ""
