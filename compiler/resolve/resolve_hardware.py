"""Resolve the GPU, node type and fabric of a cluster to complete facts.

Each part is a catalog name, a mapping of facts, or a mapping with ``base`` and changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from parc.compiler.catalog.find_generation import find_generation
from parc.compiler.catalog.library import LABELS, CatalogEntry, Library, look_up_entry
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.diagnostics.similar_names import did_you_mean
from parc.compiler.ir import Fabric, Generation, Gpu, NodeType
from parc.compiler.ir.cluster import CHANGED_SUFFIX
from parc.compiler.resolve.check_hardware import check_gpu, check_node, check_rails
from parc.compiler.spec.cluster_spec import ClusterSpec, FabricSpec, GpuSpec, NodeSpec

Part = TypeVar("Part", GpuSpec, NodeSpec, FabricSpec)

GPU_FACTS = ("vendor", "generation", "memory", "memory_gb_per_s", "peak_tflops")
NODE_FACTS = (
    "gpus_per_node",
    "nvlink_domain",
    "link_gb_per_s",
    "link_kind",
    "nics",
    "nic_speed",
    "cpu_cores",
)
FABRIC_FACTS = ("kind", "latency", "oversubscription")


class Hardware(NamedTuple):
    """GPU type, GPU generation, node type and network fabric of a cluster."""

    gpu: Gpu
    generation: Generation
    node: NodeType
    fabric: Fabric


def resolve_hardware(spec: ClusterSpec, library: Library, sink: Sink, at: str) -> Hardware | None:
    """Return the hardware of the cluster at the spec path ``at``; None after a diagnostic.

    ``cluster.gpu`` and ``cluster.fabric`` replace the GPU and the fabric of the node type.
    """
    if spec.node is None:
        _report_missing_part(sink, at, "node", _node_fix(f"{at}.node", spec.gpu))
        _check_other_parts(spec, library, sink, at)
        return None
    node_spec = _facts_of_component("nodes", spec.node, NodeSpec, library, (sink, f"{at}.node"))
    if node_spec is None:
        _check_other_parts(spec, library, sink, at)
        return None
    gpu_name = spec.gpu or node_spec.gpu
    gpu = _resolve_gpu(gpu_name, library, sink, _path_of_hardware_part(at, "gpu", spec.gpu))
    node = _resolve_node(node_spec, sink, f"{at}.node", gpu_name)
    if node is None:  # a base for the node type would set the fabric, too
        return None
    fabric = _resolve_fabric(
        spec.fabric or node_spec.fabric,
        library,
        sink,
        _path_of_hardware_part(at, "fabric", spec.fabric),
    )
    if gpu is None or fabric is None:
        return None
    consistent = check_node(gpu[0], node, sink, f"{at}.node", partial(_other_node, spec, at))
    consistent &= check_rails(node, fabric, sink, _path_of_hardware_part(at, "fabric", spec.fabric))
    return Hardware(*gpu, node, fabric) if consistent else None


def _check_other_parts(spec: ClusterSpec, library: Library, sink: Sink, at: str) -> None:
    """Report the mistakes in the GPU and in the fabric that the spec itself names."""
    if spec.gpu is not None:
        _resolve_gpu(spec.gpu, library, sink, f"{at}.gpu")
    if spec.fabric is not None:
        _resolve_fabric(spec.fabric, library, sink, f"{at}.fabric")


def _path_of_hardware_part(at: str, key: str, written: object) -> str:
    """Return the spec path at which a part of the hardware is set.

    Args:
        at: spec path of the cluster.
        key: name of the part, such as ``gpu``.
        written: value of ``key`` in the cluster section. If it is None, the node type sets the
            part.
    """
    return f"{at}.{key}" if written is not None else f"{at}.node.{key}"


def _report_missing_part(sink: Sink, at: str, key: str, fix: str) -> None:
    """Report that the cluster does not set ``key``: its node type, GPU or fabric (H05)."""
    finding = Finding(f"{at} does not set {key}", f"{key} is missing here", fix=fix)
    sink.report("H05", finding, at=at, key=True)


def _facts_of_component(
    kind: str, value: str | Part, shape: type[Part], library: Library, where: tuple[Sink, str]
) -> Part | None:
    """Return the facts of one hardware component; None after a diagnostic.

    ``value`` is the name of a catalog entry, or a mapping of facts. If the mapping has the key
    ``base``, its other keys change the catalog entry that ``base`` names.
    """
    sink, at = where
    if not isinstance(value, str) and value.base is None:
        return value
    name, at = (value, at) if isinstance(value, str) else (value.base or "", f"{at}.base")
    entry = look_up_entry(kind, name, library, sink, at)
    base = _facts_of_entry(entry, shape, library, (sink, at)) if entry else None
    if base is None or isinstance(value, str):
        return base
    return _apply_part_changes(base, value)


def _facts_of_entry(
    entry: CatalogEntry, shape: type[Part], library: Library, where: tuple[Sink, str]
) -> Part | None:
    """Return the facts of ``entry``, a file with the key ``base`` included; None after an error."""
    facts = _validate_entry(entry, shape, *where)
    if facts is None or facts.base is None:
        return facts
    # Only a catalog entry, because two files could name each other.
    names = library.names(entry.kind)
    if facts.base not in names:
        near = " or ".join(did_you_mean(facts.base, names))
        message = (
            f"{entry.label}: base: the catalog has no {LABELS[entry.kind]} {facts.base[:60]!r}"
        )
        help_text = (
            f"did you mean {near}?" if near else f"`parc catalog {entry.kind}` lists the names"
        )
        entry.report("base", Finding(message, help=help_text), *where)
        return None
    # Without a name in the file, the name shows the catalog entry, whose kernel timings apply.
    changes = facts.model_copy(update={"name": entry.facts.get("name")})
    return _facts_of_component(entry.kind, changes, shape, library, where)


def _validate_entry(entry: CatalogEntry, shape: type[Part], sink: Sink, at: str) -> Part | None:
    """Return the validated facts of ``entry``; None after an error in a file of the user (K08)."""
    try:
        # Strict validation accepts lists for tuples only if the input is JSON.
        return shape.model_validate_json(json.dumps({"name": entry.name, **entry.facts}))
    except ValidationError as error:
        for found in error.errors(include_url=False, include_input=False):
            key = ".".join(str(part) for part in found["loc"])
            entry.report(key, Finding(f"{entry.label}: {key}: {found['msg']}"), sink, at)
        return None


def _apply_part_changes(base: Part, changes: Part) -> Part:
    """Return the facts ``base`` with the keys that ``changes`` sets.

    Mappings such as peak_tflops are merged key by key.
    """
    update: dict[str, Any] = {
        key: getattr(changes, key)
        for key in sorted(changes.model_fields_set - {"base"})
        if getattr(changes, key) is not None
    }
    for key, value in update.items():
        if isinstance(value, dict):
            update[key] = {**(getattr(base, key) or {}), **value}
    if update:
        differs = ", ".join(update)
        if isinstance(base, NodeSpec):
            update = {**_changes_of_dependent_facts(base, update), **update}
        # Plans and reports must not attribute changed facts to the catalog entry.
        update.setdefault("name", f"{base.name}{CHANGED_SUFFIX}")
        update.setdefault("source", f"{base.source}; changed: {differs}")
    return base.model_copy(update=update)


def _changes_of_dependent_facts(base: NodeSpec, update: dict[str, Any]) -> dict[str, Any]:
    """Return new values for facts of ``base`` that the changes in ``update`` make wrong.

    For example, if an NVLink domain is a single host, it grows with the number of GPUs per host.
    """
    dependent: dict[str, Any] = {}
    if "nics" in update:
        dependent["nic_names"] = ()  # the spec does not show which of the NICs remain
    if "gpus_per_node" in update and base.nvlink_domain == base.gpus_per_node:
        dependent["nvlink_domain"] = update["gpus_per_node"]  # a domain that ends at the host
    if "gpus_per_node" in update and base.watts is not None and base.gpus_per_node:
        # The power of CPUs, NICs and fans is shared by the GPUs of the host type.
        dependent["watts"] = base.watts * update["gpus_per_node"] / base.gpus_per_node
    return dependent


def _other_node(spec: ClusterSpec, at: str) -> str:
    """Return the fix that replaces a node type of the catalog, which has another vendor's GPUs."""
    return _node_fix(f"{at}.node", spec.gpu) if isinstance(spec.node, str) else ""


