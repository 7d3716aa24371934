"""Training problem of a published measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from parc.backends.megatron.backend import Megatron
from parc.backends.megatron.traffic import MEGATRON_TRAFFIC
from parc.backends.shared.torch.traffic import (
    compiled_traffic,
    decoder_traffic,
    transformers_traffic,
    under_deepspeed,
)
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import (
    CapturedGraphs,
    Cluster,
    Goals,
    InputExchanges,
    Layout,
    Model,
    PassBytes,
    Pins,
    Problem,
    ProgramTraffic,
    RoutedBytes,
)
from parc.compiler.ir.program_memory import GradientExchange, ProgramMemory
from parc.compiler.resolve.resolve_launch import resolve_launch
from parc.compiler.resolve.resolve_problem import resolve_job
from parc.compiler.resolve.resolve_targets import Targets
from parc.compiler.spec.job_spec import JobSpec
from parc.compiler.spec.launch_spec import LaunchSpec


class PublishedProgram(Megatron):
    """Megatron, but with the sharding of torch and JAX programs at ZeRO stages 2 and 3.

    No published run uses Megatron-FSDP, so rows of these stages are from other programs.
    """

    gradient_exchange = GradientExchange()

    def training_memory_model(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of Megatron, which does not depend on the ZeRO stage here."""
        return replace(super().training_memory_model(problem), fully_sharded=None)


class NemoProgram(PublishedProgram):
    """NeMo, whose squared ReLU consists of separate kernels of torch.

    ``squared_relu`` of nemo/collections/llm/fn/activation.py calls ``relu`` and ``pow``, without
    Megatron-Core's compiler.
    """

    def program_traffic(self, problem: Problem) -> ProgramTraffic:
        """Return the memory traffic of the program's element-wise kernels."""
        traffic = super().program_traffic(problem)
        if problem.model.ffn.activation != "relu2":
            return traffic
        # Each reads one tensor and writes another. Backward: a copy, a multiplication by 2, a
        # multiplication by the gradient, and the mask of relu.
        return replace(traffic, plain=PassBytes(4.0 + 4.0, 4.0 + 4.0 + 6.0 + 6.0))


class RouterGraphs(PublishedProgram):
    """Megatron with graphs of only router and preprocessing (``cuda_graph_modules``)."""

    def captured_graphs(self, problem: Problem, layout: Layout) -> CapturedGraphs:
        """Return the CUDA graphs that a rank captures."""
        found = super().captured_graphs(problem, layout)
        return replace(found, parts=frozenset({"router", "preparation"}))


MEGATRON = PublishedProgram()
ROUTER_GRAPHS = RouterGraphs()


