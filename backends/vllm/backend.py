"""vLLM: what its rules, groups and commands are."""

from __future__ import annotations

from parc.backends.shared.network import Variable
from parc.backends.vllm.arguments import engine_words
from parc.backends.vllm.checks import check_vllm
from parc.backends.vllm.defaults import default_batch
from parc.backends.vllm.environment import serving_environment
from parc.backends.vllm.legal_degrees import divisors
from parc.backends.vllm.rules import RULES
from parc.backends.vllm.script import serve_script
from parc.backends.vllm.strategies import STRATEGIES
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import (
    Artifact,
    Gpu,
    GroupFamily,
    Mesh,
    Model,
    ServingLayout,
    ServingPlan,
    ServingProblem,
)
from parc.compiler.ir.serving_rule import ServingRule

VERSIONS = ("0.33",)


class Vllm:
    """Backend ``vllm``, the engine of serving jobs."""

    name = "vllm"
    versions = VERSIONS
    default_version = "0.33"
    strategies = STRATEGIES

    def default_batch(self, gpu: Gpu) -> tuple[int, int]:
        """``--max-num-seqs`` and ``--max-num-batched-tokens`` of an API server on ``gpu``."""
        return default_batch(gpu)

    def expert_degrees(self, layout: ServingLayout) -> tuple[int, ...]:
        """1, and all ranks of a stage: vLLM derives the degree (config/parallel.py)."""
        return tuple(sorted({1, layout.tp * layout.pcp * layout.dp}))

    def cache_degrees(self, model: Model, layout: ServingLayout) -> tuple[int, ...]:
        """Ranks that would hold copies: of the latent all of tp, of a key-value head tp / heads."""
        if layout.pcp > 1:
            return (1,)
        latent = model.attention.latent is not None
        copies = layout.tp if latent else layout.tp // model.attention.kv_heads
        return tuple(divisors(copies)) or (1,)

    def rules(self, problem: ServingProblem) -> tuple[ServingRule, ...]:
        """Every rule of ``rules.py``."""
        return RULES

    def mesh(self, layout: ServingLayout) -> Mesh:
        """Rank = ((dp PP + pp) PCP + pcp) TP + tp in an engine, engines one after another.

        Source: distributed/parallel_state.py, initialize_model_parallel.
        """
        return Mesh.of(
            (
                ("tp", layout.tp),
                ("cp", layout.pcp),
                ("pp", layout.pp),
                ("dp", layout.dp),
                ("replica", layout.replicas),
            )
        )

    def families(self, problem: ServingProblem, layout: ServingLayout) -> tuple[GroupFamily, ...]:
        """Groups of ``initialize_model_parallel``; ``ep`` is all ranks of a stage."""
        columns = [
            GroupFamily("replica", "dense", ("replica",), column=True),
            GroupFamily("dp", "dense", ("dp",), column=True),
            GroupFamily("pp", "dense", ("pp",), column=True),
            GroupFamily("cp", "dense", ("cp",), column=True),
            GroupFamily("tp", "dense", ("tp",), column=True),
        ]
        experts = ("tp", "cp", "dp") if problem.model.experts is not None else ()
        if experts:
            columns.append(GroupFamily("ep", "dense", experts, column=True))
        return tuple(columns)

    def command(self, plan: ServingPlan, executor: str) -> tuple[str, ...]:
        """``serve`` and its words, without those that differ from host to host."""
        return ("serve", *engine_words(plan, executor))

    def environment(self, plan: ServingPlan) -> tuple[Variable, ...]:
        """Network, stages, and what the spec says."""
        return serving_environment(plan)

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report extra arguments, ports and steps that vLLM would refuse or regret."""
        check_vllm(plan, sink)

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """``vllm/serve.sh``, one script for every host."""
        return (serve_script(plan),)


BACKEND = Vllm()
"""The one instance."""
