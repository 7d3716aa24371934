"""Published memory readings, and the stages that the memory model estimates for them.

A row of published/memory.csv describes model, layout and program in ``key=value`` words. A word
that is left out means 1 (degrees), 0 or no. ``chunks`` lists the layers of every virtual stage;
``latent`` is query rank / key-value rank / nope dim / rope dim / value dim. ``mamba`` is heads /
head dim / state size / groups / convolution size; ``pattern`` has a letter per layer and replaces
``layers``. ``offloaded`` lists the parts of a layer whose activations wait in host memory.
``micro_batch`` of torchtitan and FSDP2 is the batch that their documents state, which is that of a
data-parallel rank: a pipeline divides it into ``micro_batches``, or else into as many micro-batches
as it has stages (torchtitan, parallelisms/pipelining_utils.py, build_pipeline_schedule).

Sizes of Megatron's release tests follow from their arguments; their number of ranks, which the
repository does not state, follows from the bytes that stay allocated between two steps.

Megatron-Bridge's documents state gigabytes of 1e9 bytes, also where they write GiB: their figures
have the five digits that its log prints (train_utils.py, report_memory). Until May 2026 it logged
the last pipeline stage alone (Megatron-Bridge, pull request 3645). NeMo AutoModel and torchtitan
divide by 2**30 and write GB or GiB (AutoModel, train_ft.py; torchtitan, metrics.py).

Programs without expandable segments are fp16 programs, which are older, and those with the word
``fixed_segments``, among them all on ROCm. Nanotron's benchmark_summary.svg states no
tensor-parallel mode, so that its rows are read as the default of scripts/scaling_benchmarks.py.

VocabularyParallelism states reserved memory as a maximum and allocated memory of every stage; the
rows of its second environment are ``again``. The DeepSeek-V3 proxy is read with two chunks per
rank, which its three stages fit to 1 %, although its document says VPP1. Left out are readings of
torchtitan's pull request 1672 and issue 773, whose speed or memory contradicts the config, and one
of BigScience's log: 65 GB at micro-batch 2, although micro-batch 4 has 56 GB.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

from benchmarks.accuracy.memory.extra_bytes import Run
from benchmarks.accuracy.memory.programs import family_of, program_of, with_copies
from benchmarks.accuracy.memory.sources import document_of, is_locked_row
from benchmarks.accuracy.problems import MEGATRON, problem_of
from parc.backends.megatron.memory import fsdp_memory
from parc.compiler.catalog.library import Library
from parc.compiler.cost.memory.peak import stage_memory
from parc.compiler.cost.memory.states import optimizer_step_bytes
from parc.compiler.cost.setup.stages import stage_contents
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import (
    NO_OFFLOAD,
    NO_RECOMPUTE,
    NO_ZERO_PLUS,
    Attention,
    Cluster,
    Experts,
    FeedForward,
    LatentAttention,
    Layout,
    Mamba,
    Model,
    ModelChunk,
    PipelineSplit,
    Position,
    Recompute,
    StageMemory,
)
from parc.compiler.ir.estimate import DYNAMIC_SPREAD, FRAGMENTATION_SPREAD, STATIC_SPREAD
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.job_spec import JobSpec
from parc.compiler.spec.model_spec import ModelSpec

PATH = Path(__file__).parent.parent / "published" / "memory.csv"
OUT_OF_MEMORY = PATH.with_name("out_of_memory.csv")
"""Layouts that ran out of memory, in the same words but without readings."""
Words = dict[str, str]


@dataclass(frozen=True, slots=True)
class Reading:
    """Measured peak of one rank, with the estimate of its stage."""

    name: str
    group: str
    program: str
    """Name of the memory model, which several groups may share."""
    kind: str
    """Counter of the reading: allocated, reserved or device."""
    measured_bytes: int
    static_bytes: int
    """Bytes that stay allocated between two steps; 0 if they were not read."""
    copied_bytes: float
    """Estimate of the fp32 copies of 16-bit gradients, which stay allocated between two steps."""
    cached_bytes: float
    """Estimate of free blocks that torch keeps."""
    stage: StageMemory
    source: str
    locked: bool
    """True if the source is locked: no fit, and no decision about a formula, may use the row."""

    @property
    def document(self) -> str:
        """Source of the reading; related documents are one."""
        return document_of(self.source)

    @property
    def predicted_bytes(self) -> float:
        """Estimate of the same counter."""
        free = 0.0 if self.kind == "allocated" else self.cached_bytes
        return float(getattr(self.stage, f"{self.kind}_bytes")) + free

    @property
    def error(self) -> float:
        """Relative error; positive if the estimate is above the reading."""
        return self.predicted_bytes / self.measured_bytes - 1

    @property
    def needed_spread(self) -> float:
        """Relative spread of dynamic bytes that makes the interval just contain the reading."""
        stage = self.stage
        lost = 0.0 if self.kind == "allocated" else stage.fragmentation_bytes
        plain = getattr(stage, f"{self.kind}_bytes") - lost
        static = STATIC_SPREAD * stage.static_bytes
        # The interval ranges from no fragmentation to a multiple of the expected one.
        above = self.measured_bytes - plain - FRAGMENTATION_SPREAD * lost - static
        # The low end contains no communicators.
        least = plain - (stage.communication_bytes if self.kind == "device" else 0.0)
        below = (least - static - self.measured_bytes) / (least - stage.static_bytes)
        return max(above / (plain - stage.static_bytes), below, 0.0)

    @property
    def is_inside(self) -> bool:
        """True if the interval of the estimate contains the reading."""
        return self.needed_spread <= DYNAMIC_SPREAD


def read_readings(path: Path = PATH) -> Iterator[Reading]:
    """Yield all readings in the order of the file."""
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            stage, copied, cached = stage_of(row)
            yield Reading(
                name=row["id"],
                group=row["group"],
                program=family_of(row["runtime"]),
                kind=row["kind"],
                measured_bytes=int(row["bytes"]),
                static_bytes=int(row["static_bytes"] or 0),
                copied_bytes=copied,
                cached_bytes=cached,
                stage=stage,
                source=row["source"],
                locked=is_locked_row(row),
            )


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """Layout that ran out of memory, with the prediction whether it fits."""

    name: str
    locked: bool
    surely_fits: bool
    """True if even the high end of the interval is below the memory of the device."""
    might_fit: bool
    """True if the low end of the interval is below the memory of the device."""


def read_out_of_memory(path: Path = OUT_OF_MEMORY) -> Iterator[OutOfMemory]:
    """Yield the layouts that ran out of memory, in the order of the file."""
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            (stage, *_), memory = stage_of(row), cluster_of(row["gpu"]).gpu.memory_bytes
            yield OutOfMemory(
                row["id"],
                is_locked_row(row),
                stage.high_bytes <= memory,
                stage.low_bytes <= memory,
            )


def stage_of(row: Words) -> tuple[StageMemory, float, float]:
    """Return the memory of the stage that a row covers, its ``copied_bytes`` and ``cached_bytes``.

    If the row covers several stages, the result is the fullest, or the emptiest for ``min``.
    """
    model = model_of(words_of(row["model"]), words_of(row["layout"]))
    words = words_of(row["layout"])
    layout = layout_of(words, model)
    if family_of(row["runtime"]) == "torch":
        count = int(words.get("micro_batches", layout.pp))
        layout = replace(layout, micro_batch=max(layout.micro_batch // count, 1))
    spec = JobSpec(
        sequence_length=int(words["sequence"]),
        global_batch=int(words["global_batch"]),
        precision=row["precision"],  # type: ignore[arg-type]
    )
    cluster = cluster_of(row["gpu"])
    problem = problem_of("", model, cluster, spec)
    cost_model = cost_model_for(problem, MEGATRON)
    program = program_of(row["runtime"], row["precision"], cluster.generation)
    program = with_copies(program, model, layout)
    if family_of(row["runtime"]) == "megatron" and layout.zero_stage > 1:
        program = fsdp_memory(program)
    features, group = row["runtime"].split(), int(words.get("group", 0))
    run = Run(features, row.get("kind", "reserved"), group, cost_model, layout, program)
    ranks = _ranks(row["stage"], layout.pp)
    stages = []
    for rank in ranks:
        load = stage_contents(model, layout.split, rank)
        workspace = program.workspace_bytes + run.scores_bytes()
        stage = stage_memory(
            cost_model, layout, load, rank, replace(program, workspace_bytes=workspace)
        )
        activations = stage.activations_bytes + run.extra_activation_bytes(rank)
        stage = replace(stage, activations_bytes=activations)
        copied = optimizer_step_bytes(cost_model, layout, load, program)
        if "fixed_segments" in features or spec.precision == "fp16":
            lost = run.fixed_segment_bytes(rank, copied, stage)
            stage = replace(stage, fragmentation_bytes=lost)
        stages.append((stage, copied, run.cached_bytes(stage)))
    choose = min if row["stage"] == "min" else max
    return choose(stages, key=lambda found: found[0].total_bytes)


def _ranks(stage: str, pp: int) -> Sequence[int]:
    """Return the pipeline ranks that a row covers: ``first``, ``last``, one by number, or all."""
    if stage.isdecimal():
        return [int(stage)]
    return {"first": [0], "last": [pp - 1]}.get(stage, range(pp))


def words_of(text: str) -> Words:
    """Parse ``key=value`` words."""
    pairs = (word.partition("=") for word in text.split())
    return {key: value for key, _, value in pairs}


@cache
def cluster_of(node: str) -> Cluster:
    """Return a cluster with one host of a catalog node type."""
    cluster = resolve_cluster(ClusterSpec(node=node, nodes=1), Library(None), Sink())
    assert cluster is not None
    return cluster


def model_of(words: Words, layout: Words) -> Model:
    """Return the model of a row: the catalog's if ``words`` name one, with ``mtp`` layers added.

    If the number of positions is not stated, it is the sequence length.
    """
    if "name" in words:
        return _catalog_model(words["name"], int(words.get("mtp", 0)))

    def size(key: str) -> int:
        return int(words.get(key, 0))

    bias, gated = bool(size("bias")), bool(size("gated"))
    latent = LatentAttention(*_numbers(words["latent"])) if "latent" in words else None
    attention = Attention(
        size("heads"),
        size("kv_heads"),
        size("head_dim"),
        bias,
        bias,
        "head" if size("qk_norm") else "none",
        None,
        latent,
        sinks=False,
        full_attention_every=0,
        gate=False,
    )
    pattern = words.get("pattern", "")
    return Model(
        name="",
        family="",
        layers=size("layers") or len(pattern),
        hidden=size("hidden"),
        vocab=size("vocab"),
        attention=attention,
        ffn=FeedForward(size("ffn"), gated, "silu" if gated else "gelu", bias),
        experts=_experts(size),
        norm="layernorm" if words.get("norm") == "layernorm" else "rmsnorm",
        norm_epsilon=1e-5,
        init_std=None,
        norms_per_layer=2,
        final_norm=True,
        position=_position(size("positions") or int(layout["sequence"]), size("positions") > 0),
        tied_embeddings=bool(size("tied")),
        mtp_layers=size("mtp"),
        source="",
        left_out="",
        linear=None,
        mamba=Mamba(*_numbers(words["mamba"])) if pattern else None,
        pattern=pattern,
    )


@cache
def _catalog_model(name: str, mtp_layers: int) -> Model:
    spec = ModelSpec(base=name, mtp_layers=mtp_layers) if mtp_layers else ModelSpec(base=name)
    model = resolve_model(spec, Library(None), Sink())
    assert model is not None
    return model


def _numbers(text: str) -> tuple[int, int, int, int, int]:
    first, second, third, fourth, fifth = (int(word) for word in text.split("/"))
    return first, second, third, fourth, fifth


def _position(rows: int, learned: bool) -> Position:
    return Position("learned" if learned else "rope", 1e4, 1.0, "none", 1.0, rows, rows, 1.0, 0.0)


def _experts(size: object) -> Experts | None:
    assert callable(size)
    if not size("experts"):
        return None
    dense = size("dense_layers")
    return Experts(
        count=size("experts"),
        top_k=size("top_k"),
        size=size("expert_ffn"),
        shared_size=size("shared_ffn"),
        shared_gate=False,
        pattern=(False,) * dense + (True,) * (size("layers") - dense),
        bias=False,
        score_function="softmax",
        pre_softmax=False,
        groups=1,
        group_top_k=1,
        router_bias="buffer",
        scaling_factor=1.0,
        aux_loss_coefficient=0.0,
    )


def layout_of(words: Words, model: Model) -> Layout:
    """Return the layout of a row."""

    def degree(key: str) -> int:
        return int(words.get(key, 1))

    pp, vpp = degree("pp"), degree("vpp")
    counts = [int(count) for count in words.get("chunks", "").split(",") if count]
    return Layout(
        tp=degree("tp"),
        cp=degree("cp"),
        pp=pp,
        vpp=vpp,
        dp_replicate=degree("instances"),
        dp_shard=degree("dp") // degree("instances"),
        ep=degree("ep"),
        etp=degree("etp") if model.experts else degree("tp"),
        micro_batch=int(words["micro_batch"]),
        schedule="interleaved" if vpp > 1 else "1f1b",
        sequence_parallel=words.get("sp") == "1",
        zero_stage=int(words.get("zero", 0)),
        recompute=_recompute(words.get("recompute", "none")),
        split=_split(counts or _even(model.layers, pp * vpp), pp, model.mtp_layers),
        order="tp-cp-ep-dp-pp",
        cp_comm="p2p",
        cp_a2a=1,
        offload=replace(NO_OFFLOAD, activations=_names(words.get("offloaded", ""))),
        zero_plus=NO_ZERO_PLUS,
        cuda_graphs=False,
    )


def _even(layers: int, chunks: int) -> list[int]:
    cuts = [round(layers * index / chunks) for index in range(chunks + 1)]
    return [stop - start for start, stop in pairwise(cuts)]


def _split(counts: list[int], pp: int, mtp_layers: int) -> PipelineSplit:
    last = len(counts) - 1
    chunks = [
        ModelChunk(
            sum(counts[:index]), count, index == 0, mtp_layers * (index == last), index == last
        )
        for index, count in enumerate(counts)
    ]
    return PipelineSplit(
        "even", False, False, "", tuple(tuple(chunks[rank::pp]) for rank in range(pp))
    )


def _recompute(text: str) -> Recompute:
    granularity, _, modules = text.partition(":")
    if granularity == "full":
        return Recompute("full", (), "uniform", 1)
    return Recompute.selective(_names(modules)) if modules else NO_RECOMPUTE


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split("+")) if text else ()
