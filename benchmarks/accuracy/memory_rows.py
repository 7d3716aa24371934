"""Published memory readings, and the stages that the memory model estimates for them.

A row of published/memory.csv describes model, layout and program in ``key=value`` words. A word
that is left out means 1 (degrees), 0 or no. ``chunks`` lists the layers of every virtual stage;
``latent`` is query rank / key-value rank / nope dim / rope dim / value dim.

One reading of BigScience's log is left out as implausible: 65 GB at micro-batch 2, although
micro-batch 4 has 56 GB.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

from benchmarks.accuracy.problems import MEGATRON, problem_of
from parc.backends.deepspeed.memory import deepspeed_zero_memory
from parc.backends.megatron.memory import (
    megatron_fp8_memory,
    megatron_memory,
    transformer_engine_workspace_bytes,
    with_gradient_bytes,
)
from parc.backends.shared.torch.memory import fsdp2_memory
from parc.compiler.catalog.library import Library
from parc.compiler.cost.memory.peak import stage_memory
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
    Generation,
    LatentAttention,
    Layout,
    Model,
    ModelChunk,
    PipelineSplit,
    Position,
    ProgramMemory,
    Recompute,
    StageMemory,
    StateBytes,
)
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.job_spec import JobSpec

PATH = Path(__file__).parent / "published" / "memory.csv"
OUT_OF_MEMORY = PATH.with_name("out_of_memory.csv")
"""Layouts that ran out of memory, in the same words but without readings."""
OVERLAP_STREAMS = 3
"""Streams of TransformerEngine's GEMMs that overlap tensor-parallel communication. Besides its own
workspace TransformerEngine allocates one that all of them share (cpp_extensions/gemm.py,
_NUM_MAX_UB_STREAMS)."""
Words = dict[str, str]


@dataclass(frozen=True, slots=True)
class Reading:
    """Measured peak of one rank, with the estimate of its stage."""

    name: str
    group: str
    kind: str
    """Counter of the reading: allocated, reserved or device."""
    measured_bytes: int
    static_bytes: int
    """Bytes that stay allocated between two steps; 0 if they were not read."""
    stage: StageMemory
    source: str

    @property
    def predicted_bytes(self) -> float:
        """Estimate of the same counter."""
        return float(getattr(self.stage, f"{self.kind}_bytes"))

    @property
    def error(self) -> float:
        """Relative error; positive if the estimate is above the reading."""
        return self.predicted_bytes / self.measured_bytes - 1


def read_readings(path: Path = PATH) -> Iterator[Reading]:
    """Yield all readings in the order of the file."""
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            yield Reading(
                name=row["id"],
                group=row["group"],
                kind=row["kind"],
                measured_bytes=int(row["bytes"]),
                static_bytes=int(row["static_bytes"] or 0),
                stage=stage_of(row),
                source=row["source"],
            )


def read_out_of_memory(path: Path = OUT_OF_MEMORY) -> Iterator[tuple[str, bool]]:
    """Yield (name, predicted to fit) of the layouts that ran out of memory."""
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            yield row["id"], stage_of(row).low_bytes <= cluster_of(row["gpu"]).gpu.memory_bytes


def stage_of(row: Words) -> StageMemory:
    """Return the memory of the fullest stage that the row covers."""
    model = model_of(words_of(row["model"]), words_of(row["layout"]))
    layout = layout_of(words_of(row["layout"]), model)
    words = words_of(row["layout"])
    spec = JobSpec(
        sequence_length=int(words["sequence"]),
        global_batch=int(words["global_batch"]),
        precision=row["precision"],  # type: ignore[arg-type]
    )
    cluster = cluster_of(row["gpu"])
    problem = problem_of("", model, cluster, spec)
    cost_model = cost_model_for(problem, MEGATRON)
    program = program_of(row["runtime"], row["precision"], cluster.generation)
    if program.name == "nanotron" and layout.tp == 1 and layout.micro_batch > 1:
        # Nanotron copies the attention output, because flash attention writes (batch, sequence)
        # but the output projection reads (sequence, batch).
        program = replace(program, output_copies=1.0)
    ranks = {"first": [0], "last": [layout.pp - 1]}.get(row["stage"], range(layout.pp))
    stages = [
        stage_memory(cost_model, layout, stage_contents(model, layout.split, rank), rank, program)
        for rank in ranks
    ]
    return max(stages, key=lambda stage: stage.total_bytes)


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
    """Return the model of a row. If its number of positions is not stated, it is the sequence
    length."""

    def size(key: str) -> int:
        return int(words.get(key, 0))

    bias, gated = bool(size("bias")), bool(size("gated"))
    latent = LatentAttention(*_latent(words["latent"])) if "latent" in words else None
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
    return Model(
        name="",
        family="",
        layers=size("layers"),
        hidden=size("hidden"),
        vocab=size("vocab"),
        attention=attention,
        ffn=FeedForward(size("ffn"), gated, "silu" if gated else "gelu", bias),
        experts=_experts(size),
        norm="layernorm" if words.get("norm") == "layernorm" else "rmsnorm",
        norm_epsilon=1e-5,
        norms_per_layer=2,
        final_norm=True,
        position=_position(size("positions") or int(layout["sequence"]), size("positions") > 0),
        tied_embeddings=bool(size("tied")),
        mtp_layers=size("mtp"),
        source="",
        left_out="",
        linear=None,
        mamba=None,
        pattern="",
    )


def _latent(text: str) -> tuple[int, int, int, int, int]:
    query, key_value, nope, rope, value = (int(word) for word in text.split("/"))
    return query, key_value, nope, rope, value


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
        etp=1 if model.experts else degree("tp"),
        micro_batch=int(words["micro_batch"]),
        schedule="interleaved" if vpp > 1 else "1f1b",
        sequence_parallel=words.get("sp") == "1",
        zero_stage=int(words.get("zero", 0)),
        recompute=_recompute(words.get("recompute", "none")),
        split=_split(counts or _even(model.layers, pp * vpp), pp, model.mtp_layers),
        order="tp-cp-ep-dp-pp",
        cp_comm="p2p",
        cp_a2a=1,
        offload=NO_OFFLOAD,
        zero_plus=NO_ZERO_PLUS,
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
    return Recompute.selective(tuple(modules.split("+"))) if modules else NO_RECOMPUTE


def nanotron() -> ProgramMemory:
    """Return the memory model of Nanotron.

    It stores 16-bit and fp32 gradients, does not fuse activations, and computes the loss in fp32.
    """
    return ProgramMemory(
        name="nanotron",
        state=StateBytes(2.0, 6.0, 12.0),
        activation_copies=1.0,
        loss_bytes=14.0,
        workspace_bytes=64.0 * 2**20,
    )


def unfused(program: ProgramMemory) -> ProgramMemory:
    """Return ``program`` with the attention matrix and the dropout masks of 2022."""
    return replace(
        program,
        fused_attention=False,
        fused_norms=False,
        attention_dropout=True,
        hidden_dropout=True,
    )


def program_of(text: str, precision: str, generation: Generation) -> ProgramMemory:
    """Return the memory model for ``megatron unfused dropout fused_loss``: a program, then
    deviations."""
    name, *features = text.split()
    program = {
        "megatron": lambda: megatron_memory(precision, generation),
        "fp8_parameters": lambda: megatron_fp8_memory(precision, generation),
        "deepspeed": lambda: deepspeed_zero_memory(precision),
        "fsdp2": fsdp2_memory,
        "nanotron": nanotron,
    }[name]()
    if "unfused" in features:
        program = unfused(program)
    if "eager" in features:
        program = replace(program, last_product=True)
    if "tp_overlap" in features:
        shared = OVERLAP_STREAMS * transformer_engine_workspace_bytes(generation)
        program = replace(program, workspace_bytes=program.workspace_bytes + shared)
    if "bf16_gradients" in features:
        program = with_gradient_bytes(program, 2.0, precision)
    if "separate_gradients" in features:
        program = replace(program, placeholder_bytes=0.0)
    dropout = "dropout" in features
    program = replace(program, attention_dropout=dropout, hidden_dropout=dropout)
    return replace(program, loss_bytes=10.0) if "fused_loss" in features else program
