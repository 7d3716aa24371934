"""The backend ``vllm``: constants, rules, process groups and commands of the engine vLLM."""

from __future__ import annotations

from parc.backends.base import RayEntry
from parc.backends.plain_engine import PlainEngine, scaled_context_tokens
from parc.backends.shared.network import Variable
from parc.backends.shared.serving.check_formats import FormatSupport, check_formats
from parc.backends.shared.serving.engine_mesh import engine_families
from parc.backends.shared.serving.features import supported_features
from parc.backends.shared.serving.layout_rules import POOL_RULE
from parc.backends.shared.serving.serve_script import (
    RouterProgram,
    ServeProgram,
    Server,
    SideChannel,
    router_script,
    serve_script,
)
from parc.backends.vllm.arguments import engine_command_words, shared_arguments
from parc.backends.vllm.defaults import (
    SIDE_CHANNEL_PORT,
    SIDE_CHANNEL_STEP,
    default_batch,
    step_tokens_to_try,
)
from parc.backends.vllm.environment import ALLOW_LONG, serving_environment
from parc.backends.vllm.extra_arguments import unchunked_flag
from parc.backends.vllm.features import LORA_FAMILIES, MTP_FAMILIES
from parc.backends.vllm.plan_checks import check_vllm
from parc.backends.vllm.processes import plan_processes
from parc.backends.vllm.rules_axes import AXIS_RULES
from parc.backends.vllm.rules_experts import EXPERT_RULES
from parc.backends.vllm.rules_tensor_parallel import MOST_SHOWN_DEGREE, TENSOR_PARALLEL_RULES
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import (
    Artifact,
    Gpu,
    GroupFamily,
    Model,
    ServingLayout,
    ServingPlan,
    ServingProblem,
)
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.serving_plan import Service, ServingRule

PATH = "vllm/serve.sh"
VERSIONS = ("0.28", "0.29", "0.30", "0.31", "0.32", "0.33")
DEFAULT_VERSION = VERSIONS[-1]
FORMATS = FormatSupport("vLLM", "kv_cache_dtype must equal the model's dtype, or be fp8")
RULES: tuple[ServingRule, ...] = (*TENSOR_PARALLEL_RULES, *EXPERT_RULES, *AXIS_RULES, POOL_RULE)
"""All rules of vLLM, in the order in which the search counts violations."""
STRATEGIES: dict[str, str] = {
    "dp": "--data-parallel-size; replicas of engines",
    "tp": "--tensor-parallel-size",
    "cp-all-gather": "--prefill-context-parallel-size, --decode-context-parallel-size",
    "1f1b": "stages: --pipeline-parallel-size",
    "ep": "--enable-expert-parallel",
    "etp": "experts split by tp x dp, without --enable-expert-parallel",
}
"""Strategy of ``backends/shared/strategies.py`` -> flags that express it."""

ROUTER = RouterProgram("vllm-router", "vllm-router", "--vllm-pd-disaggregation")
SIDE_CHANNEL = SideChannel(
    "VLLM_NIXL_SIDE_CHANNEL_HOST",
    "VLLM_NIXL_SIDE_CHANNEL_PORT",
    SIDE_CHANNEL_PORT,
    SIDE_CHANNEL_STEP,
)


