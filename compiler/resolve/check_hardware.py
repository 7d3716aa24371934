"""What the facts of a GPU and of a node type must keep among themselves (H07)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Fabric, Gpu, NodeType, Precision
from parc.compiler.spec.cluster_spec import GpuSpec

PRECISIONS: tuple[str, ...] = get_args(Precision)
MOST_GPUS_PER_NODE = 64
MOST_IN_DOMAIN = 4096
MOST_NICS = 256
MOST_CORES = 4096
MOST_GB_PER_S = 1e6
"""Bounds far over any machine, so that a slip of a digit does not pass for one."""
_NIC_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")

Broken = tuple[str, Finding]
"""(key of the mapping, what is wrong)."""


def check_gpu(spec: GpuSpec, sink: Sink, at: str) -> bool:
    """Whether a complete GPU mapping is consistent; H07 at the key that is not."""
    return _report(_broken_gpu(spec, at), sink, at)


def check_node(gpu: Gpu, node: NodeType, sink: Sink, at: str) -> bool:
    """Whether a node type is consistent, with itself and with its GPU; H07 where it is not."""
    found = [*_broken_counts(node), *_broken_link(gpu, node, at)]
    return _report(iter(found), sink, at)


def check_rails(node: NodeType, fabric: Fabric, sink: Sink, at: str) -> bool:
    """Whether a host's NICs can be dealt to the rails of the fabric; H07 where they cannot."""
    if fabric.rails == 0 or (node.nics and node.nics % fabric.rails == 0):
        return True
    finding = Finding(
        f"{node.nics} NICs a host on {fabric.rails} rails",
        label=f"{node.nics} % {fabric.rails} = {node.nics % fabric.rails}, must be 0",
        help="a rail is a leaf switch that every host of a rack has equally many NICs on",
        causes=(Cause(f"{at.removesuffix('.fabric')}.node", f"{node.nics} NICs"),),
    )
    return _report(iter([("rails", finding)]), sink, at)


def _report(broken: Iterator[Broken], sink: Sink, at: str) -> bool:
    found = list(broken)
    for key, finding in found:
        sink.report("H07", finding, at=f"{at}.{key}")
    return not found


def _broken_gpu(spec: GpuSpec, at: str) -> Iterator[Broken]:
    capability = spec.compute_capability
    if spec.vendor == "nvidia" and capability is None:
        finding = Finding("an NVIDIA GPU has a compute capability", "compute_capability is missing")
        yield "compute_capability", finding
    if spec.vendor == "amd" and capability is not None:
        yield "compute_capability", Finding("an AMD GPU has no compute capability", "remove it")
    if capability is not None and not re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,2}", capability):
        message = f"{capability[:20]!r} is no compute capability"
        yield "compute_capability", Finding(message, fix=f'{at}.compute_capability: "9.0"')
    for precision in sorted(set(spec.peak_tflops or {}) - set(PRECISIONS)):
        message = f"no precision is called {precision[:40]!r}"
        legal = f"legal: {', '.join(PRECISIONS)}"
        yield f"peak_tflops.{precision}", Finding(message, help=legal)
    if (spec.memory_gb_per_s or 0) > MOST_GB_PER_S:
        yield "memory_gb_per_s", _too_much("memory_gb_per_s", spec.memory_gb_per_s, MOST_GB_PER_S)


def _broken_counts(node: NodeType) -> Iterator[Broken]:
    bounds: tuple[tuple[str, float, float], ...] = (
        ("gpus_per_node", node.gpus, MOST_GPUS_PER_NODE),
        ("nvlink_domain", node.nvlink_domain, MOST_IN_DOMAIN),
        ("link_gb_per_s", node.link_gb_per_s, MOST_GB_PER_S),
        ("nics", node.nics, MOST_NICS),
        ("nic_speed", node.nic_gbps, MOST_GB_PER_S),
        ("cpu_cores", node.cpu_cores, MOST_CORES),
    )
    for key, value, most in bounds:
        if value > most:
            yield key, _too_much(key, value, most)
    for name in node.nic_names:
        if not _NIC_NAME.fullmatch(name):
            yield "nic_names", Finding(f"{name[:64]!r} is no device name", help="such as mlx5_0")
    if node.nic_names and len(node.nic_names) != node.nics:
        message = f"{len(node.nic_names)} nic_names for {node.nics} nics"
        yield "nic_names", Finding(message, "name every NIC that the job uses, or none")
    for key, values in (("gpu_numa", node.gpu_numa), ("gpu_nics", node.gpu_nics)):
        if values and len(values) != node.gpus:
            message = f"{len(values)} entries in {key} for {node.gpus} GPUs"
            yield key, Finding(message, "one for every GPU, in device order")
    for name in node.gpu_nics:
        if not _NIC_NAME.fullmatch(name):
            yield "gpu_nics", Finding(f"{name[:64]!r} is no device name", help="such as mlx5_0")


def _too_much(key: str, value: object, most: float) -> Finding:
    return Finding(f"{key} {value} is more than any machine has", f"at most {most:g}")


def _broken_link(gpu: Gpu, node: NodeType, at: str) -> Iterator[Broken]:
    inside, host = node.nvlink_domain, node.gpus
    if max(inside, host) % min(inside, host):
        yield "nvlink_domain", _uneven_domain(inside, host, at)
    if node.link_kind == "pcie" and inside > 1:
        message = f"link_kind pcie, and yet {inside} GPUs in an NVLink domain"
        yield "nvlink_domain", Finding(message, fix=f"{at}.nvlink_domain: 1")
    if node.link_kind != "pcie" and inside == 1 and host > 1:
        message = f"{host} GPUs with {node.link_kind}, and yet each is alone in its domain"
        yield "link_kind", Finding(message, fix=f"{at}.link_kind: pcie")
    if (node.link_kind, gpu.vendor) in (("xgmi", "nvidia"), ("nvlink", "amd")):
        message = f"{gpu.name} is made by {gpu.vendor}, which has no {node.link_kind}"
        yield (
            "link_kind",
            Finding(message, causes=(Cause(f"{at.removesuffix('.node')}.gpu", "the GPU"),)),
        )


def _uneven_domain(inside: int, host: int, at: str) -> Finding:
    big, small = max(inside, host), min(inside, host)
    return Finding(
        message=f"NVLink domains of {inside} GPUs do not fit hosts of {host}",
        label=f"{big} % {small} = {big % small}, must be 0",
        help="a multiple of gpus_per_node (72 over trays of 4), or a divisor of it (8, 2, 1)",
        fix=f"{at}.nvlink_domain: {host}",
        causes=(Cause(f"{at}.gpus_per_node", f"{host} GPUs a host"),),
    )