@dataclass(frozen=True)
class TorchProgram(PublishedProgram):
    """Program of torch, with its own element-wise kernels and copies of weights."""

    traffic: Callable[[Model], ProgramTraffic]
    """Return the memory traffic of the program that trains a model."""
    gradient_exchange: GradientExchange = PublishedProgram.gradient_exchange

    def training_memory_model(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of Megatron, but without its second gather of inputs."""
        return replace(super().training_memory_model(problem), gathers_again=False)

    def program_traffic(self, problem: Problem) -> ProgramTraffic:
        """Return the memory traffic of the program's element-wise kernels."""
        return self.traffic(problem.model)


TORCHTITAN_ROUTED = RoutedBytes(
    alone=PassBytes(42.5, 68.25), exchanged=PassBytes(42.5, 68.25), sent_once=PassBytes(32.0, 58.0)
)
"""Bytes per element of routed tokens in torchtitan until April 14, 2026 (commit 5242bdf7), which
did not compile the permutations. They were counted by running its layer of experts of November 2025
on a CPU (models/moe/moe.py and utils.py, commit 58fa181e); each element of a routed row counts as
read or written once per kernel. Forward: gather by expert (4), weight in fp32 (6 + 8 + 6), padding
(4), permutation and back (4 + 4), and addition to the output (6.5). Backward: gather of the
gradient (4), weight in fp32 with the sum of its gradients (6 + 12 + 8 + 4 + 6), padding (4),
permutation and back (4 + 8), the sum of both matrices' gradients (6), and addition to the gradient
of the input (6.25). Without expert parallelism the rows are padded too. A library that sends a
token once replaces the first gather and the last addition of either pass."""


def _compiled(_: Model) -> ProgramTraffic:
    """Return the traffic of compiled layers, in which the permutations are not compiled."""
    return replace(compiled_traffic(), routed=TORCHTITAN_ROUTED)


def _eager(_: Model) -> ProgramTraffic:
    return decoder_traffic()


def _megatron_of_2023(model: Model) -> ProgramTraffic:
    """Return the traffic of Megatron-LM's own layers, which fuse only what GPT models need.

    Rotation and gated activation consist of separate kernels of torch. RMSNorm is Apex's fused
    kernel in the forks that trained models with it (FlagScale and Megatron-LLaMA,
    megatron/model/fused_layer_norm.py; Megatron-DeepSpeed, megatron/model/__init__.py).
    """
    separate = transformers_traffic(model)
    fused = replace(MEGATRON_TRAFFIC, gated=separate.gated)
    rotates = model.position.kind == "rope"
    return replace(fused, rotation=separate.rotation) if rotates else fused


def _with_torch_norm(model: Model) -> ProgramTraffic:
    """Return the traffic of the same layers with an RMSNorm of separate kernels of torch."""
    return replace(_megatron_of_2023(model), norm=transformers_traffic(model).norm)


def _aleph_alpha_with_fused_norm(model: Model) -> ProgramTraffic:
    """Return the traffic of the library ``scaling`` (core/nn/mlp.py, column_parallel_linear.py).

    Its kernels are those of Megatron-LM in 2023, with FlashAttention's fused RMSNorm. Gate and up
    projection are two parallel matrices, and each exchanges the gradient of its input.
    """
    return replace(_megatron_of_2023(model), input_exchanges=InputExchanges(mixer=1, gated=2))


def _aleph_alpha(model: Model) -> ProgramTraffic:
    """Return the traffic of the same layers with an RMSNorm of separate kernels of torch."""
    return replace(_aleph_alpha_with_fused_norm(model), norm=transformers_traffic(model).norm)


def _internevo(_: Model) -> ProgramTraffic:
    """Return the traffic of InternEvo (internlm/model/modeling_internlm.py, metrics.py).

    Every norm reads a copy of the residual stream in fp32, and the backward pass repeats copy and
    norm even without activation checkpoints (``dropout_selective_checkpoint``). The metrics of each
    micro-batch compute the loss once more, and the accuracy and perplexity from the logits.
    """
    # Forward: a copy (2 + 4), the norm (4 + 2). Backward: both again, the gradient of the norm
    # (2 + 4 read, 4 written), its copy to 16 bit (4 + 2), and the sum with that of the residual,
    # which ``residual`` counts.
    norm = PassBytes(12.0, 28.0)
    # Loss (2), its gradient in place (2 + 2); metrics: loss (2), two maxima and the place of one
    # (2 each), subtraction and exponential (4 each), sum (2).
    logits = 6.0 + 18.0
    # Gradients of micro-batches are added in bf16: two reads and a write.
    return replace(
        MEGATRON_TRAFFIC, norm=norm, logit_bytes=logits, sum_bytes=6.0, separate_launches=True
    )


def _transformers_under_deepspeed(model: Model) -> ProgramTraffic:
    return under_deepspeed(transformers_traffic(model))


FSDP2 = TorchProgram(_compiled, GradientExchange(scatters_accumulated_format=True))
EAGER_FSDP2 = TorchProgram(_eager, GradientExchange(scatters_accumulated_format=True))
"""Program of FSDP2 without torch.compile, like the one that PARC emits."""
PROGRAMS: dict[str, PublishedProgram] = {
    "torchtitan": FSDP2,
    "kempnerforge": FSDP2,
    "automodel": FSDP2,
    "automodel-torch-attention": FSDP2,
    "megatron-2023": TorchProgram(_megatron_of_2023),
    "megatron-2023-torch-norm": TorchProgram(_with_torch_norm),  # ALCF's Megatron-DeepSpeed
    "aleph-alpha": TorchProgram(_aleph_alpha),
    "aleph-alpha-fused-norm": TorchProgram(_aleph_alpha_with_fused_norm),
    "nemo": NemoProgram(),
    "internevo": TorchProgram(_internevo),
    "transformers-fsdp": TorchProgram(transformers_traffic),
    "transformers-deepspeed": TorchProgram(_transformers_under_deepspeed),
    "transformers-pipeline": TorchProgram(_transformers_under_deepspeed),
}
"""Framework of a run -> its program, if its kernels are not the fused ones of ``MEGATRON``."""


def problem_of(name: str, model: Model, cluster: Cluster, spec: JobSpec) -> Problem:
    """Return the problem of a job whose layout is known: no memory headroom, no limits, no pins.

    Options of the job that the source does not state have the defaults of the spec.
    """
    job = resolve_job(spec, Sink())
    assert job is not None  # the batch is given in sequences, so no rule can reject it
    targets = Targets((), "megatron", (("megatron", MEGATRON.default_version),))
    return Problem(
        name=name,
        model=model,
        cluster=cluster,
        job=job,
        goals=Goals("throughput", 0.0, 0.01, "allow", ()),
        pins=Pins(),
        launch=resolve_launch(LaunchSpec(), targets, nvlink_spans_hosts=False),
        emit=targets.emit,
        framework=targets.framework,
        versions=targets.versions,
        digest="",
        calibration=(),
    )
