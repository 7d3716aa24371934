"""Check that the engine can express the features of a service that make it faster or larger."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.base import Engine
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Model
from parc.compiler.spec.service_spec import ServiceSpec


def check_features(job: ServiceSpec, engine: Engine, model: Model, sink: Sink) -> None:
    """Report each feature of the job that the engine does not declare for the model (V40)."""
    # A plugin that declares no features supports none.
    declared = getattr(engine, "service_features", None)
    supported = declared(model) if declared is not None else frozenset()
    for path, feature in _features(job):
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


def _features(job: ServiceSpec) -> Iterator[tuple[str, str]]:
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
