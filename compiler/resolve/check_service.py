"""Check the settings of a serving job before any layout is evaluated."""

from __future__ import annotations

from parc.backends.base import Engine
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Gpu
from parc.compiler.ir.serving import Traffic
from parc.compiler.ir.serving_plan import Service
from parc.compiler.spec.service_spec import ServingSpec


def check_service(service: Service, engine: Engine, gpu: Gpu, sink: Sink) -> None:
    """Check the traffic (V22), number formats, lengths (V24) and batch size (V04) of a service.

    The engine checks the number formats, and reports them with diagnostic codes of its own.
    """
    _check_traffic(service.traffic, sink)
    engine.check_formats(service, gpu, sink)
    _check_lengths(service, engine, sink)
    _check_batch(service, sink)


def check_keys(spec: ServingSpec, sink: Sink) -> None:
    """Report keys that have no effect on a service (X01), or that its pool cannot have (V45)."""
    _report_training_keys(spec, sink)
    _check_pool(spec, sink)


def _report_training_keys(spec: ServingSpec, sink: Sink) -> None:
    """Report a key of a serving spec that has an effect only on training jobs (X01)."""
    if "program" in spec.launch.model_fields_set:
        path = "launch.program"
        finding = Finding(
            f"{path} has no effect on a serving job",
            label="this key is only for job.kind pretrain and finetune",
            help="a serving job starts the program of its engine",
            fix=f"remove {path}",
            causes=(Cause("job.kind", "the kind of job is set here"),),
        )
        sink.report("X01", finding, at=path, key=True)


def _check_pool(spec: ServingSpec, sink: Sink) -> None:
    """Report settings that the pool of a disaggregated service cannot have (V45)."""
    if spec.job.pool == "both":
        return
    if spec.job.kv_offload is not None:
        finding = Finding(
            f"the {spec.job.pool} pool cannot keep copies of its KV cache in host memory",
            label="an engine has one connector, which already transfers the cache between pools",
            fix="remove job.kv_offload",
            causes=(Cause("job.pool", f"the pool is {spec.job.pool}"),),
        )
        sink.report("V45", finding, at="job.kv_offload", key=True)
    _check_goals_of_pool(spec, sink)


def _check_goals_of_pool(spec: ServingSpec, sink: Sink) -> None:
    """Report limits on latencies that the pool of the spec does not determine (V45)."""
    for name in ("tpot", "e2e"):
        if getattr(spec.goals, name) is None:
            continue
        if spec.job.pool == "decode" and name == "tpot":
            continue
        other = {"tpot": "decode", "e2e": "both"}[name]
        finding = Finding(
            f"the {spec.job.pool} pool does not determine the latency {name}",
            label="the other pool processes a part of this time",
            help=f"set goals.{name} in the spec of the decode pool"
            if other == "decode"
            else "limit goals.ttft in both pools, and goals.tpot in the decode pool",
            fix=f"remove goals.{name}",
            causes=(Cause("job.pool", f"the pool is {spec.job.pool}"),),
        )
        sink.report("V45", finding, at=f"goals.{name}", key=True)


def _check_traffic(traffic: Traffic, sink: Sink) -> None:
    """Report traffic that sets both the concurrency and the request rate (V22)."""
    if traffic.concurrency is None or traffic.request_rate is None:
        return
    finding = Finding(
        "job.traffic sets both concurrency and request_rate",
        label="PARC computes each from the other, so set only one",
        fix="remove job.traffic.request_rate",
        causes=(Cause("job.traffic.concurrency", "the concurrency is set here"),),
    )
    sink.report("V22", finding, at="job.traffic.request_rate", key=True)


def _check_lengths(service: Service, engine: Engine, sink: Sink) -> None:
    """Report a max_model_len above the context length, or requests above max_model_len (V24).

    The length of a request is the mean prompt length plus the mean output length of the traffic,
    or that of the longest request of a trace. If max_model_len is not set, this length is compared
    with the context length of the model.
    """
    requested = service.max_model_len
    model = Cause("model", f"the context length is {service.context} tokens")
    if requested is not None and requested > service.context:
        setting = engine.long_context_setting
        finding = Finding(
            f"max_model_len {requested} exceeds the context length of the model, "
            f"{service.context} tokens",
            label=f"{requested} > {service.context} tokens",
            help=f"valid values: up to {service.context}"
            + (f"; {engine.name} accepts more only with {setting}" if setting else ""),
            # No fix: a shorter length is not what the user asked for.
            causes=(model,),
        )
        sink.report("V24", finding, at="job.max_model_len")
        return
    limit = service.context if requested is None else requested
    prompt, answer, what = _longest_request(service.traffic)
    longest = int(prompt + answer)
    if longest <= limit:
        return
    # A fix is only possible if the model itself supports requests of this length.
    fits = requested is not None and longest <= service.context
    finding = Finding(
        f"{what} of {longest} tokens (input + output) exceed the maximum of {limit}",
        label=f"{prompt:.0f} + {answer:.0f} > {limit} tokens",
        help="the engine rejects longer prompts, and cuts off answers at this length",
        fix=f"job.max_model_len: {longest}" if fits else "",
        causes=(model,)
        if requested is None
        else (Cause("job.max_model_len", f"{requested} tokens"),),
    )
    sink.report("V24", finding, at="job.traffic")


def _longest_request(traffic: Traffic) -> tuple[float, float, str]:
    """Return (prompt tokens, answer tokens, description) of the requests that must fit.

    These are requests of mean length, because the tail of a distribution has no largest length. A
    trace records every length, so the longest of its requests counts.
    """
    if traffic.trace is None or not traffic.trace.requests:
        return traffic.input_tokens, traffic.output_tokens, "requests"
    longest = max(traffic.trace.requests, key=lambda one: one.input_tokens + one.output_tokens)
    return longest.input_tokens, longest.output_tokens, "the longest requests of the trace"


def _check_batch(service: Service, sink: Sink) -> None:
    """Report if the token limit per step is below the limit of running requests (V04).

    Each running request needs at least one token per step.
    """
    setup = service.setup
    seqs, tokens = setup.max_running or 1, setup.max_batched_tokens or 1
    each = 1 + setup.draft_tokens
    if tokens >= seqs * each:
        return
    product, need = f"max_num_seqs {seqs}", "at least one token per running request"
    if each > 1:
        product = f"max_num_seqs {seqs} x {each}"
        need = f"one token and {setup.draft_tokens} draft tokens per running request"
    finding = Finding(
        f"max_num_batched_tokens {tokens} is less than {product}",
        label=f"{tokens} < {seqs * each}: a step needs {need}",
        fix=f"job.max_num_batched_tokens: {seqs * each}",
        causes=(Cause("job.max_num_seqs", f"{seqs} requests"),),
    )
    sink.report("V04", finding, at="job.max_num_batched_tokens")
