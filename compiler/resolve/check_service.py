"""Check the request of a serving job before any layout is evaluated."""

from __future__ import annotations

from parc.backends.base import Engine
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Gpu
from parc.compiler.ir.serving import Traffic
from parc.compiler.ir.serving_plan import Service
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.service_spec import ServingSpec

TRAINING_KEYS = {"launch.program", "cluster.calibration"}
"""Keys that both kinds of job accept, but that have a meaning only for training."""


def check_service(service: Service, engine: Engine, gpu: Gpu, sink: Sink) -> None:
    """Report V04, V22 and V24, and the number formats that the engine does not support."""
    _check_traffic(service.traffic, sink)
    engine.check_formats(service, gpu, sink)
    _check_lengths(service, engine, sink)
    _check_batch(service, sink)


def check_training_keys(spec: ServingSpec, sink: Sink) -> None:
    """Report X01 for keys that have a meaning only for training jobs."""
    written = {f"launch.{name}" for name in spec.launch.model_fields_set}
    if isinstance(spec.cluster, ClusterSpec):
        written |= {f"cluster.{name}" for name in spec.cluster.model_fields_set}
    for path in sorted(written & TRAINING_KEYS):
        finding = Finding(
            f"{path} is a key of another kind of job",
            label="for job.kind pretrain and finetune",
            help="a serving job starts its engine, which declares the constants of its estimate",
            fix=f"remove {path}",
            causes=(Cause("job.kind", "the kind of job is set here"),),
        )
        sink.report("X01", finding, at=path, key=True)


def _check_traffic(traffic: Traffic, sink: Sink) -> None:
    """Report V22 if the load is given both as a concurrency and as a rate."""
    if traffic.concurrency is None or traffic.request_rate is None:
        return
    finding = Finding(
        "the traffic is given twice: as concurrency and as request_rate",
        label="each follows from the other",
        fix="remove job.traffic.request_rate",
        causes=(Cause("job.traffic.concurrency", "given here too"),),
    )
    sink.report("V22", finding, at="job.traffic.request_rate", key=True)


def _check_lengths(service: Service, engine: Engine, sink: Sink) -> None:
    """Report V24 if max_model_len exceeds the model's context, or the requests exceed either."""
    requested, traffic = service.max_model_len, service.traffic
    model = Cause("model", f"the context length is {service.context} tokens")
    if requested is not None and requested > service.context:
        setting = engine.long_context_setting
        finding = Finding(
            f"max_model_len {requested} is greater than the derived max_model_len "
            f"({service.context})",
            label=f"{requested} > {service.context}",
            help=f"valid values: up to {service.context}"
            + (f"; {engine.name} accepts more only with {setting}" if setting else ""),
            fix=f"job.max_model_len: {service.context}",
            causes=(model,),
        )
        sink.report("V24", finding, at="job.max_model_len")
        return
    limit = service.context if requested is None else requested
    longest = int(traffic.input_tokens + traffic.output_tokens)
    if longest <= limit:
        return
    fits = requested is not None and longest <= service.context
    finding = Finding(
        f"requests of {longest} tokens exceed the maximum of {limit}",
        label=f"{traffic.input_tokens:.0f} + {traffic.output_tokens:.0f} > {limit}",
        help="the engine rejects longer prompts and cuts answers off at this length",
        fix=f"job.max_model_len: {longest}" if fits else "",
        causes=(model,)
        if requested is None
        else (Cause("job.max_model_len", f"{requested} tokens"),),
    )
    sink.report("V24", finding, at="job.traffic")


def _check_batch(service: Service, sink: Sink) -> None:
    """Report V04 if a step has fewer tokens than requests, each of which needs one."""
    setup = service.setup
    seqs, tokens = setup.max_running or 1, setup.max_batched_tokens or 1
    if tokens >= seqs:
        return
    finding = Finding(
        f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({seqs})",
        label=f"{tokens} < {seqs}: a step needs at least one token per running request",
        fix=f"job.max_num_batched_tokens: {seqs}",
        causes=(Cause("job.max_num_seqs", f"{seqs} requests"),),
    )
    sink.report("V04", finding, at="job.max_num_batched_tokens")
