"""The backend ``tensorrt-llm``: constants, rules, process groups and commands of TensorRT-LLM."""

from __future__ import annotations

from parc.backends.plain_engine import PlainEngine, scaled_context_tokens
from parc.backends.shared.network import Variable
from parc.backends.shared.render import render
from parc.backends.shared.serving.check_formats import FormatSupport, check_formats
from parc.backends.shared.serving.serve_script import ServeProgram, serve_script
from parc.backends.tensorrt_llm.arguments import (
    CONFIG_FLAG,
    NAME,
    config_text,
    shared_arguments,
)
from parc.backends.tensorrt_llm.defaults import MOST_REQUESTS, MOST_TOKENS
from parc.backends.tensorrt_llm.environment import serving_environment
from parc.backends.tensorrt_llm.plan_checks import check_tensorrt_llm
from parc.backends.tensorrt_llm.processes import plan_processes
from parc.backends.tensorrt_llm.rules import RULES
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import (
    Artifact,
    Gpu,
    Model,
    ServingPlan,
    ServingProblem,
)
from parc.compiler.ir.serving_plan import Service, ServingRule

SCRIPT, START, CONFIG = f"{NAME}/serve.sh", f"{NAME}/start.sh", f"{NAME}/config.yaml"
VERSIONS = ("1.0.0", "1.1.0", "1.2.0", "1.2.1")
PROGRAM = "trtllm-serve"
FORMATS = FormatSupport(
    "TensorRT-LLM",
    "kv_cache_config.dtype is auto or fp8",
    capabilities={
        "bf16": (8, 0),
        "fp16": (8, 0),
        "fp8": (8, 9),
        "int4": (8, 0),
        "nvfp4": (10, 0),
        "mxfp4": (9, 0),
    },
    quantizes=False,
    vendor="nvidia",
    for_other_vendors=("vllm", "sglang"),
)
"""Sources: docs/source/features/quantization.md, table of hardware support."""
STRATEGIES: dict[str, str] = {
    "dp": "enable_attention_dp; replicas of engines",
    "tp": "--tp_size",
    "1f1b": "stages: --pp_size",
    "ep": "--ep_size",
    "etp": "experts split by tp x dp, without --ep_size",
}
"""Strategy of ``backends/shared/strategies.py`` -> settings that express it."""


class TensorrtLlm(PlainEngine):
    """The backend ``tensorrt-llm``, an engine of serving jobs."""

    name = NAME
    versions = VERSIONS
    # rank = (pp x CP + cp) x TP + tp (mapping.py, class Mapping), where capital letters are sizes
    # and lower-case letters are coordinates. With attention data parallelism, the coordinate tp of
    # TensorRT-LLM is the data-parallel rank. Its groups moe_ep are the family ``ep``.
    order = "tp-cp-dp-pp-replica"
    strategies = STRATEGIES
    host_script = SCRIPT
    # MPI starts the ranks of TensorRT-LLM, so that Ray could not pin each rank to its host.
    ray_entry = None

    def image(self, version: str, vendor: str) -> str:
        """Return the official container image for GPUs of ``vendor``; empty if there is none."""
        return f"nvcr.io/nvidia/tensorrt-llm/release:{version}" if vendor == "nvidia" else ""

    def default_batch(self, gpu: Gpu) -> tuple[int, int]:
        """Return the default limits on any GPU: (concurrent requests, tokens per step)."""
        return MOST_REQUESTS, MOST_TOKENS

    def context_tokens(self, model: Model) -> int:
        """Return the longest sequence, in tokens (_infer_max_seq_len)."""
        return scaled_context_tokens(model)

    def check_formats(self, service: Service, gpu: Gpu, sink: Sink) -> None:
        """Report number formats of weights and KV cache that are not supported on ``gpu``."""
        check_formats(service, gpu, FORMATS, sink)

    def service_features(self, model: Model) -> frozenset[str]:
        """Return no features: PARC does not plan speculative decoding for TensorRT-LLM."""
        del model
        return frozenset()

    def rules(self, problem: ServingProblem) -> tuple[ServingRule, ...]:
        """Return the rules that a layout must satisfy."""
        del problem
        return RULES

    def command(self, plan: ServingPlan, executor: str) -> tuple[str, ...]:
        """Return the words of the command that starts an engine on one host."""
        del executor
        words = [word for one in shared_arguments(plan) for word in one.words]
        checkpoint, extra = plan.problem.service.checkpoint, plan.problem.launch.args
        return ("serve", checkpoint, *words, *extra, CONFIG_FLAG, CONFIG)

    def environment(self, plan: ServingPlan) -> tuple[Variable, ...]:
        """Return (name, value, reason) of each environment variable of the processes."""
        return serving_environment(plan)

    def api_ports(self, plan: ServingPlan) -> tuple[tuple[int, int], ...]:
        """Return (node rank, port) of each API server that ``serve.sh`` starts."""
        return tuple((one.node, port) for one in plan_processes(plan) for port in one.ports)

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report parts of a plan that TensorRT-LLM would reject."""
        check_tensorrt_llm(plan, sink)

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """Return ``serve.sh``, which every host runs, and the files that it needs.

        These are ``start.sh``, which starts one engine, and ``config.yaml``.
        """
        program = ServeProgram(
            backend=self.name,
            title="TensorRT-LLM",
            program=PROGRAM,
            command='bash "${BASH_SOURCE[0]%serve.sh}start.sh"',
            address_variable="",
            environment=serving_environment(plan),
            arguments=shared_arguments(plan),
            exports_hosts=True,
        )
        return (
            Artifact(CONFIG, config_text(plan)),
            serve_script(plan, program, plan_processes(plan)),
            Artifact(START, render("tensorrt_llm", "start.sh.j2", {}), True),
        )


BACKEND = TensorrtLlm()
"""The only instance; the registry imports it."""
