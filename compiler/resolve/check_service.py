"""Whether what is served goes together, before any layout is looked at."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Gpu
from parc.compiler.ir.serving_plan import Service
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.service_spec import ServiceSpec
from parc.compiler.spec.serving_spec import ServingSpec

# vllm/platforms/interface.py (bf16); kernels of 8-bit and 4-bit weights fall back to Marlin, whose
# least compute capability is that of fp16 tensor cores with asynchronous copies
LEAST_CAPABILITY = {
    "bf16": (8, 0),
    "fp16": (7, 0),
    "fp8": (8, 0),
    "int4": (7, 5),
    "nvfp4": (8, 0),
}
TRAINING_KEYS = {"launch.program", "cluster.calibration"}
ALLOW_LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


def check_service(job: ServiceSpec, service: Service, gpu: Gpu, sink: Sink) -> None:
    """Report R03, R04, V04, V22 and V24, each at the key that the user wrote."""
    _check_traffic(job, sink)
    _check_formats(job, service, gpu, sink)
    _check_lengths(service, sink)
    _check_batch(service, sink)


def check_training_keys(spec: ServingSpec, sink: Sink) -> None:
    """X01 where a key that both kinds of job share means something to training alone."""
    written = {f"launch.{name}" for name in spec.launch.model_fields_set}
    if isinstance(spec.cluster, ClusterSpec):
        written |= {f"cluster.{name}" for name in spec.cluster.model_fields_set}
    for path in sorted(written & TRAINING_KEYS):
        finding = Finding(
            f"{path} is a key of another kind of job",
            label="for job.kind pretrain and finetune",
            help="a job that serves starts its engine, and is priced by constants of its own",
            fix=f"remove {path}",
            causes=(Cause("job.kind", "the kind of job is said here"),),
        )
        sink.report("X01", finding, at=path, key=True)


def _check_traffic(job: ServiceSpec, sink: Sink) -> None:
    traffic = job.traffic
    if traffic.concurrency is None or traffic.request_rate is None:
        return
    finding = Finding(
        "the traffic is given twice: as concurrency and as request_rate",
        label="one of the two follows from the other",
        fix="remove job.traffic.request_rate",
        causes=(Cause("job.traffic.concurrency", "the other one"),),
    )
    sink.report("V22", finding, at="job.traffic.request_rate", key=True)


def _check_formats(job: ServiceSpec, service: Service, gpu: Gpu, sink: Sink) -> None:
    need = LEAST_CAPABILITY[job.precision]
    if gpu.vendor == "nvidia" and gpu.compute_capability < need:
        have = ".".join(map(str, gpu.compute_capability))
        legal = [
            name for name, least in LEAST_CAPABILITY.items() if gpu.compute_capability >= least
        ]
        finding = Finding(
            f"vLLM has no kernels for {job.precision} weights on {gpu.name}",
            label=f"compute capability {have} < {need[0]}.{need[1]}",
            help=f"legal on this GPU: {', '.join(legal) or 'none'}",
            fix=f"job.precision: {legal[-1]}" if legal else "",
            causes=(Cause("cluster.gpu", "the GPU comes from here"),),
        )
        sink.report("R03", finding, at="job.precision")
    if job.quantize and job.precision != "fp8":
        finding = Finding(
            f"vLLM cannot quantise to {job.precision} while it loads",
            label="--quantization on a 16-bit checkpoint: fp8 alone",
            help="other formats come with the checkpoint: remove quantize",
            fix="job.precision: fp8",
            causes=(Cause("job.precision", job.precision),),
        )
        sink.report("V06", finding, at="job.quantize")
    kv, own = service.setup.kv, "fp16" if job.precision == "fp16" else "bf16"
    if kv not in ("fp8", own):
        finding = Finding(
            f"the cache cannot be {kv} where activations are {own}",
            label="vLLM: kv_cache_dtype must equal the model's dtype, or be fp8",
            help="legal: auto, fp8",
            fix="job.kv_precision: auto",
            causes=(Cause("job.precision", job.precision),),
        )
        sink.report("R04", finding, at="job.kv_precision")


def _check_lengths(service: Service, sink: Sink) -> None:
    """V24: what is asked for against the model's context, and requests against both."""
    asked, traffic = service.max_model_len, service.traffic
    model = Cause("model", f"the model was made for {service.context} tokens")
    if asked is not None and asked > service.context:
        finding = Finding(
            f"max_model_len {asked} is greater than the derived max_model_len ({service.context})",
            label=f"{asked} > {service.context}",
            help=f"legal: up to {service.context}; vLLM starts with more only under {ALLOW_LONG}=1",
            fix=f"job.max_model_len: {service.context}",
            causes=(model,),
        )
        sink.report("V24", finding, at="job.max_model_len")
        return
    room = service.context if asked is None else asked
    longest = int(traffic.input_tokens + traffic.output_tokens)
    if longest > room:
        causes = (model,) if asked is None else (Cause("job.max_model_len", f"{asked} tokens"),)
        finding = Finding(
            f"requests of {longest} tokens are longer than the {room} that one may have",
            label=f"{traffic.input_tokens:.0f} + {traffic.output_tokens:.0f} > {room}",
            help="vLLM refuses longer prompts, and cuts answers off at the limit",
            fix=f"job.max_model_len: {longest}" if asked and longest <= service.context else "",
            causes=causes,
        )
        sink.report("V24", finding, at="job.traffic")


def _check_batch(service: Service, sink: Sink) -> None:
    setup = service.setup
    seqs, tokens = setup.max_running or 1, setup.max_batched_tokens or 1
    if tokens < seqs:
        finding = Finding(
            f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs "
            f"({seqs})",
            label=f"{tokens} < {seqs}: a step could not hold one token a request",
            fix=f"job.max_num_batched_tokens: {max(tokens, seqs)}",
            causes=(Cause("job.max_num_seqs", f"{seqs} requests"),),
        )
        sink.report("V04", finding, at="job.max_num_batched_tokens")