def _node_fix(path: str, gpu: object) -> str:
    """Return the fix that sets ``path`` to a node type for hosts with ``gpu``.

    It names examples unless the catalog has exactly one node type with this GPU.
    """
    from parc.compiler.catalog.find_hardware import find_gpu, node_for_gpu, nodes_with_gpu

    known = find_gpu(gpu) if isinstance(gpu, str) else None
    if known is None:
        return f"set {path} to a node type that `parc catalog nodes` lists"
    nodes = nodes_with_gpu(known)
    if known == gpu and len(nodes) == 1:
        return f"{path}: {nodes[0]}"
    return _example_fix(path, nodes[:3] or [node_for_gpu(known)[0]])


def _example_fix(path: str, values: Sequence[str]) -> str:
    """Return a fix that `parc check --fix` does not apply, because the user must choose."""
    return f"set {path}, for example {path}: {' or '.join(values)}"


def _report_missing_facts(
    part: Part,
    facts: tuple[str, ...],
    sink: Sink,
    at: str,
    suggest_fix: Callable[[], str] | None = None,
) -> bool:
    """Report those of ``facts`` that ``part`` does not set (H05); return True if any is missing.

    The default fix is to set the first missing fact or a base.
    """
    missing = [fact for fact in facts if getattr(part, fact) in (None, {})]
    if missing:
        finding = Finding(
            message=f"{at} does not set {', '.join(missing)}",
            label=f"{len(missing)} of {len(facts)} required keys are missing",
            help="a mapping without base must set every key; with base, only the keys that differ",
            fix=suggest_fix() if suggest_fix else f"set {at}.{missing[0]}, or {at}.base",
        )
        sink.report("H05", finding, at=at)
    return bool(missing)


