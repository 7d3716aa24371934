"""What Megatron's functional tests held between two steps, tensor by tensor.

Their golden values record torch's allocated bytes of the last rank. A tensor takes a multiple of
512 bytes; without the distributed optimizer every parameter has four of its own, with it a chunk
of the model has two buffers and every parameter the parts of them that are the rank's own
(Megatron-LM, param_and_grad_buffer.py). Above 10 MiB the caching allocator of torch asks the
driver for multiples of 2 MiB and splits off no remainder of up to 1 MiB, so that the tensor is
recorded with it (CUDACachingAllocator.cpp); it does so where no cached block fits, which depends
on all that ran before. A record is therefore met to the byte, or up to such remainders.
Recorded at Megatron-LM d98e8a6, tests/functional_tests/test_cases/gpt.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from statistics import median

from benchmarks.accuracy.memory_rows import (
    MEGATRON,
    PATH,
    Words,
    cluster_of,
    layout_of,
    model_of,
    words_of,
)
from parc.compiler.cost.workspaces import handovers
from parc.compiler.cost.runtime import BLOCK_BYTES, MIB, megatron
from parc.compiler.ir import Chunk, Layout, Model

RECORDS = Path(__file__).parent / "published" / "static.csv"
PINNED_BYTES = 2 * 32 * MIB
"""cuBLAS of two threads under CUBLAS_WORKSPACE_CONFIG=:4096:8."""
LOCAL_BYTES = 128 * MIB
"""Workspaces of Megatron's own layers, which leave the work to torch."""
SCALER_BYTES = 2 * BLOCK_BYTES
"""Scale and overflow flag of a gradient scaler."""
SEGMENT_BYTES, DIRECT_BYTES, REMAINDER_BYTES = 2 * MIB, 10 * MIB, MIB
ALIGNED, BUCKET = 64, 128
"""Elements to which a buffer aligns its parameters, and with the ranks its end."""
QUARTER = MIB // 4


