"""The backend ``sglang``: constants, rules, process groups and commands of the engine SGLang."""

from __future__ import annotations

from parc.backends.plain_engine import PlainEngine, scaled_context_tokens
from parc.backends.sglang.arguments import MODEL, shared_arguments
from parc.backends.sglang.defaults import default_batch
from parc.backends.sglang.environment import ALLOW_LONG, serving_environment
from parc.backends.sglang.features import LORA_FAMILIES, MTP_FAMILIES
from parc.backends.sglang.plan_checks import check_sglang
from parc.backends.sglang.processes import bootstrap_port, plan_processes
from parc.backends.sglang.rules import LAYOUT_RULES
from parc.backends.sglang.rules_experts import EXPERT_RULES
from parc.backends.shared.network import Variable
from parc.backends.shared.render import render
from parc.backends.shared.serving.check_formats import FormatSupport, check_formats
from parc.backends.shared.serving.features import supported_features
from parc.backends.shared.serving.layout_rules import POOL_RULE
from parc.backends.shared.serving.serve_script import (
    EngineProcess,
    RouterProgram,
    ServeProgram,
    Server,
    router_script,
    serve_script,
)
from parc.backends.shared.serving.server_addresses import server_addresses
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import (
    Artifact,
    Gpu,
    JobStart,
    Model,
    ServingPlan,
    ServingProblem,
)
from parc.compiler.ir.serving_plan import Service, ServingRule

PATH, ROUTER = "sglang/serve.sh", "sglang/router.sh"
VERSIONS = ("0.5.23",)
PROGRAM = "sglang.launch_server"
LOCAL = "localhost"
"""Host of the router's engines if the plan has a single host without a name."""
POOL_ROUTER = RouterProgram(
    "sglang-router", "python3 -m sglang_router.launch_router", "--pd-disaggregation"
)
# rocm_supported_quantization in srt/configs/model_config.py lacks modelopt_fp8 and gptq.
FORMATS = FormatSupport(
    "SGLang",
    "--kv-cache-dtype is auto or fp8_e4m3",
    refused_on_amd=r"^nvidia/.*-FP8$|GPTQ",
)
RULES: tuple[ServingRule, ...] = (*LAYOUT_RULES, *EXPERT_RULES, POOL_RULE)
"""All rules of SGLang, in the order in which the search counts violations."""
STRATEGIES: dict[str, str] = {
    "dp": "--attn-dp-size; replicas of engines",
    "tp": "--tp-size",
    "1f1b": "stages: --pp-size",
    "ep": "--ep-size",
    "etp": "experts split by tp x dp, without --ep-size",
}
"""Strategy of ``backends/shared/strategies.py`` -> flags that express it."""


class Sglang(PlainEngine):
    """The backend ``sglang``, an engine of serving jobs."""

    name = "sglang"
    versions = VERSIONS
    # rank = ((pp x DP + dp) x CP + cp) x TP + tp, where capital letters are sizes and lower-case
    # letters are coordinates; SGLang's own tp is DP x CP x TP (distributed/parallel_state.py,
    # initialize_model_parallel). Its groups attention_tp are the family ``tp``, and its groups
    # moe_ep the family ``ep``.
    order = "tp-cp-dp-pp-replica"
    strategies = STRATEGIES
    host_script = PATH
    # SGLang places its actors itself, so that PARC could not pin each rank to its host.
    ray_entry = None
    long_context_setting = f"{ALLOW_LONG}=1"

    def image(self, version: str, vendor: str) -> str:
        """Return the official container image for GPUs of ``vendor``; empty if there is none."""
        return f"lmsysorg/sglang:v{version}" if vendor == "nvidia" else ""

    def default_batch(self, gpu: Gpu) -> tuple[int, int]:
        """Return the default limits on ``gpu``: (concurrent requests, tokens per step)."""
        return default_batch(gpu)

    def context_tokens(self, model: Model) -> int:
        """Return the longest sequence, in tokens (get_context_length)."""
        return scaled_context_tokens(model)

    def check_formats(self, service: Service, gpu: Gpu, sink: Sink) -> None:
        """Report number formats of weights and KV cache that SGLang does not support on ``gpu``."""
        check_formats(service, gpu, FORMATS, sink)

    def service_features(self, model: Model) -> frozenset[str]:
        """Return the features that SGLang supports for ``model`` (see ``EngineTraits``)."""
        return supported_features(model, MTP_FAMILIES, LORA_FAMILIES)

    def rules(self, problem: ServingProblem) -> tuple[ServingRule, ...]:
        """Return the rules that a layout must satisfy."""
        del problem
        return RULES

    def command(self, plan: ServingPlan, executor: str) -> tuple[str, ...]:
        """Return the words of the command that starts an engine on one host."""
        del executor
        words = [word for one in shared_arguments(plan) for word in one.words]
        checkpoint = plan.problem.service.checkpoint
        return ("-m", PROGRAM, MODEL, checkpoint, *words, *plan.problem.launch.args)

    def environment(self, plan: ServingPlan) -> tuple[Variable, ...]:
        """Return (name, value, reason) of each environment variable of the SGLang processes."""
        return serving_environment(plan)

    def api_ports(self, plan: ServingPlan) -> tuple[tuple[int, int], ...]:
        """Return (node rank, port) of each API server that ``sglang/serve.sh`` starts."""
        return tuple((one.node, port) for one in plan_processes(plan) for port in one.ports)

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report parts of a plan that SGLang would reject or run slowly."""
        check_sglang(plan, sink)

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """Return ``sglang/serve.sh``, which every host runs, and a router for several engines."""
        program = ServeProgram(
            backend=self.name,
            title="SGLang",
            program=PROGRAM,
            command=f"python3 -m {PROGRAM} {MODEL}",
            address_variable="SGLANG_HOST_IP",
            environment=serving_environment(plan),
            arguments=shared_arguments(plan),
        )
        running = plan_processes(plan)
        script = serve_script(plan, program, running)
        # Requests of a pool need a router that knows both pools.
        balanced = plan.layout.replicas > 1 and plan.problem.service.setup.pool == "both"
        return (script, _router_script(plan, running)) if balanced else (script,)

    def emit_router(self, prefill: ServingPlan, decode: ServingPlan) -> Artifact:
        """Return ``router.sh``, which starts ``sglang_router`` over the engines of both pools."""
        prompts = [
            Server(one.node, port, bootstrap_port(one))
            for one in plan_processes(prefill)
            for port in one.ports
        ]
        answers = [Server(*one) for one in self.api_ports(decode)]
        return router_script(POOL_ROUTER, (prefill, decode), (prompts, answers))


def _router_script(plan: ServingPlan, running: tuple[EngineProcess, ...]) -> Artifact:
    """Return ``sglang/router.sh``, which balances requests over the API servers of all engines."""
    hosts, names = plan.placement.hosts, server_addresses(plan)
    if len(hosts) == 1 and names in ((), (hosts[0].name,)):
        names = (LOCAL,)  # serve.sh of a single host names no host either
    values = {
        "engines": plan.layout.replicas,
        "hosts": names,
        "nodes": len(hosts),
        "port": plan.problem.endpoint.router_port,
        "workers": [(one.node, port) for one in running for port in one.ports],
    }
    return Artifact(ROUTER, render("sglang", "router.sh.j2", values), True, JobStart(hosts=1))


BACKEND = Sglang()
"""The only instance; the registry imports it."""
