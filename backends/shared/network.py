"""The environment that the network asks for, by kind of fabric.

Tuning that NCCL does itself (NCCL_ALGO, NCCL_PROTO, channels) is left to NCCL.
"""

from __future__ import annotations

from parc.compiler.ir import Cluster, Launch

Variable = tuple[str, str, str]
"""Name, value, and why in one line."""

_IB: tuple[Variable, ...] = (
    # NCCL user guide, environment variables: the default timeout of 20 is short for large fabrics.
    ("NCCL_IB_TIMEOUT", "22", "survives a link that is rerouted: 4.096 us x 2^22 = 17 s"),
    ("NCCL_IB_RETRY_CNT", "7", "the most that the hardware counts"),
)
_ROCE: tuple[Variable, ...] = (
    ("NCCL_IB_QPS_PER_CONNECTION", "4", "more flows, so that ECMP spreads them over the uplinks"),
    ("NCCL_IB_SPLIT_DATA_ON_QPS", "0", "one message stays on one flow, flows take turns"),
)
_EFA: tuple[Variable, ...] = (("FI_PROVIDER", "efa", "libfabric must not fall back to tcp"),)
# https://github.com/HewlettPackard/shs-ccl-docs, ccl_env.sh
_SLINGSHOT: tuple[Variable, ...] = (
    ("NCCL_NET", "AWS Libfabric", "fails without the libfabric plugin, where tcp would crawl"),
    ("NCCL_NET_GDR_LEVEL", "PHB", "the NIC reads GPU memory of its own NUMA node"),
    ("NCCL_CROSS_NIC", "1", "Slingshot is not rail-optimised"),
    ("FI_PROVIDER", "cxi", "libfabric must not fall back to tcp"),
    ("FI_CXI_DISABLE_HOST_REGISTER", "1", "registration deadlocks with CUDA allocation"),
    ("FI_CXI_DEFAULT_CQ_SIZE", "131072", "the default completion queue overflows in large jobs"),
    ("FI_MR_CACHE_MONITOR", "userfaultfd", "the default monitor deadlocks with CUDA allocation"),
)
# Multi-node NVLink: NCCL user guide, NCCL_MNNVL_ENABLE (2.21) and NCCL_NET_GDR_C2C (2.26).
_NVLINK_RACK: tuple[Variable, ...] = (
    ("NCCL_MNNVL_ENABLE", "1", "NVLink reaches beyond the host: fail where it does not"),
    ("NCCL_CUMEM_ENABLE", "1", "memory that other hosts of the NVLink domain can map"),
    ("NCCL_NVLS_ENABLE", "1", "reductions in the NVLink switches"),
    ("NCCL_NET_GDR_C2C", "1", "the NIC reaches GPU memory through the CPU over C2C"),
)
_BY_KIND: dict[str, tuple[Variable, ...]] = {
    "infiniband": _IB,
    "roce": _IB + _ROCE,
    "efa": _EFA,
    "slingshot": _SLINGSHOT,
    "ethernet": (),
}
_DEFAULT_INTERFACES: dict[str, str] = {"efa": "^docker,lo,veth", "slingshot": "hsn"}
"""Where the spec names none: what to avoid on EFA hosts, the high-speed NICs of Slingshot."""


def spans_hosts(cluster: Cluster) -> bool:
    """Whether one NVLink domain holds several hosts (NVL72)."""
    return cluster.node.link_kind == "nvlink" and cluster.node.nvlink_domain > cluster.node.gpus


def network_environment(cluster: Cluster, launch: Launch) -> tuple[Variable, ...]:
    """Variables for a job of two or more hosts, each with the reason; a name occurs once."""
    kind = cluster.fabric.kind
    rack = _NVLINK_RACK if spans_hosts(cluster) else ()
    return _interfaces(kind, launch) + _adapters(cluster) + _BY_KIND[kind] + _rails(cluster) + rack


def _rails(cluster: Cluster) -> tuple[Variable, ...]:
    """NCCL user guide, NCCL_CROSS_NIC: 0 suits networks with a switch for each NIC of a host."""
    if cluster.fabric.rails < 2 or cluster.fabric.kind not in {"infiniband", "roce"}:
        return ()
    return (("NCCL_CROSS_NIC", "0", "a ring stays on its rail: one leaf switch, never the spine"),)


def _interfaces(kind: str, launch: Launch) -> tuple[Variable, ...]:
    """Bootstrap interfaces; Gloo takes names only, so it follows only where the spec gives one."""
    name = launch.network_interface
    if name is not None:
        why = "bootstrap runs over this interface on every host"
        return (
            ("NCCL_SOCKET_IFNAME", name, why),
            ("GLOO_SOCKET_IFNAME", name, "the same for Gloo, or it may pick 127.0.0.1"),
        )
    if kind in _DEFAULT_INTERFACES:
        return (("NCCL_SOCKET_IFNAME", _DEFAULT_INTERFACES[kind], "bootstrap off the wrong NICs"),)
    return ()


def _adapters(cluster: Cluster) -> tuple[Variable, ...]:
    """The compute NICs by exact name (``=``), so that mlx5_1 does not also mean mlx5_10."""
    if cluster.fabric.kind not in {"infiniband", "roce"} or not cluster.node.nic_names:
        return ()
    names = "=" + ",".join(cluster.node.nic_names)
    return (("NCCL_IB_HCA", names, "the compute NICs, by exact name: storage NICs stay out"),)
