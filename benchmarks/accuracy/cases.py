"""Conversion of a published run to a problem and a layout that the cost model can evaluate.

Values that the source does not state are filled by these rules, in this order. Each use is counted.

- ``vpp``: 1; also 1 if the stated value does not divide the layers of a stage.
- ``tp``: 1 (one row of a data-parallel sweep).
- ``etp``: tp, the default of Megatron; 1 in recipes of Megatron-Bridge, which set it, and if the
  GPUs are not divisible otherwise.
- ``zero``: 1, the distributed optimizer, which is the default of the frameworks' recipes; 0 for
  Megatron on Volta and Ampere, which did not have it yet.
- ``sequence_parallel``: on if tp > 1.
- gradient reduction: 32 bit; 16 bit in the performance recipes of NeMo and Megatron-Bridge, and in
  frameworks whose programs reduce 16-bit gradients (``REDUCE_IN_16_BIT``).
- ``recompute``: the cheapest level whose expected memory fits the device.
- ``micro_batch``: the one of 1, 2, 4, 8 that PARC predicts to be fastest among those that fit.
- ``global_batch``: 16 micro-batches per replica; such a row is scored on tokens/s.

NeMo AutoModel trains weights in bf16, so that the moments of torch.optim.Adam are in bf16 too. Two
more facts about its runs are part of their rows. Its load balancer for benchmarks
(FakeBalancedGate, components/moe/layers.py) sends each token to consecutive experts, so that the
models of these runs (``-local-routing``) have a group of experts for each choice. Its pipelines run
once per accumulation step, so that a row with pipelines is one such step, with its share of the
time (tier B).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property

from benchmarks.accuracy.hardware_classes import class_row
from benchmarks.accuracy.layouts import expert_tensor_size, layout_of, recompute_of
from benchmarks.accuracy.problems import (
    EAGER_FSDP2,
    FSDP2,
    MEGATRON,
    PROGRAMS,
    ROUTER_GRAPHS,
    PublishedProgram,
    problem_of,
)
from benchmarks.accuracy.resolve_runs import Resolver
from benchmarks.accuracy.runs import Run
from parc.compiler.cost.counts.flops import model_flops
from parc.compiler.cost.memory.peak import peak_stage
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.ir import Cluster, Layout, Model, Problem
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.search.enumerate_layouts import recompute_levels
from parc.compiler.spec.job_spec import JobSpec

ACCUMULATION = 16
MICRO_BATCHES = (1, 2, 4, 8)
STACKS = {
    "composer-fsdp": "torch-native",
    "torchtitan": "torch-native",
    "fms-fsdp": "torch-native",
    "kempnerforge": "torch-native",
    "automodel-torch-attention": "torch-native",
    "internevo": "torch-eager",
    "transformers-fsdp": "torch-eager",
    "transformers-deepspeed": "torch-eager",
    "transformers-pipeline": "torch-eager",
    "megatron-2023": "megatron-local",
    "megatron-2023-torch-norm": "megatron-local",
    "aleph-alpha": "megatron-local",
    "aleph-alpha-fused-norm": "megatron-local",
    "megatron-core": "transformer-engine",
    "nanotron": "nanotron",
    "jax": "jax",
}
"""Framework of a run -> stack of the cost model; other frameworks use transformer-engine.

