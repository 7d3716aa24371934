"""Check that the facts of a GPU, a node type and a fabric agree with each other (H07)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import get_args

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Fabric, Generation, Gpu, NodeType, Precision
from parc.compiler.spec.cluster_spec import GpuSpec

PRECISIONS: tuple[str, ...] = get_args(Precision)
MOST_GPUS_PER_NODE = 64
MOST_IN_DOMAIN = 4096
MOST_NICS = 256
MOST_CORES = 4096
MOST_GB_PER_S = 1e6
"""Bounds far above any machine: a value beyond them has a digit too many."""
_NIC_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")

Mistake = tuple[str, Finding]
"""(key of the mapping, finding about it)."""


def check_gpu(spec: GpuSpec, generation: Generation, sink: Sink, at: str) -> bool:
    """Return True if a complete GPU mapping is consistent; else report H07 at each wrong key."""
    found = [*_capability_mistakes(spec, generation, at), *_rate_mistakes(spec)]
    return _report(found, sink, at)


def check_node(gpu: Gpu, node: NodeType, sink: Sink, at: str) -> bool:
    """Return True if a node type agrees with itself and with its GPU; else report H07."""
    found = [*_count_mistakes(node), *_link_mistakes(gpu, node, at)]
    return _report(found, sink, at)


def check_rails(node: NodeType, fabric: Fabric, sink: Sink, at: str) -> bool:
    """Return True if a host's NICs are divisible by the rails of the fabric; else report H07."""
    if fabric.rails == 0 or (node.nics and node.nics % fabric.rails == 0):
        return True
    finding = Finding(
        f"{node.nics} NICs per host are not divisible by {fabric.rails} rails",
        label=f"{node.nics} % {fabric.rails} = {node.nics % fabric.rails}, must be 0",
        help="a rail is a leaf switch to which each host of a rack connects equally many NICs",
        causes=(Cause(f"{at.removesuffix('.fabric')}.node", f"{node.nics} NICs"),),
    )
    return _report([("rails", finding)], sink, at)


def _report(mistakes: Sequence[Mistake], sink: Sink, at: str) -> bool:
    for key, finding in mistakes:
        sink.report("H07", finding, at=f"{at}.{key}")
    return not mistakes


def _capability_mistakes(spec: GpuSpec, generation: Generation, at: str) -> Iterator[Mistake]:
    if spec.vendor != generation.vendor:
        message = f"{generation.name} is a generation of {generation.vendor}, not of {spec.vendor}"
        yield "vendor", Finding(message, fix=f"{at}.vendor: {generation.vendor}")
        return
    capability = spec.compute_capability
    if spec.vendor == "nvidia" and capability is None:
        message = "an NVIDIA GPU needs a compute capability"
        yield "compute_capability", Finding(message, "compute_capability is missing")
    if spec.vendor == "amd" and capability is not None:
        yield "compute_capability", Finding("an AMD GPU has no compute capability", "remove it")
    elif capability is not None and not re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,2}", capability):
        message = f"{capability[:20]!r} is not a compute capability"
        yield "compute_capability", Finding(message, fix=f'{at}.compute_capability: "9.0"')
    elif capability is not None and capability not in generation.compute_capabilities:
        valid = generation.compute_capabilities
        finding = Finding(
            f"compute capability {capability} is not one of the {generation.name} generation",
            help=f"valid values: {', '.join(valid) or 'none'}",
            fix=f'{at}.compute_capability: "{valid[0]}"' if valid else "",
        )
        yield "compute_capability", finding


def _rate_mistakes(spec: GpuSpec) -> Iterator[Mistake]:
    for precision in sorted(set(spec.peak_tflops or {}) - set(PRECISIONS)):
        message = f"{precision[:40]!r} is not a precision"
        valid = f"valid values: {', '.join(PRECISIONS)}"
        yield f"peak_tflops.{precision}", Finding(message, help=valid)
    if (spec.memory_gb_per_s or 0) > MOST_GB_PER_S:
        yield (
            "memory_gb_per_s",
            _above_bound("memory_gb_per_s", spec.memory_gb_per_s, MOST_GB_PER_S),
        )


def _count_mistakes(node: NodeType) -> Iterator[Mistake]:
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
            yield key, _above_bound(key, value, most)
    for name in node.nic_names:
        if not _NIC_NAME.fullmatch(name):
            yield (
                "nic_names",
                Finding(f"{name[:64]!r} is not a device name", help="for example mlx5_0"),
            )
    if node.nic_names and len(node.nic_names) != node.nics:
        message = f"{len(node.nic_names)} nic_names for {node.nics} nics"
        yield (
            "nic_names",
            Finding(message, "list every NIC that the job uses, or leave the key out"),
        )
    for key, values in (("gpu_numa", node.gpu_numa), ("gpu_nics", node.gpu_nics)):
        if values and len(values) != node.gpus:
            message = f"{len(values)} entries in {key} for {node.gpus} GPUs"
            yield key, Finding(message, "one entry per GPU, in device order")
    for name in node.gpu_nics:
        if not _NIC_NAME.fullmatch(name):
            yield (
                "gpu_nics",
                Finding(f"{name[:64]!r} is not a device name", help="for example mlx5_0"),
            )


def _above_bound(key: str, value: object, most: float) -> Finding:
    return Finding(f"{key} {value} is more than any machine has", f"at most {most:g}")


def _link_mistakes(gpu: Gpu, node: NodeType, at: str) -> Iterator[Mistake]:
    inside, host = node.nvlink_domain, node.gpus
    if max(inside, host) % min(inside, host):
        yield "nvlink_domain", _uneven_domain(inside, host, at)
    if node.link_kind == "pcie" and inside > 1:
        message = f"link_kind is pcie, but {inside} GPUs share an NVLink domain"
        yield "nvlink_domain", Finding(message, fix=f"{at}.nvlink_domain: 1")
    if node.link_kind != "pcie" and inside == 1 and host > 1:
        message = f"link_kind is {node.link_kind}, but each of {host} GPUs has its own domain"
        yield "link_kind", Finding(message, fix=f"{at}.link_kind: pcie")
    if (node.link_kind, gpu.vendor) in (("xgmi", "nvidia"), ("nvlink", "amd")):
        message = f"{gpu.name} is a GPU of {gpu.vendor} and has no {node.link_kind}"
        yield (
            "link_kind",
            Finding(message, causes=(Cause(f"{at.removesuffix('.node')}.gpu", "the GPU"),)),
        )


def _uneven_domain(inside: int, host: int, at: str) -> Finding:
    big, small = max(inside, host), min(inside, host)
    return Finding(
        message=f"NVLink domains of {inside} GPUs and hosts of {host} do not divide each other",
        label=f"{big} % {small} = {big % small}, must be 0",
        help="valid: a multiple of gpus_per_node (72 for trays of 4) or a divisor of it (8, 2, 1)",
        fix=f"{at}.nvlink_domain: {host}",
        causes=(Cause(f"{at}.gpus_per_node", f"{host} GPUs per host"),),
    )
