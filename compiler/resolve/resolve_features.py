"""LoRA adapters and copies of the KV cache in host memory, as settings of an engine."""

from __future__ import annotations

import re
from dataclasses import replace

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir.serving import ServingSetup, Traffic
from parc.compiler.ir.serving_features import Lora
from parc.compiler.spec.acceleration_spec import KvOffloadSpec, LoraSpec

AT = "job.lora"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
"""Names of adapters that all engines and clients accept without quotes."""
BYTES_PER_GB = 1e9
LARGEST_HIT = 0.95
"""Largest fraction of a prompt that both prefix caches together may store."""


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


def with_kv_offload(
    setup: ServingSetup, traffic: Traffic, spec: KvOffloadSpec | None, sink: Sink
) -> tuple[ServingSetup, Traffic]:
    """Return setup and traffic with the copies of the cache that ``job.kv_offload`` describes.

    Prefix hits that exceed the prompt together with those in GPU memory are an error (V34).
    """
    if spec is None:
        return setup, traffic
    if traffic.prefix_hit + spec.prefix_hit > LARGEST_HIT and traffic.trace is None:
        finding = Finding(
            f"{traffic.prefix_hit:.0%} of a prompt in GPU memory and {spec.prefix_hit:.0%} in host "
            "memory are too much",
            label=f"together at most {LARGEST_HIT:.0%}: the end of each prompt is new",
            fix=f"job.kv_offload.prefix_hit: {max(LARGEST_HIT - traffic.prefix_hit, 0):.0%}",
        )
        sink.report("V34", finding, at="job.kv_offload.prefix_hit")
    hit = 0.0 if traffic.trace is not None else spec.prefix_hit
    copies = spec.size * BYTES_PER_GB
    return replace(setup, host_cache_bytes=copies), replace(traffic, host_hit=hit)