Runs of Megatron-LM from 2023 on do not have the classes of its older runs: ``megatron-core`` runs
Transformer Engine, and ``megatron-2023`` its own kernels with FlashAttention, for which no run is
fitted."""


def stack_of(run: Run, generation: str) -> str:
    """Return the software class of a run.

    Runs of Megatron and NeMo on Volta and Ampere are from before 2023, or use no FlashAttention.
    BigScience has a separate class, because it trained with a fork of Megatron (ALiBi, embedding
    norm, its own bf16 optimizer). Programs of torch without torch.compile have the class of the
    programs that PARC emits without it.
    """
    old = run.framework in ("megatron-lm", "megatron-deepspeed", "nemo")
    if old and generation in ("volta", "ampere"):
        return "bigscience" if run.cluster.startswith("Jean Zay") else "unfused"
    stack = STACKS.get(run.framework, "transformer-engine")
    return "torch-eager" if stack == "torch-native" and "eager" in run.overlap else stack


REDUCE_IN_16_BIT = (
    "composer-fsdp",
    "fms-fsdp",
    "internevo",
    "aleph-alpha",
    "aleph-alpha-fused-norm",
)
"""Frameworks whose programs reduce gradients in bf16: llm-foundry with ``mixed_precision: PURE``
(scripts/train/benchmarking/submit_benchmarks.py), fms-fsdp (policies/mixed_precision.py, bfSixteen)
and InternEvo, whose gradients have the format of the weights. The library of Aleph Alpha trains 13B
parameters on GPUs of 80 GB without model parallelism, where gradients in fp32 do not fit; that it
reduces them in fp32 (core/optimizer/allreduce.py) is not modeled."""


@dataclass(frozen=True)  # without slots, so that the FLOPs can be cached
class Case:
    """Published run with the problem and layout that the cost model needs."""

    run: Run
    problem: Problem
    layout: Layout
    seconds: float
    """Measured step time; 0 if the run ran out of memory."""
    imputed: tuple[str, ...]

    @property
    def program(self) -> PublishedProgram:
        """Program of the run, with its kernels and its sharding."""
        if "router-graph" in self.run.overlap:
            return ROUTER_GRAPHS
        found = PROGRAMS.get(self.run.framework, MEGATRON)
        return EAGER_FSDP2 if found is FSDP2 and "eager" in self.run.overlap else found

    @property
    def group(self) -> str:
        """Line of the report: GPU, precision and model type, ``h100-sxm-80gb fp8 dense``."""
        return f"{self.problem.cluster.gpu.name} {self.run.precision} {self.kind}"

    @property
    def kind(self) -> str:
        """``dense`` or ``MoE``."""
        return "MoE" if self.problem.model.experts else "dense"

    @property
    def generation(self) -> str:
        """Hardware class whose parameters the prediction uses."""
        generation = self.problem.cluster.gpu.generation
        return f"{generation}/{stack_of(self.run, generation)}"

    @property
    def width(self) -> str:
        """Widths of the model; models that differ only in depth count as one in refits."""
        model = self.problem.model
        experts = model.experts.count if model.experts else 0
        return f"{model.hidden}/{model.ffn.size}/{model.attention.heads}/{experts}"

    @cached_property
    def flops(self) -> float:
        """Model FLOPs per step, without recompute."""
        job = self.problem.job
        tokens = job.global_batch * job.sequence_length
        return model_flops(self.problem.model, tokens, job.sequence_length)

    @property
    def scored(self) -> bool:
        """True if the step time of this run is part of the error statistics."""
        return bool(self.seconds) and self.run.tier != "C"

    @property
    def fsdp(self) -> bool:
        """True if gradients or parameters are sharded over the data-parallel ranks."""
        return self.layout.zero_stage >= 2


@dataclass
class Cases:
    """Cases with counts of the assumed values and of the rows that were left out."""

    cases: list[Case] = field(default_factory=list)
    imputed: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)


def make_cases(runs: tuple[Run, ...]) -> Cases:
    """Return a case for every run that the cost model can express."""
    resolver, made = Resolver(), Cases()
    for run in runs:
        model, cluster = resolver.model(run), resolver.cluster(run)
        if model is None or cluster is None:
            made.left_out["model or cluster unknown"] += 1
            continue
        case = _case(run, model, cluster)
        if case is None:
            made.left_out["GPUs are not divisible by the layout"] += 1
            continue
        made.cases.append(case)
        made.imputed.update(case.imputed)
    return made


def _case(run: Run, model: Model, cluster: Cluster) -> Case | None:
    tp = run.tp or 1
    # Dense and expert meshes cover the same GPUs, so both products must divide their number.
    dp, rest = divmod(run.gpus, tp * run.cp * run.pp)
    routed = run.pp * (run.ep or 1) * expert_tensor_size(run)
    if rest or not dp or (model.experts and run.gpus % routed):
        return None
    missing = ("tp", "zero", "sequence_parallel", "recompute", "micro_batch", "global_batch")
    imputed = [name for name in missing if getattr(run, name) is None]
    if run.vpp is None and run.pp > 1:
        imputed.append("vpp")
    sizes = MICRO_BATCHES if run.micro_batch is None else (run.micro_batch,)
    options = [_case_with_micro_batch(run, model, cluster, dp, size) for size in sizes]
    options = [option for option in options if option.layout.micro_batches(_batch(option)) >= 1]
    if not options:
        return None
    chosen = options[0] if len(options) == 1 else min(options, key=_fit_and_speed)
    return replace(chosen, imputed=tuple(imputed))


def _batch(case: Case) -> int:
    return case.problem.job.global_batch


def _case_with_micro_batch(
    run: Run, model: Model, cluster: Cluster, dp: int, micro_batch: int
) -> Case:
    """Return the case with this micro-batch size, and the cheapest recompute if none is stated."""
    batch = run.global_batch or ACCUMULATION * micro_batch * dp
    problem = _problem(run, model, cluster, batch)
    layout = layout_of(run, problem, MEGATRON, dp, micro_batch)
    # Megatron of 2021 and 2022 had no distributed optimizer yet.
    if run.zero is None and stack_of(run, cluster.gpu.generation) == "unfused":
        layout = replace(layout, zero_stage=0)
    if run.recompute is None:
        layout = _cheapest_recompute(problem, layout)
    else:
        layout = replace(layout, recompute=recompute_of(run.recompute))
    tokens = batch * run.sequence
    seconds = run.step_seconds or (
        tokens / (run.tokens_per_s_per_gpu * run.gpus) if run.tokens_per_s_per_gpu else 0.0
    )
    return Case(run, problem, layout, seconds, ())


def _cheapest_recompute(problem: Problem, layout: Layout) -> Layout:
    """Return the first recompute level whose expected memory fits, or the last one."""
    cost_model = cost_model_for(problem, MEGATRON)
    for level in recompute_levels(problem, MEGATRON):
        layout = replace(layout, recompute=level)
        if peak_stage(cost_model, layout).total_bytes <= problem.cluster.gpu.memory_bytes:
            return layout
    return layout


def _fit_and_speed(case: Case) -> tuple[bool, float]:
    """Return the sort key (does not fit, seconds per sequence) under the shipped parameters."""
    cost_model = cost_model_for(case.problem, case.program, class_row(case.generation))
    fits = peak_stage(cost_model, case.layout).total_bytes <= case.problem.cluster.gpu.memory_bytes
    return (not fits, step_time(cost_model, case.layout).total_seconds / _batch(case))


def _problem(run: Run, model: Model, cluster: Cluster, batch: int) -> Problem:
    # Megatron-LM 3.0 fuses the accumulation of gradients only if they are summed in fp32
    # (megatron/arguments.py). PARC's fp16 has 16-bit sums, so that such runs are read as bf16.
    precision = "bf16" if "async-linear" in run.overlap else run.precision
    spec = JobSpec(
        sequence_length=run.sequence,
        global_batch=batch,
        precision=precision,  # type: ignore[arg-type]  # the table contains only these words
        moe_dispatcher="deepep" if "deep-ep" in run.overlap else "alltoall",
        moe_overlap="ep-overlap" in run.overlap,
        gradient_precision="bf16" if _reduces_in_16_bit(run) else "fp32",
        moment_precision="bf16" if has_16_bit_states(run) else "fp32",
    )
    return problem_of(run.id, model, cluster, spec)


def has_16_bit_states(run: Run) -> bool:
    """Return True for programs whose weights are in bf16, and so the moments of torch's Adam."""
    return run.framework.startswith("automodel") or "16-bit-states" in run.overlap


def _reduces_in_16_bit(run: Run) -> bool:
    """Return True for the performance recipes of Megatron-Bridge and NeMo, and for some frameworks.

    NeMo sets grad_reduce_in_fp32 to False (recipes with performance_mode) or grad_sync_dtype to
    bf16 (NVIDIA/dgxc-benchmarking, nemotron and nemo_megatron; AI-Hypercomputer/gpu-recipes).
    """
    recipes = ("dgxc-benchmarking", "gpu-recipes")
    recipe = run.framework == "nemo" and any(name in run.source for name in recipes)
    stated = recipe or "16-bit-gradients" in run.overlap
    return stated or "Megatron-Bridge" in run.source or run.framework in REDUCE_IN_16_BIT
