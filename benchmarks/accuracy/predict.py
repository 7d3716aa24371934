"""Step-time predictions for cases, with the shipped parameters or with others in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.hardware_classes import class_row
from benchmarks.accuracy.runs import Run
from parc.compiler.cost.fitting import ParameterPrior
from parc.compiler.cost.kernels.scaling import SCALINGS
from parc.compiler.cost.setup.cost_model import OVERLAPPED_TP_SHARE, CostModel
from parc.compiler.cost.step.offload import host_bytes_per_second
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.ir import CudaGraphs, Efficiency, Layout, StepTime
from parc.compiler.resolve.resolve_kernels import cost_model_for

Parameters = Mapping[str, float]


def shipped(generation: str) -> dict[str, float]:
    """Return the shipped parameters of a hardware class."""
    return asdict(class_row(generation))


PRIORS: dict[str, ParameterPrior] = {
    "gemm": ParameterPrior(1.10, 0.08, 0.7, 2.5),
    "gemm_low": ParameterPrior(1.05, 0.10, 0.7, 3.0),
    "attention": ParameterPrior(1.2, 0.25, 0.3, 8.0),
    "stream": ParameterPrior(1.3, 0.25, 0.3, 8.0),
    "launch_seconds": ParameterPrior(13.5e-6, 0.4, 2e-7, 2e-4),
    "tp": ParameterPrior(0.8, 0.3, 0.05, 3.0),
    "network": ParameterPrior(0.75, 0.2, 0.1, 1.1),
    "hop_seconds": ParameterPrior(30e-6, 0.7, 2e-6, 2e-3),
    "dp_overlap": ParameterPrior(0.7, 0.3, 0.1, 1.0),
    "pp": ParameterPrior(0.6, 0.4, 0.05, 5.0),
    "step_seconds": ParameterPrior(0.02, 0.8, 1e-3, 0.5),
    "straggler": ParameterPrior(0.003, 0.8, 1e-4, 0.03),
}
"""Name -> prior (center, spread of the logarithm, minimum, maximum) of the value that all classes
share. No training run was used to choose them. A class's own value has the same spread around the
value that it replaces."""


_APPLIED: dict[str, Efficiency] = {}
"""Rows that replace the shipped ones inside ``applied``, by hardware class."""


@contextmanager
def applied(generation: str, parameters: Parameters) -> Iterator[None]:
    """Replace the shipped parameters of a class by ``parameters`` inside a ``with`` block."""
    before = _APPLIED.get(generation)
    _APPLIED[generation] = replace(before or class_row(generation), **parameters)
    try:
        yield
    finally:
        if before is None:
            del _APPLIED[generation]
        else:
            _APPLIED[generation] = before


def cost_model_of(case: Case) -> CostModel:
    """Return the cost-model tables of a case under the present parameters of its class."""
    row = _APPLIED.get(case.generation) or class_row(case.generation)
    cost_model = cost_model_for(case.problem, case.program, row)
    cost_model.efficiency = with_features(cost_model.efficiency, case.run.overlap)
    if case.problem.job.precision == "fp8":
        cost_model.scaling = SCALINGS[fp8_recipe(case.run)]
    return cost_model


def fp8_recipe(run: Run) -> str:
    """Return the key of ``SCALINGS`` for a run in fp8.

    If the run does not state a recipe, it used delayed scaling, the default before 2025. Runs of
    torchtitan scale tensors by their present values.
    """
    words = {"fp8-cs": "fp8", "fp8-rowwise": "rowwise", "fp8-blockwise": "blockwise"}
    return words.get(run.recipe, "fp8" if run.framework == "torchtitan" else "delayed")


GRAPHS: dict[str, CudaGraphs] = {
    "part-graph": True,
    "router-graph": True,
    "cuda-graph": "full_iteration",
}
"""Feature of a run -> its CUDA graphs. Of two features, the later one counts."""

TRITON_ATTENTION = 1.3
"""Time of FlashAttention in Triton, divided by that of FlashAttention-2: the lower end of 1.3 to
2.5 (arXiv:2307.08691, section 1)."""

FLAGS: dict[str, dict[str, bool]] = {
    "unfused-core": {"unfused": True},
    # Megatron-LM 3.0 (megatron/mpu/layers.py, LinearWithGradAccumulationAndAsyncAllreduce) and its
    # containers with NCCL 2.12.
    "async-linear": {
        "overlaps_tp": True,
        "overlaps_gradients": True,
        "separate_sums": False,
        "shares_first_nic": False,
    },
    "blocking-tp": {"overlaps_tp": False},  # library "scaling" of Aleph Alpha
    "whole-gradients": {"whole_gradients": True},  # the same (core/optimizer/allreduce.py)
    "flash-attention-2": {"flash_attention_2": True},
    "blocking-hops": {"blocking_hops": True},  # pipelines of DeepSpeed
    "fused-experts": {"fused_experts": True},
    "token-drop": {"fused_routing": False},
    "unfused-routing": {"fused_routing": False},
    "separate-sums": {"separate_sums": True},  # --no-gradient-accumulation-fusion
    "fused-sums": {"separate_sums": False},  # Megatron-LM since 2023, in fp16 too
}
"""Feature of a run -> flags of its efficiency row, with their values."""
FACTORS: dict[str, tuple[str, float]] = {
    "triton-attention": ("attention", TRITON_ATTENTION),
    "exposed-gradients": ("dp_overlap", 0.0),  # the source does not enable the overlap
    "tp-overlap": ("tp", OVERLAPPED_TP_SHARE),
}
"""Feature of a run -> parameter of its efficiency row, with the factor of the parameter. Of two
features with the same parameter, the later one counts."""


def with_features(row: Efficiency, words: str) -> Efficiency:
    """Return the parameters for a run with these features (``wide_words.features``)."""
    flags = {
        field: value
        for word, values in FLAGS.items()
        if word in words
        for field, value in values.items()
    }
    factors = {
        field: getattr(row, field) * factor
        for word, (field, factor) in FACTORS.items()
        if word in words
    }
    return replace(row, **flags, **factors)


def estimate_step(case: Case) -> StepTime:
    """Return the predicted terms of a step."""
    found = step_time(cost_model_of(case), layout_with_graphs(case))
    if "host-checkpoints" not in case.run.overlap:
        return found
    return replace(found, recompute_seconds=found.recompute_seconds + host_seconds(case))


def layout_with_graphs(case: Case) -> Layout:
    """Return the layout of a case with the CUDA graphs of its run.

    ``Case.layout`` has none, because no row states what their memory depends on.
    """
    graphs = [captured for word, captured in GRAPHS.items() if word in case.run.overlap]
    return replace(case.layout, cuda_graphs=graphs[-1]) if graphs else case.layout


def kernel_seconds(cost_model: CostModel, layout: Layout) -> float:
    """Return the predicted kernel times of all micro-batches of a step, without the optimizer.

    The host is assumed to launch kernels in no time, because measured sums of kernel times contain
    no gaps. ``cost_model`` must be new, and has no launch time afterwards.
    """
    cost_model.efficiency = replace(cost_model.efficiency, launch_seconds=0.0)
    time = step_time(cost_model, layout)
    return time.compute_seconds + time.recompute_seconds


def host_seconds(case: Case) -> float:
    """Return the seconds to move layer inputs to the host and back (DeepSpeed, split over tp)."""
    layout, model, job = case.layout, case.problem.model, case.problem.job
    samples = layout.micro_batch * layout.micro_batches(job.global_batch)
    kept = 2 * samples * job.sequence_length / layout.cp * model.hidden / layout.tp
    return 2 * kept * model.layers / layout.pp / host_bytes_per_second(case.problem)


def predict(cases: Sequence[Case], parameters: Parameters | None = None) -> list[float]:
    """Return seconds per step. ``parameters`` apply to the one hardware class of all ``cases``."""
    if parameters is None or not cases:
        return [estimate_step(case).total_seconds for case in cases]
    with applied(cases[0].generation, parameters):
        return [estimate_step(case).total_seconds for case in cases]
