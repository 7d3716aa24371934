"""Whether runs that are known to have trained fit, and those that ran out of memory do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from benchmarks.accuracy.cases import MEGATRON, Case
from parc.compiler.cost.memory.peak import stage_memory
from parc.compiler.cost.memory.runtime import (
    Runtime,
    StateBytes,
    fsdp2,
    megatron,
    megatron_fp8_parameters,
    with_gradients,
)
from parc.compiler.cost.setup.stages import stage_load
from parc.compiler.ir import Layout, Recompute, StageMemory
from parc.compiler.resolve.resolve_kernels import pricing_for

LOW_PRECISION = ("fp8", "mxfp8", "nvfp4")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the model says about one run."""

    case: Case
    peak: StageMemory

    @property
    def fits(self) -> bool:
        """The low end of the band is within the device."""
        return self.peak.low_bytes <= self.case.problem.cluster.gpu.memory_bytes

    @property
    def right(self) -> bool:
        """It fits where it has trained, and does not where it ran out of memory."""
        return self.fits == (self.case.seconds > 0)


def verdicts(cases: Iterable[Case]) -> Iterator[Verdict]:
    """One for every case, in their order."""
    for case in cases:
        pricing, layout = pricing_for(case.problem, MEGATRON), _layout(case)
        runtime, model = _runtime(case), case.problem.model
        stages = (
            stage_memory(pricing, layout, stage_load(model, layout.split, rank), rank, runtime)
            for rank in range(layout.pp)
        )
        peak = max(stages, key=lambda stage: stage.total_bytes)
        if "host-checkpoints" in case.run.overlap:
            # What the layers keep lies on the host; the loss is the device's peak.
            peak = replace(peak, activations_bytes=0.0)
        yield Verdict(case, peak)


def _layout(case: Case) -> Layout:
    """torchtitan's selective recompute chooses operators.

    What XLA keeps under a policy, and where it plans its buffers, is not modelled: such runs are
    judged by the least that they can keep, the inputs of their layers.
    """
    layout = case.layout
    if case.run.framework == "jax" and layout.recompute.granularity == "selective":
        return replace(layout, recompute=Recompute("full", (), "uniform", 1))
    if case.run.framework == "torchtitan" and layout.recompute.granularity == "selective":
        return replace(layout, recompute=Recompute("selective", ("op",)))
    return layout


def _runtime(case: Case) -> Runtime:
    """The program that the run's framework starts.

    Recipes in low precision keep quantised parameters (fp8-param-gather), those of NeMo and of
    MLPerf also 16-bit gradients (grad_reduce_in_fp32 is off in them), as those of Megatron-Bridge
    do in any. llm-foundry's loss is fused and writes its gradient over the logits.
    """
    generation, precision = case.problem.cluster.generation, case.problem.job.precision
    gradient_bytes = case.problem.job.gradient_bytes
    if case.run.framework == "composer-fsdp":
        return replace(fsdp2(), name="composer", loss_bytes=4.0)
    if case.fsdp:
        return fsdp2()
    if precision not in LOW_PRECISION:
        runtime = with_gradients(megatron(precision, generation), gradient_bytes, precision)
        return replace(runtime, fused_norms=case.run.framework != "jax")
    runtime = with_gradients(
        megatron_fp8_parameters(precision, generation), gradient_bytes, precision
    )
    if case.run.framework in ("nemo", "mlperf"):
        state = StateBytes(runtime.state.weight, 2.0, runtime.state.optimizer)
        return replace(runtime, name="nemo", state=state)
    return runtime


def sentence(found: list[Verdict]) -> str:
    """The count of right verdicts, and who was wrong."""
    trained = [verdict for verdict in found if verdict.case.seconds > 0]
    stopped = [verdict for verdict in found if verdict.case.seconds <= 0]
    wrong = ", ".join(verdict.case.run.id for verdict in found if not verdict.right) or "none"
    return (
        f"{sum(verdict.right for verdict in trained)} of {len(trained)} runs that have trained "
        f"are predicted to fit, {sum(verdict.right for verdict in stopped)} of {len(stopped)} "
        f"that ran out of memory are not; wrong: {wrong}."
    )
