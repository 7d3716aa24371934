"""A run as the question that the cost model answers: problem and layout, gaps filled by rule.

Every filled gap is counted. The rules, in the order they apply:

- ``vpp``: none stated, so 1; where it does not divide the layers of a stage, 1.
- ``tp``: none stated, so 1 (one row of a data-parallel sweep).
- ``zero``: none stated, so the distributed optimizer (1), the default of the frameworks' recipes;
  Megatron on Volta and Ampere had none yet (0).
- ``sequence_parallel``: none stated, so wherever tp > 1.
- gradients are reduced in 32 bit; the performance recipes of Megatron-Bridge say 16 bit.
- ``recompute``: none stated, so the cheapest level that fits the device at the low end of
  PARC's memory band.
- ``micro_batch``: none stated, so the one of 1, 2, 4, 8 that PARC predicts to be fastest among
  those that fit.
- ``global_batch``: none stated, so 16 micro-batches a replica; such a row is scored on tokens/s.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from benchmarks.accuracy.hardware_classes import class_row
from benchmarks.accuracy.layouts import layout_of, recompute_of
from benchmarks.accuracy.resolved import Resolver
from benchmarks.accuracy.runs import Run
from parc.backends.registry import framework
from parc.compiler.cost.counts.flops import model_flops
from parc.compiler.cost.memory.peak import peak_stage
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.ir import Cluster, Goals, Job, Launch, Layout, Model, Pins, Problem, SlurmJob
from parc.compiler.resolve.resolve_kernels import pricing_for
from parc.compiler.search.enumerate_layouts import recompute_levels

ACCUMULATION = 16
MICRO_BATCHES = (1, 2, 4, 8)
MEGATRON = framework("megatron")
_SLURM = SlurmJob("", None, None, None, None, None, None, (), False, 0, "")
_LAUNCH = Launch("", (), (), 0, None, _SLURM)


STACKS = {
    "composer-fsdp": "torch-native",
    "torchtitan": "torch-native",
    "nanotron": "nanotron",
    "jax": "jax",
}
"""Framework of a run -> stack of the cost model; other frameworks use transformer-engine."""


def stack_of(run: Run, generation: str) -> str:
    """The software class of a run.

    Megatron, and NeMo with it, on Volta and Ampere are from before 2023; BigScience trained with a
    fork of its own (ALiBi, embedding norm, its bf16 optimizer).
    """
    if run.framework.startswith(("megatron", "nemo")) and generation in ("volta", "ampere"):
        return "bigscience" if run.cluster.startswith("Jean Zay") else "unfused"
    return STACKS.get(run.framework, "transformer-engine")


@dataclass(frozen=True, slots=True)
class Case:
    """One run, ready to be priced."""

    run: Run
    problem: Problem
    layout: Layout
    seconds: float
    """Measured step; 0 where it ran out of memory."""
    imputed: tuple[str, ...]

    @property
    def group(self) -> str:
        """``hopper fp8 dense``: what the report has a line for."""
        return f"{self.problem.cluster.gpu.name} {self.run.precision} {self.kind}"

    @property
    def kind(self) -> str:
        """Dense or MoE."""
        return "MoE" if self.problem.model.experts else "dense"

    @property
    def generation(self) -> str:
        """The hardware class whose parameters price it."""
        generation = self.problem.cluster.gpu.generation
        return f"{generation}/{stack_of(self.run, generation)}"

    @property
    def width(self) -> str:
        """Models of one width count as one model when one is left out: proxies are no new model."""
        model = self.problem.model
        experts = model.experts.count if model.experts else 0
        return f"{model.hidden}/{model.ffn.size}/{model.attention.heads}/{experts}"

    @property
    def flops(self) -> float:
        """Model FLOPs of a step, no recompute."""
        job = self.problem.job
        tokens = job.global_batch * job.sequence_length
        return model_flops(self.problem.model, tokens, job.sequence_length)

    @property
    def scored(self) -> bool:
        """Whether its time counts."""
        return bool(self.seconds) and self.run.tier != "C"

    @property
    def fsdp(self) -> bool:
        """Parameters are sharded over the data-parallel ranks."""
        return self.layout.zero_stage >= 2


@dataclass
class Cases:
    """All cases, and what had to be assumed or left out."""

    cases: list[Case] = field(default_factory=list)
    imputed: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)


def make_cases(runs: tuple[Run, ...]) -> Cases:
    """A case for every run that can be expressed."""
    resolver, made = Resolver(), Cases()
    for run in runs:
        model, cluster = resolver.model(run), resolver.cluster(run)
        if model is None or cluster is None:
            made.left_out["model or cluster unknown"] += 1
            continue
        case = _case(run, model, cluster)
        if case is None:
            made.left_out["layout does not tile the GPUs"] += 1
            continue
        made.cases.append(case)
        made.imputed.update(case.imputed)
    return made


def _case(run: Run, model: Model, cluster: Cluster) -> Case | None:
    tp = run.tp or 1
    dp, rest = divmod(run.gpus, tp * run.cp * run.pp)
    if rest or not dp or (model.experts and run.gpus % (run.pp * (run.ep or 1) * (run.etp or 1))):
        return None
    missing = ("tp", "zero", "sequence_parallel", "recompute", "micro_batch", "global_batch")
    imputed = [name for name in missing if getattr(run, name) is None]
    if run.vpp is None and run.pp > 1:
        imputed.append("vpp")
    sizes = MICRO_BATCHES if run.micro_batch is None else (run.micro_batch,)
    options = [_option(run, model, cluster, dp, size) for size in sizes]
    options = [option for option in options if option.layout.micro_batches(_batch(option)) >= 1]
    if not options:
        return None
    chosen = options[0] if len(options) == 1 else min(options, key=_rank)
    return replace(chosen, imputed=tuple(imputed))


def _batch(case: Case) -> int:
    return case.problem.job.global_batch


def _option(run: Run, model: Model, cluster: Cluster, dp: int, micro_batch: int) -> Case:
    """The run with one micro-batch size, and the cheapest recompute where none is stated."""
    batch = run.global_batch or ACCUMULATION * micro_batch * dp
    problem = _problem(run, model, cluster, batch)
    layout = layout_of(run, problem, MEGATRON, dp, micro_batch)
    if run.zero is None and stack_of(run, cluster.gpu.generation) == "unfused":
        layout = replace(layout, zero_stage=0)
    if run.recompute is None:
        layout = _cheapest(problem, layout)
    else:
        layout = replace(layout, recompute=recompute_of(run.recompute))
    tokens = batch * run.sequence
    seconds = run.step_seconds or (
        tokens / (run.tokens_per_s_per_gpu * run.gpus) if run.tokens_per_s_per_gpu else 0.0
    )
    return Case(run, problem, layout, seconds, ())


def _cheapest(problem: Problem, layout: Layout) -> Layout:
    """The first recompute level that fits at the low end of the band; full where none does."""
    pricing = pricing_for(problem, MEGATRON)
    for level in recompute_levels(problem, MEGATRON):
        layout = replace(layout, recompute=level)
        if peak_stage(pricing, layout).low_bytes <= problem.cluster.gpu.memory_bytes:
            return layout
    return layout


def _rank(case: Case) -> tuple[bool, float]:
    """(does not fit, seconds a sequence) by the shipped model."""
    pricing = pricing_for(case.problem, MEGATRON, class_row(case.generation))
    fits = peak_stage(pricing, case.layout).low_bytes <= case.problem.cluster.gpu.memory_bytes
    return (not fits, step_time(pricing, case.layout).total_seconds / _batch(case))


def _problem(run: Run, model: Model, cluster: Cluster, batch: int) -> Problem:
    job = Job(
        kind="pretrain",
        sequence_length=run.sequence,
        global_batch=batch,
        precision=run.precision,  # type: ignore[arg-type]  # the table holds these words alone
        steps=1,
        learning_rate=1e-4,
        data=(),
        tokenizer_type="NullTokenizer",
        tokenizer_model=None,
        checkpoint_dir=None,
        checkpoint_interval=1,
        load_dir=None,
        moe_dispatcher="deepep" if "deep-ep" in run.overlap else "alltoall",
        moe_overlap="ep-overlap" in run.overlap,
        gradient_precision="bf16" if "Megatron-Bridge" in run.source else "fp32",
    )
    return Problem(
        name=run.id,
        model=model,
        cluster=cluster,
        job=job,
        goals=Goals("throughput", 0.0),
        pins=Pins(),
        launch=_LAUNCH,
        emit=(),
        framework="megatron",
        versions=(("megatron", MEGATRON.default_version),),
        digest="",
    )