class Vllm(PlainEngine):
    """The backend ``vllm``, the engine of serving jobs."""

    name = "vllm"
    versions = VERSIONS
    # rank = ((dp x PP + pp) x PCP + pcp) x TP + tp, where capital letters are sizes and lower-case
    # letters are coordinates (distributed/parallel_state.py, initialize_model_parallel).
    order = "tp-cp-pp-dp-replica"
    strategies = STRATEGIES
    host_script = PATH
    ray_entry = RayEntry("vllm", "vllm.entrypoints.cli.main", "VLLM_RAY_BUNDLE_INDICES")
    long_context_setting = f"{ALLOW_LONG}=1"

    def image(self, version: str, vendor: str) -> str:
        """Return the official container image for GPUs of ``vendor``; empty if there is none."""
        name = {"nvidia": "vllm-openai", "amd": "vllm-openai-rocm"}.get(vendor)
        return f"vllm/{name}:v{version}.0" if name else ""

    def default_batch(self, gpu: Gpu) -> tuple[int, int]:
        """Return vLLM's default limits on ``gpu``: (concurrent requests, tokens per step)."""
        return default_batch(gpu)

    def step_tokens_to_try(self, problem: ServingProblem) -> tuple[int, ...]:
        """Return values of --max-num-batched-tokens to try; none if prompts are not split."""
        return () if unchunked_flag(problem) else step_tokens_to_try(problem)

    def context_tokens(self, model: Model) -> int:
        """Return the longest sequence, in tokens (_get_and_verify_max_len)."""
        return scaled_context_tokens(model)

    def check_formats(self, service: Service, gpu: Gpu, sink: Sink) -> None:
        """Report number formats of weights and KV cache that vLLM does not support on ``gpu``."""
        check_formats(service, gpu, FORMATS, sink)

    def service_features(self, model: Model) -> frozenset[str]:
        """Return the features that vLLM supports for ``model`` (see ``EngineTraits``)."""
        return supported_features(model, MTP_FAMILIES, LORA_FAMILIES)

    def decode_context_sizes(self, model: Model, layout: ServingLayout) -> tuple[int, ...]:
        """Return the valid sizes of decode context parallelism (dcp).

        dcp splits the KV cache over ranks that would otherwise store copies of the cache. With
        latent attention, these are all tensor-parallel ranks; otherwise they are groups of tp /
        kv_heads ranks.
        """
        if layout.pcp > 1:
            return (1,)
        latent = model.attention.latent is not None
        copies = layout.tp if latent else layout.tp // model.attention.kv_heads
        # ``copies`` is 0 if tp is smaller than the number of key-value heads: then no rank stores a
        # copy.
        return divisors(copies, MOST_SHOWN_DEGREE) or (1,)

    def rules(self, problem: ServingProblem) -> tuple[ServingRule, ...]:
        """Return the rules that a layout must satisfy in every version of vLLM."""
        return RULES

    def group_families(
        self, problem: ServingProblem, layout: ServingLayout
    ) -> tuple[GroupFamily, ...]:
        """Return the families of process groups that vLLM creates (initialize_model_parallel).

        The family ``ep`` exists for all models with experts, with and without expert parallelism.
        """
        return engine_families(problem.model.experts is not None)

    def command(self, plan: ServingPlan, executor: str) -> tuple[str, ...]:
        """Return the words of the command that Ray runs to start an engine.

        The words are ``serve``, the checkpoint and all flags.
        """
        return ("serve", *engine_command_words(plan, executor))

    def environment(self, plan: ServingPlan) -> tuple[Variable, ...]:
        """Return (name, value, reason) of each environment variable of the vLLM processes."""
        return serving_environment(plan)

    def api_ports(self, plan: ServingPlan) -> tuple[tuple[int, int], ...]:
        """Return (node rank, port) of each API server that ``vllm/serve.sh`` starts."""
        return tuple((one.node, port) for one in plan_processes(plan) for port in one.ports)

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report parts of a plan that vLLM would reject or run slowly."""
        check_vllm(plan, sink)

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """Return ``vllm/serve.sh``, the only emitted script; every host runs it."""
        program = ServeProgram(
            backend=self.name,
            title="vLLM",
            program="vllm serve",
            command="vllm serve",
            address_variable="VLLM_HOST_IP",
            environment=serving_environment(plan),
            arguments=shared_arguments(plan),
            side_channel=None if plan.problem.service.setup.pool == "both" else SIDE_CHANNEL,
        )
        return (serve_script(plan, program, plan_processes(plan)),)

    def emit_router(self, prefill: ServingPlan, decode: ServingPlan) -> Artifact:
        """Return ``router.sh``, which starts ``vllm-router`` over the engines of both pools."""
        servers = [[Server(*one) for one in self.api_ports(plan)] for plan in (prefill, decode)]
        return router_script(ROUTER, (prefill, decode), (servers[0], servers[1]))


BACKEND = Vllm()
"""The only instance; the registry imports it."""