@dataclass(frozen=True, slots=True)
class Record:
    """One golden value."""

    name: str
    node: str
    measured_bytes: int
    tensors_bytes: int
    """Tensors, workspaces and handovers."""
    segments_bytes: int
    """The same, with the remainders of tensors that are no multiple of 2 MiB."""

    @property
    def exact(self) -> bool:
        """Met to the byte."""
        return self.measured_bytes in (self.tensors_bytes, self.segments_bytes)

    @property
    def whole_remainders(self) -> bool:
        """Off by whole quarters of a MiB that the allocator left unsplit, and a few scalars."""
        off = self.measured_bytes - self.segments_bytes
        scalars = (off + QUARTER // 2) % QUARTER - QUARTER // 2
        return abs(off) <= 10 * MIB and abs(scalars) <= 4 * BLOCK_BYTES

    @property
    def error(self) -> float:
        """Relative, of the nearer of the two."""
        measured = self.measured_bytes
        errors = [held / measured - 1 for held in (self.tensors_bytes, self.segments_bytes)]
        return min(errors, key=abs)


def read_records(path: Path = RECORDS) -> Iterator[Record]:
    """All rows, in the order of the file; models and layouts are those of the readings."""
    with PATH.open(encoding="utf-8", newline="") as lines:
        readings = {row["id"]: row for row in csv.DictReader(lines)}
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            reading = readings[row["id"]]
            words = words_of(reading["layout"])
            model = model_of(words_of(reading["model"]), words)
            layout = layout_of(words, model)
            sizes = _tensors(model, layout, reading["precision"])
            beside = _workspaces(row) + _handovers(model, layout, int(words["sequence"]))
            beside += SCALER_BYTES * (reading["precision"] == "fp16")
            yield Record(
                f"{row['id']} {row['record']}",
                row["gpu"],
                int(row["bytes"]),
                beside + sum(_up(size, BLOCK_BYTES) for size in sizes),
                beside + sum(_with_remainder(size) for size in sizes),
            )


def _up(size: int, quantum: int) -> int:
    return -(-size // quantum) * quantum


def _with_remainder(size: int) -> int:
    """Bytes of a tensor in a segment of its own."""
    own = _up(size, BLOCK_BYTES)
    segment = _up(own, SEGMENT_BYTES)
    return segment if own >= DIRECT_BYTES and segment - own <= REMAINDER_BYTES else own


def _workspaces(row: Words) -> int:
    runtime = megatron("bf16", cluster_of(row["gpu"]).gpu)
    if row["library"] == "local":
        return LOCAL_BYTES + 9 * BLOCK_BYTES
    held = int(runtime.workspace_bytes)
    if not row["cublas"]:
        return held
    default = 2 * 32 if row["gpu"] != "dgx-a100" else 2 * 8.125
    return int(held - default * MIB + PINNED_BYTES)


def _handovers(model: Model, layout: Layout, sequence: int) -> int:
    stream = 2 * int(layout.tokens(sequence)) * model.hidden
    return (
        handovers(layout.pp, layout.vpp) * stream // (layout.tp if layout.sequence_parallel else 1)
    )


def parameters(model: Model, layout: Layout, chunk: Chunk) -> list[int]:
    """Elements of every parameter of a virtual stage on one rank, in the order of its modules."""
    hidden, attention, ffn, tp = model.hidden, model.attention, model.ffn, layout.tp
    table = MEGATRON.padded_vocab(model, tp) * hidden // tp
    norm = [hidden] * (2 if model.norm == "layernorm" else 1)
    sizes: list[int] = []
    if chunk.embedding:
        positions = model.position.max_positions * hidden
        sizes += [table] + [positions] * (model.position.kind == "learned")
    fused = (attention.heads + 2 * attention.kv_heads) * attention.head_dim // tp
    outputs = attention.heads * attention.head_dim // tp
    inner = ffn.size // tp
    columns = 2 * inner if ffn.gated else inner
    layer = [outputs * hidden] + [hidden] * attention.output_bias + norm
    layer += [fused * hidden] + [fused] * attention.qkv_bias
    layer += [attention.head_dim] * (2 * len(norm) * (attention.qk_norm == "head"))
    layer += norm + [columns * hidden] + [columns] * ffn.bias
    layer += [inner * hidden] + [hidden] * ffn.bias
    sizes += chunk.layers * layer
    if chunk.loss:
        sizes += norm
        sizes += [table] * (not (chunk.embedding and model.tied_embeddings))
    return sizes


def _tensors(model: Model, layout: Layout, precision: str) -> list[int]:
    """Bytes of every tensor that the last pipeline rank holds."""
    gradient, copies = (2, 4) if precision == "fp16" else (4, 3)
    tensors: list[int] = []
    for chunk in layout.split.chunks[-1]:
        sizes = parameters(model, layout, chunk)
        if layout.zero_stage:
            tensors += _sharded(sizes, layout, gradient, copies)
        else:
            tensors += [gradient * sum(sizes), *(2 * size for size in sizes)]
            tensors += copies * [4 * size for size in sizes]
    if model.position.kind == "rope":
        cached = 4 * model.position.max_positions * model.attention.head_dim
        tensors += [cached, 2 * model.attention.head_dim]
    return tensors


def _sharded(sizes: list[int], layout: Layout, gradient: int, copies: int) -> list[int]:
    """Buffers of a chunk, and the fp32 parts of its parameters that the last shard updates."""
    shards = layout.dp_shard * layout.cp
    stop, spans = 0, []
    for size in reversed(sizes):
        start = _up(stop, ALIGNED)
        stop = start + size
        spans.append((start, stop))
    whole = _up(stop, lcm(shards, BUCKET))
    first = whole // shards * (shards - 1)
    parts = [stop - max(start, first) for start, stop in spans if stop > first]
    return [2 * whole, gradient * whole, *copies * [4 * part for part in parts]]


def summary(records: list[Record]) -> str:
    """How many records are met, as a sentence."""
    exact = sum(record.exact for record in records)
    near = sum(record.whole_remainders and not record.exact for record in records)
    rest = [abs(r.error) for r in records if not (r.exact or r.whole_remainders)]
    return (
        f"Tensor by tensor, {exact} of {len(records)} records of what the last rank holds between "
        f"two steps are met to the byte, and {near} up to whole remainders that torch's allocator "
        f"did not split off; the other {len(rest)} are off by {median(rest):.1%} (median), "
        f"{max(rest):.1%} (largest)."
    )
