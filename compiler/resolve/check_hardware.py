"""Check that the facts of a GPU, a node type and a fabric do not contradict each other (H07)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import get_args

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Fabric, Generation, Gpu, NodeType, Precision
from parc.compiler.spec.cluster_spec import GpuSpec

PRECISIONS: tuple[str, ...] = get_args(Precision)
MOST_GPUS_PER_NODE = 64
MOST_GPUS_IN_DOMAIN = 4096
MOST_NICS = 256
MOST_CORES = 4096
MOST_GB_PER_S = 1e6
"""Upper bounds far above any real machine: a larger value is a typing error or has a wrong unit."""
# Emitted scripts contain these names (NCCL_IB_HCA), so characters that a shell would expand are not
# valid.
_NIC_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")

Mistake = tuple[str, Finding]
"""(key of the hardware mapping, finding about the value of that key)."""


def check_gpu(spec: GpuSpec, generation: Generation, sink: Sink, at: str) -> bool:
    """Return True if the facts of a GPU are consistent; otherwise report each invalid key (H07)."""
    found = [*_capability_mistakes(spec, generation, at), *_rate_mistakes(spec)]
    return _report_mistakes(found, sink, at)


def check_node(
    gpu: Gpu, node: NodeType, sink: Sink, at: str, other_node: Callable[[], str]
) -> bool:
    """Return True if the facts of a node type are consistent with each other and with its GPU.

    Otherwise each invalid key is reported (H07). ``other_node`` returns the fix that sets a node
    type for this GPU; its text is empty if the spec describes the node type itself.
    """
    found = [*_count_mistakes(node), *_link_mistakes(gpu, node, at, other_node)]
    return _report_mistakes(found, sink, at)


def check_rails(node: NodeType, fabric: Fabric, sink: Sink, at: str) -> bool:
    """Return True if the number of NICs per host is divisible by the number of rails.

    Otherwise the two numbers are reported (H07).
    """
    if fabric.rails == 0 or (node.nics and node.nics % fabric.rails == 0):
        return True
    finding = Finding(
        f"{node.nics} NICs per host are not divisible by {fabric.rails} rails",
        label=f"{node.nics} % {fabric.rails} = {node.nics % fabric.rails}, must be 0",
        help="each host of a rack connects the same number of NICs to every rail (leaf switch)",
        causes=(Cause(f"{at.removesuffix('.fabric')}.node", f"{node.nics} NICs"),),
    )
    return _report_mistakes([("rails", finding)], sink, at)


def _report_mistakes(mistakes: Sequence[Mistake], sink: Sink, at: str) -> bool:
    """Report each contradictory hardware fact (H07); return True if there is none."""
    for key, finding in mistakes:
        sink.report("H07", finding, at=f"{at}.{key}")
    return not mistakes


def _capability_mistakes(spec: GpuSpec, generation: Generation, at: str) -> Iterator[Mistake]:
    # With the wrong vendor, the other checks would only repeat the mistake.
    if spec.vendor != generation.vendor:
        message = (
            f"the vendor of generation {generation.name} is {generation.vendor}, not {spec.vendor}"
        )
        yield "vendor", Finding(message, fix=f"{at}.vendor: {generation.vendor}")
        return
    capability = spec.compute_capability
    if spec.vendor == "nvidia" and capability is None:
        message = "an NVIDIA GPU needs a compute capability"
        yield "compute_capability", Finding(message, "compute_capability is missing")
    if spec.vendor == "amd" and capability is not None:
        yield (
            "compute_capability",
            Finding("an AMD GPU has no compute capability", "remove this key"),
        )
    elif capability is not None and not re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,2}", capability):
        message = f"{capability[:20]!r} is not a compute capability"
        yield "compute_capability", Finding(message, fix=f'{at}.compute_capability: "9.0"')
    elif capability is not None and capability not in generation.compute_capabilities:
        valid = generation.compute_capabilities
        finding = Finding(
            f"no GPU of the {generation.name} generation has compute capability {capability}",
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
            _above_bound_finding("memory_gb_per_s", spec.memory_gb_per_s, MOST_GB_PER_S),
        )


def _count_mistakes(node: NodeType) -> Iterator[Mistake]:
    bounds: tuple[tuple[str, float, float], ...] = (
        ("gpus_per_node", node.gpus, MOST_GPUS_PER_NODE),
        ("nvlink_domain", node.nvlink_domain, MOST_GPUS_IN_DOMAIN),
        ("link_gb_per_s", node.link_gb_per_s, MOST_GB_PER_S),
        ("nics", node.nics, MOST_NICS),
        ("nic_speed", node.nic_gbps, MOST_GB_PER_S),
        ("cpu_cores", node.cpu_cores, MOST_CORES),
    )
    for key, value, most in bounds:
        if value > most:
            yield key, _above_bound_finding(key, value, most)
    for name in node.nic_names:
        if not _NIC_NAME.fullmatch(name):
            yield (
                "nic_names",
                Finding(f"{name[:64]!r} is not a device name", help="for example mlx5_0"),
            )
    if node.nic_names and len(node.nic_names) != node.nics:
        message = f"nic_names lists {len(node.nic_names)} NICs, but nics is {node.nics}"
        yield (
            "nic_names",
            Finding(message, "list every NIC that the job uses, or remove nic_names"),
        )
    yield from _gpu_map_mistakes(node)


def _gpu_map_mistakes(node: NodeType) -> Iterator[Mistake]:
    """Yield mistakes in the NUMA nodes and the NICs of the GPUs."""
    for key, values in (("gpu_numa", node.gpu_numa), ("gpu_nics", node.gpu_nics)):
        if values and len(values) != node.gpus:
            message = f"{key} has {len(values)} entries, but a host has {node.gpus} GPUs"
            yield key, Finding(message, "must have one entry per GPU, in device order")
    for name in node.gpu_nics:
        if not _NIC_NAME.fullmatch(name):
            yield (
                "gpu_nics",
                Finding(f"{name[:64]!r} is not a device name", help="for example mlx5_0"),
            )
    unknown = [name for name in node.gpu_nics if name not in node.nic_names]
    if unknown and node.nic_names:
        message = f"{unknown[0][:64]} is not one of the {len(node.nic_names)} NICs of a host"
        yield "gpu_nics", Finding(message, f"nic_names: {', '.join(node.nic_names)[:80]}")


def _above_bound_finding(key: str, value: object, most: float) -> Finding:
    """Return a finding about a value that is larger than on any real machine."""
    return Finding(f"{key} {value} is more than any machine has", f"must be at most {most:g}")


def _link_mistakes(
    gpu: Gpu, node: NodeType, at: str, other_node: Callable[[], str]
) -> Iterator[Mistake]:
    inside, host = node.nvlink_domain, node.gpus
    # A domain is a part of a host, or it consists of whole hosts (GB200 NVL72: 18 hosts of 4 GPUs).
    if max(inside, host) % min(inside, host):
        yield "nvlink_domain", _uneven_domain_finding(inside, host, at)
    if node.link_kind == "pcie" and inside > 1:
        message = f"link_kind is pcie, but {inside} GPUs share an NVLink domain"
        yield "nvlink_domain", Finding(message, fix=f"{at}.nvlink_domain: 1")
    if node.link_kind != "pcie" and inside == 1 and host > 1:
        message = (
            f"link_kind is {node.link_kind}, but nvlink_domain is 1: no GPU is linked to another"
        )
        yield "link_kind", Finding(message, fix=f"{at}.link_kind: pcie")
    if (node.link_kind, gpu.vendor) in (("xgmi", "nvidia"), ("nvlink", "amd")):
        message = (
            f"{gpu.name} is a GPU of vendor {gpu.vendor}, which does not support {node.link_kind}"
        )
        own = "nvlink" if gpu.vendor == "nvidia" else "xgmi"
        finding = Finding(
            message,
            label=f"its node type has the link_kind {node.link_kind}",
            help=f"valid link_kind with this GPU: {own}, pcie",
            fix=other_node() or f"{at}.link_kind: {own}",
            causes=(Cause(f"{at.removesuffix('.node')}.gpu", "the GPU"),),
        )
        yield "link_kind", finding


def _uneven_domain_finding(inside: int, host: int, at: str) -> Finding:
    big, small = max(inside, host), min(inside, host)
    return Finding(
        message=f"an NVLink domain has {inside} GPUs and a host has {host} GPUs: neither number "
        "is a multiple of the other",
        label=f"{big} % {small} = {big % small}, must be 0",
        help="valid values: multiples of gpus_per_node (such as 72 with hosts of 4 GPUs) and "
        "divisors of gpus_per_node",
        fix=f"{at}.nvlink_domain: {host}",
        causes=(Cause(f"{at}.gpus_per_node", f"{host} GPUs per host"),),
    )
