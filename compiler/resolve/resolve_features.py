"""Features of a service that make it faster or larger: checks, and settings of the engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from parc.backends.base import Engine, OptionalFeatures
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Model, NodeType
from parc.compiler.ir.serving import ServingSetup, Traffic
from parc.compiler.ir.serving_features import Lora
from parc.compiler.spec.service_spec import KvOffloadSpec, LoraSpec, ServiceSpec

AT = "job.lora"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
"""Names of adapters that all engines and clients accept without quotes."""
BYTES_PER_GB = 1e9
LARGEST_HIT = 0.95
"""Largest fraction of a prompt that both prefix caches together may store."""


def check_features(job: ServiceSpec, engine: Engine, model: Model, sink: Sink) -> None:
    """Report each feature of the job that the engine does not declare for the model (V40)."""
    supported = (
        engine.service_features(model) if isinstance(engine, OptionalFeatures) else frozenset[str]()
    )
    for path, feature in _used_features(job):
        if feature in supported:
            continue
        section = feature.partition(":")[0]
        same = sorted(one for one in supported if one.partition(":")[0] == section)
        valid = ", ".join(one.partition(":")[2] or one for one in same) or "none"
        finding = Finding(
            f"{engine.name} does not support {feature.replace(':', ' ')} for {model.name}",
            label=f"the backend of {engine.name} declares no such feature for {model.family}",
            help=f"supported by {engine.name} for this model: {valid}",
            fix=f"remove {section_path(path)}",
            causes=(Cause("model", f"family {model.family}"),),
        )
        sink.report("V40", finding, at=path)


def section_path(path: str) -> str:
    """Return the path of the section of ``job`` that contains ``path``."""
    return ".".join(path.split(".")[:2])


def _used_features(job: ServiceSpec) -> Iterator[tuple[str, str]]:
    """Yield (spec path, name of the feature) for each feature that the job uses."""
    if job.pool != "both":
        yield "job.pool", f"pool:{job.pool}"
    if job.speculative is not None:
        yield "job.speculative.method", f"speculative:{job.speculative.method}"
    if job.lora is not None:
        yield "job.lora", "lora"
    if job.kv_offload is not None:
        yield "job.kv_offload", "kv_offload"


def check_prefix_caching(job: ServiceSpec, sink: Sink) -> None:
    """Report prefix hits, or copies of prefixes, of a job without a prefix cache (V34)."""
    if job.kv_offload is not None:
        finding = Finding(
            "job.kv_offload has no effect without a prefix cache",
            label="engines look up copies in host memory by the prefix of a prompt",
            fix="remove job.kv_offload",
            causes=(Cause("job.prefix_caching", "prefix caching is turned off here"),),
        )
        sink.report("V34", finding, at="job.kv_offload", key=True)
    if not job.traffic.prefix_hit:
        return
    finding = Finding(
        f"job.prefix_caching is false, but job.traffic.prefix_hit is {job.traffic.prefix_hit:.0%}",
        label="without a prefix cache, the engine computes all tokens of each prompt",
        fix="remove job.traffic.prefix_hit",
        causes=(Cause("job.prefix_caching", "prefix caching is turned off here"),),
    )
    sink.report("V34", finding, at="job.traffic.prefix_hit")


def resolve_lora(spec: LoraSpec | None, sink: Sink) -> Lora | None:
    """Return the adapters that ``job.lora`` lists; None without any, or after an error (V44)."""
    if spec is None:
        return None
    if not spec.adapters:
        finding = Finding(
            "job.lora.adapters is empty",
            label="list at least one adapter",
            fix=f"{AT}.adapters: {{mine: /models/my-adapter}}",
        )
        sink.report("V44", finding, at=f"{AT}.adapters")
        return None
    for name, checkpoint in spec.adapters.items():
        if not _NAME.fullmatch(name) or "\n" in checkpoint or not checkpoint:
            finding = Finding(
                f"{name[:60]!r}: {checkpoint[:60]!r} is not a valid adapter",
                label="a name has letters, digits and . _ / -, and starts with a letter or digit; "
                "a checkpoint is one line of text",
            )
            sink.report("V44", finding, at=f"{AT}.adapters")
    count = len(spec.adapters)
    active = count if spec.active == "auto" else spec.active
    if active > count:
        finding = Finding(
            f"job.lora.active is {active}, but adapters lists {count}",
            label=f"{active} > {count}: memory for the others would stay unused",
            fix=f"{AT}.active: {count}",
        )
        sink.report("V44", finding, at=f"{AT}.active")
    return Lora(tuple(spec.adapters.items()), active, spec.rank)


def _check_host_memory(setup: ServingSetup, node: NodeType, sink: Sink) -> None:
    """Report copies of the KV cache on hosts whose memory is unknown (R15)."""
    if node.host_memory_bytes is not None:
        return
    finding = Finding(
        f"each data-parallel rank needs {setup.host_cache_bytes / BYTES_PER_GB:,.4g} GB of host "
        f"memory for copies of its KV cache, but the host memory of {node.name} is unknown",
        label="PARC cannot check that the copies of all ranks of a host fit",
        fix="cluster.node.host_memory: 2000GB",
    )
    sink.report("R15", finding, at="job.kv_offload.size")


def with_kv_offload(
    setup: ServingSetup, traffic: Traffic, spec: KvOffloadSpec | None, node: NodeType, sink: Sink
) -> tuple[ServingSetup, Traffic]:
    """Return setup and traffic with the copies of the cache that ``job.kv_offload`` describes.

    Prefix hits that exceed the prompt together with those in GPU memory are an error (V34), and an
    unknown memory of the host is a warning (R15).
    """
    if spec is None or setup.pool != "both":  # a pool cannot have such copies (V45)
        return setup, traffic
    if traffic.prefix_hit + spec.prefix_hit > LARGEST_HIT and traffic.trace is None:
        finding = Finding(
            f"prefix hits of {100 * traffic.prefix_hit:.0f} % in GPU memory and "
            f"{100 * spec.prefix_hit:.0f} % in host memory exceed {100 * LARGEST_HIT:.0f} % of a "
            "prompt",
            label="the end of each prompt is new, so it is in neither memory",
            fix=f"job.kv_offload.prefix_hit: {max(LARGEST_HIT - traffic.prefix_hit, 0):.0%}",
        )
        sink.report("V34", finding, at="job.kv_offload.prefix_hit")
    hit = 0.0 if traffic.trace is not None else spec.prefix_hit
    setup = replace(setup, host_cache_bytes=spec.size * BYTES_PER_GB)
    _check_host_memory(setup, node, sink)
    return setup, replace(traffic, host_hit=hit)
