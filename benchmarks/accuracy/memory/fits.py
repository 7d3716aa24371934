"""Check that runs that trained are predicted to fit, and runs that ran out of memory are not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from benchmarks.accuracy.cases import Case, has_16_bit_states
from benchmarks.accuracy.memory.programs import program_of
from benchmarks.accuracy.problems import MEGATRON
from parc.backends.megatron.memory import (
    low_precision_weight_memory,
    megatron_memory,
    with_gradient_bytes,
)
from parc.backends.shared.torch.memory import fsdp2_memory
from parc.backends.torchtitan.memory import torchtitan_memory
from parc.compiler.cost.memory.peak import stage_memory
from parc.compiler.cost.setup.stages import stage_contents
from parc.compiler.ir import Layout, ProgramMemory, Recompute, StageMemory, StateBytes
from parc.compiler.resolve.resolve_kernels import cost_model_for

LOW_PRECISION = ("fp8", "mxfp8", "nvfp4")


@dataclass(frozen=True, slots=True)
class FitPrediction:
    """Predicted peak memory of one run."""

    case: Case
    peak: StageMemory

    @property
    def fits(self) -> bool:
        """True if the low end of the memory interval is within the device."""
        return self.peak.low_bytes <= device_bytes(self.case)

    @property
    def is_correct(self) -> bool:
        """True if the prediction agrees with the run.

        A run that trained may fit. The expected peak of a run that ran out of memory does not fit.
        """
        if self.case.seconds > 0:
            return self.fits
        return self.peak.total_bytes > device_bytes(self.case)


def device_bytes(case: Case) -> float:
    """Return the memory of the GPUs, which the cluster's description may state: ``96GB HBM2e``."""
    stated = re.search(r"(\d+) ?(GB|GiB) HBM", case.run.cluster)
    if stated is None:
        return case.problem.cluster.gpu.memory_bytes
    return float(stated[1]) * (1e9 if stated[2] == "GB" else 2**30)


def predict_fits(cases: Iterable[Case]) -> Iterator[FitPrediction]:
    """Yield the prediction for every case, in order."""
    for case in cases:
        cost_model, layout = cost_model_for(case.problem, MEGATRON), _layout(case)
        program, model = _program(case), case.problem.model
        stages = (
            stage_memory(
                cost_model, layout, stage_contents(model, layout.split, rank), rank, program
            )
            for rank in range(layout.pp)
        )
        peak = max(stages, key=lambda stage: stage.total_bytes)
        if "host-checkpoints" in case.run.overlap:
            # The host stores what the layers save, so the loss is the peak on the device.
            peak = replace(peak, activations_bytes=0.0)
        if "host-states" in case.run.overlap:
            peak = replace(peak, weights_bytes=0.0, gradients_bytes=0.0, optimizer_bytes=0.0)
        yield FitPrediction(case, peak)


def _layout(case: Case) -> Layout:
    """Return the layout whose memory is estimated.

    torchtitan's selective recompute chooses operators. For JAX the model lacks what XLA saves under
    a policy and where it places its buffers, so those runs are evaluated with the least that they
    can save: the inputs of their layers.
    """
    layout = case.layout
    if case.run.framework == "jax" and layout.recompute.granularity == "selective":
        return replace(layout, recompute=Recompute("full", (), "uniform", 1))
    if case.run.framework == "torchtitan" and layout.recompute.granularity == "selective":
        return replace(layout, recompute=Recompute.selective(("op",)))
    return layout


def _program(case: Case) -> ProgramMemory:
    """Return the memory model of the run's framework.

    Low-precision recipes store quantized parameters (fp8-param-gather). Those of NeMo and MLPerf
    also use 16-bit gradients (they disable grad_reduce_in_fp32), as do those of Megatron-Bridge in
    any precision. llm-foundry's loss is fused and overwrites the logits with their gradient.
    MaxText's stores an fp32 exponential and a 16-bit gradient (cross_entropy_with_logits). NeMo
    AutoModel and some users have weights, gradients and moments of 16 bits. torchtitan splits the
    loss since 0.3.
    """
    generation, precision = case.problem.cluster.generation, case.problem.job.precision
    gradient_bytes = case.problem.job.gradient_bytes
    if case.run.framework == "composer-fsdp":
        return replace(fsdp2_memory(), name="composer", loss_bytes=4.0)
    program = torchtitan_memory() if "chunked-loss" in case.run.overlap else fsdp2_memory()
    if has_16_bit_states(case.run):
        return replace(program, name="16-bit states", state=StateBytes(2.0, 2.0, 4.0))
    if program.name == "torchtitan":
        return program
    if "recomputed-exchanges" in case.run.overlap:
        compiled = " compiled" if "compiled" in case.run.overlap else ""
        return program_of(f"fsdp2{compiled} recomputed_exchanges", precision, generation)
    if case.fsdp and case.run.framework == "jax":
        return replace(fsdp2_memory(), name="maxtext", loss_bytes=6.0)
    if case.fsdp:
        return fsdp2_memory()
    if precision not in LOW_PRECISION:
        program = with_gradient_bytes(megatron_memory(precision, generation), gradient_bytes)
        return replace(program, fused_norms=case.run.framework != "jax")
    program = with_gradient_bytes(
        low_precision_weight_memory(precision, generation), gradient_bytes
    )
    if case.run.framework in ("nemo", "mlperf"):
        state = StateBytes(program.state.weight, 2.0, program.state.optimizer)
        return replace(program, name="nemo", state=state)
    return program


def summarize_fits(found: list[FitPrediction]) -> str:
    """Return a sentence with the number of correct predictions and the names of the wrong ones."""
    trained = [prediction for prediction in found if prediction.case.seconds > 0]
    stopped = [prediction for prediction in found if prediction.case.seconds <= 0]
    wrong = [prediction.case.run.id for prediction in found if not prediction.is_correct]
    fitting = sum(prediction.is_correct for prediction in trained)
    too_large = sum(prediction.is_correct for prediction in stopped)
    return (
        f"{fitting} of {len(trained)} runs that trained are predicted to fit; {too_large} of "
        f"{len(stopped)} runs that ran out of memory are predicted not to fit. Wrong predictions: "
        f"{', '.join(wrong) or 'none'}."
    )
