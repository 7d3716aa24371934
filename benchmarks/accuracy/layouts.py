"""Conversion of a run's parallel sizes to the compiler's ``Layout``."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import floor

from benchmarks.accuracy.runs import Run
from parc.backends.base import Framework
from parc.compiler.ir import (
    NO_OFFLOAD,
    NO_ZERO_PLUS,
    Layout,
    Model,
    ModelChunk,
    Pins,
    PipelineSplit,
    Problem,
    Recompute,
)
from parc.compiler.ir.layout import NO_RECOMPUTE


def recompute_of(text: str) -> Recompute:
    """Parse ``none``, ``full``, ``selective`` (attention core only) or ``selective:a+b``."""
    word, _, modules = text.partition(":")
    if word == "full":
        return Recompute("full", (), "uniform", 1)
    if word == "selective":
        return Recompute.selective(tuple(modules.split("+")) if modules else ("core_attn",))
    return NO_RECOMPUTE


def layout_of(
    run: Run, problem: Problem, framework: Framework, dp: int, micro_batch: int
) -> Layout:
    """Return the layout of ``run`` without recompute, which the caller adds."""
    tp = run.tp or 1
    vpp, split = _split(run, problem, framework)
    shard = min(run.shard or dp, dp)
    routed = problem.model.experts is not None
    return Layout(
        tp=tp,
        cp=run.cp,
        pp=run.pp,
        vpp=vpp,
        dp_replicate=dp // shard,
        dp_shard=shard,
        ep=(run.ep or 1) if routed else 1,
        etp=expert_tensor_size(run) if routed else tp,
        micro_batch=micro_batch,
        schedule="interleaved" if vpp > 1 else "1f1b",
        sequence_parallel=tp > 1 if run.sequence_parallel is None else run.sequence_parallel,
        zero_stage=1 if run.zero is None else run.zero,
        recompute=NO_RECOMPUTE,
        split=split,
        order=framework.rank_orders(problem)[0],
        cp_comm="p2p",
        cp_a2a=1,
        offload=NO_OFFLOAD,
        zero_plus=NO_ZERO_PLUS,
        cuda_graphs=False,
    )


def expert_tensor_size(run: Run) -> int:
    """Return the tensor-parallel size of the experts: the stated one, or the framework's default.

    Megatron uses ``tp`` for experts too, and the recipes of Megatron-Bridge set 1. The result is 1
    if the GPUs are not divisible by the expert mesh with ``tp``.
    """
    if run.etp:
        return run.etp
    tp = run.tp or 1
    sets_one = "Megatron-Bridge" in run.source or not run.framework.startswith(("megatron", "nemo"))
    return 1 if sets_one or run.gpus % (run.pp * (run.ep or 1) * tp) else tp


def _split(run: Run, problem: Problem, framework: Framework) -> tuple[int, PipelineSplit]:
    """Return (vpp, split) of the layers over the stages.

    Try the framework's own split first, then its split with embedding and output projection counted
    as layers. If neither exists, use vpp = 1 and give the left-over layers to the first stages.
    """
    if run.framework == "nanotron":
        return 1, balanced_split(problem.model, run.pp)
    vpp = run.vpp if run.vpp and run.pp > 1 else 1
    counted = Pins(count_embedding=True, count_loss=True)
    # 94 or 126 layers fit 4 or 8 stages only if embedding and output projection count as layers
    for variant in (problem, replace(problem, pins=counted)):
        split = framework.find_split(variant, run.pp, vpp)
        if split is not None:
            return vpp, split
    split = framework.find_split(problem, run.pp, 1) if vpp > 1 else None
    return 1, split or near_even_split(problem.model.layers, run.pp)


def balanced_split(model: Model, pp: int) -> PipelineSplit:
    """Return nanotron's split by weights, in which the output projection counts too.

    A stage ends with the layer with which the weights up to it exceed its share of all weights
    (nanotron, models/base.py, build_model).
    """
    layer = 4 * model.hidden**2 + 3 * model.ffn.size * model.hidden
    total = model.layers * layer + model.vocab * model.hidden
    ends = [min(floor(total * (stage + 1) / pp / layer) + 1, model.layers) for stage in range(pp)]
    bounds = list(pairwise([0, *ends[:-1], model.layers]))
    chunks = [
        (ModelChunk(first, end - first, stage == 0, 0, stage == pp - 1),)
        for stage, (first, end) in enumerate(bounds)
    ]
    return PipelineSplit("string", False, False, "", tuple(chunks))


def near_even_split(layers: int, pp: int) -> PipelineSplit:
    """Return a split whose stages differ by at most one layer."""
    chunks, first = [], 0
    for stage in range(pp):
        count = layers // pp + (stage < layers % pp)
        chunks.append((ModelChunk(first, count, stage == 0, 0, stage == pp - 1),))
        first += count
    return PipelineSplit("string", False, False, "", tuple(chunks))