def _resolve_gpu(
    value: str | GpuSpec | None, library: Library, sink: Sink, at: str
) -> tuple[Gpu, Generation] | None:
    """Return the GPU and its generation; None after a diagnostic."""
    if value is None:
        cluster = at.removesuffix(".node.gpu")
        _report_missing_part(
            sink, cluster, "gpu", _example_fix(f"{cluster}.gpu", ["h100-sxm-80gb"])
        )
        return None
    spec = _facts_of_component("gpus", value, GpuSpec, library, (sink, at))
    if spec is None or _report_missing_facts(spec, GPU_FACTS, sink, at):
        return None
    generation = find_generation(spec.generation or "", library, sink, f"{at}.generation")
    if generation is None or not check_gpu(spec, generation, sink, at):
        return None
    facts = spec.model_dump()
    major, minor = re.findall(r"\d+", spec.compute_capability or "0.0")
    gpu = Gpu(
        name=spec.name or "custom",
        vendor=facts["vendor"],
        generation=generation.name,
        compute_capability=(int(major), int(minor)),
        # Data sheets give GPU memory in decimal GB.
        memory_bytes=round(facts["memory"] * 1e9),
        memory_gb_per_s=float(facts["memory_gb_per_s"]),
        peak_tflops=tuple(sorted(facts["peak_tflops"].items())),
        source=spec.source or "the spec",
        watts=spec.watts,
    )
    return gpu, generation


def _resolve_node(spec: NodeSpec, sink: Sink, at: str, gpu: object) -> NodeType | None:
    """Return the node type; None after a diagnostic. A host without NICs needs no ``nic_speed``.

    ``gpu`` is the GPU of the cluster, as the spec or the catalog states it.
    """
    required = tuple(fact for fact in NODE_FACTS if fact != "nic_speed" or spec.nics != 0)
    if _report_missing_facts(spec, required, sink, at, partial(_node_fix, f"{at}.base", gpu)):
        return None
    facts = spec.model_dump()
    return NodeType(
        name=spec.name or "custom",
        gpus=facts["gpus_per_node"],
        nvlink_domain=facts["nvlink_domain"],
        link_gb_per_s=float(facts["link_gb_per_s"]),
        link_kind=facts["link_kind"],
        nics=facts["nics"],
        nic_gbps=float(spec.nic_speed or 0),
        nic_names=spec.nic_names or (),
        cpu_cores=facts["cpu_cores"],
        source=spec.source or "the spec",
        host_memory_bytes=round(spec.host_memory * 1e9) if spec.host_memory else None,
        gpu_numa=spec.gpu_numa or (),
        gpu_nics=spec.gpu_nics or (),
        watts=spec.watts,
    )


def _resolve_fabric(
    value: str | FabricSpec | None, library: Library, sink: Sink, at: str
) -> Fabric | None:
    """Return the network fabric; None after a diagnostic."""
    if value is None:
        cluster = at.removesuffix(".node.fabric")
        fix = _example_fix(f"{cluster}.fabric", ["infiniband-ndr"])
        _report_missing_part(sink, cluster, "fabric", fix)
        return None
    spec = _facts_of_component("fabrics", value, FabricSpec, library, (sink, at))
    if spec is None or _report_missing_facts(spec, FABRIC_FACTS, sink, at):
        return None
    facts = spec.model_dump()
    return Fabric(
        name=spec.name or "custom",
        kind=facts["kind"],
        latency_seconds=facts["latency"],
        oversubscription=float(facts["oversubscription"]),
        source=spec.source or "the spec",
        rails=spec.rails or 0,
        rate_share=spec.rate_share or 0.0,
        all_to_all_rate_share=spec.all_to_all_rate_share or 0.0,
    )
