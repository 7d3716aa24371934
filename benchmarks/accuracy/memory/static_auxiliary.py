"""Tensors of Megatron's functional tests between two steps, other than parameters and their state.

The traits of a record describe the Megatron-LM commit and TransformerEngine version that made it:

- ``small_workspace``: TransformerEngine's workspaces were still 1 KiB smaller.
- ``early_experts``: grouped layers had no placeholder gradients (they do since 2.10, Megatron-LM
  b9d3736), and a YaRN table was cached twice (until Megatron-LM 5153663).
- ``kept_batches``: the iterator that replays a step kept its batches in device memory, on the rank
  of a tensor-parallel group that reads them (from Megatron-LM 5e4fc93 until bf32f44).
- ``expanding``: torch's allocator uses expandable segments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.accuracy.memory.caching_allocator import MIB
from benchmarks.accuracy.memory.rows import Words, cluster_of
from parc.backends.megatron.memory import BLOCK_BYTES, GROUPED_STREAMS, SCALARS
from parc.backends.megatron.tokenizers import padded_rows
from parc.compiler.cost.memory.workspaces import count_stage_buffers, weight_shapes
from parc.compiler.cost.setup.stages import StageContents, stage_contents
from parc.compiler.ir import Layout, Model

LOCAL_SCALARS, SCALER_TENSORS, ROUTED_SCALARS, TRACKERS = 6, 5, 5, 10
"""Numbers of one-block tensors: in Megatron's own layers, in a gradient scaler, in a routed layer
(bias, counts and orders of its experts), and for the losses that a model with experts adds."""
TRAINED_POSITIONS = 4096
"""original_max_position_embeddings, which no test sets."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A memory record with the model and layout that it was made with."""

    record: Words
    reading: Words
    model: Model
    layout: Layout
    sequence: int
    micro_batches: int

    def has(self, trait: str) -> bool:
        """Return True if the record has this trait."""
        return trait in self.record["traits"].split()

    @property
    def load(self) -> StageContents:
        """Layers and modules of the last pipeline rank."""
        return stage_contents(self.model, self.layout.split, self.layout.pp - 1)

    @property
    def tokens(self) -> int:
        """Tokens per micro-batch on one rank."""
        return int(self.layout.tokens(self.sequence))


def auxiliary_tensors(run: RecordedRun) -> list[int]:
    """Return the bytes of every tensor."""
    parts = (
        _library_workspaces,
        _placeholder_gradients,
        _pipeline_tensors,
        _batch_tensors,
        _rotary_tables,
        _routing_tensors,
    )
    return [size for part in parts for size in part(run)]


def _library_workspaces(run: RecordedRun) -> list[int]:
    """Return the workspaces of cuBLAS and TransformerEngine, or the scores of an unfused core."""
    early = cluster_of(run.record["gpu"]).gpu.generation == "ampere"
    pinned = run.record["cublas"] or not early
    sizes = 2 * [32 * MIB if pinned else int(8.125 * MIB)]
    sizes += SCALER_TENSORS * [BLOCK_BYTES] * (run.reading["precision"] == "fp16")
    if run.record["library"] == "local":
        heads = run.model.attention.heads // run.layout.tp
        scores = 2 * heads * run.layout.micro_batch * run.sequence**2
        return [*sizes, scores, *LOCAL_SCALARS * [BLOCK_BYTES]]
    engine = 4 * MIB if early else 32 * MIB + 1024 * (not run.has("small_workspace"))
    streams = 1 + GROUPED_STREAMS * (run.model.experts is not None)
    return [*sizes, *streams * [engine], *SCALARS * [BLOCK_BYTES]]


def _placeholder_gradients(run: RecordedRun) -> list[int]:
    if "separate_gradients" in run.reading["runtime"]:
        return []
    model = run.model
    if model.experts is not None and run.has("early_experts"):
        model = replace(model, experts=replace(model.experts, size=0))
    vocab = padded_rows(model.vocab, run.layout.tp)
    shapes = weight_shapes(model, run.layout, run.load, vocab)
    return [2 * rows * columns for rows, columns in sorted(shapes)]


def _pipeline_tensors(run: RecordedRun) -> list[int]:
    """Return tensors that wait between stages, and the gathered input of the output projection."""
    layout, whole = run.layout, 2 * run.tokens * run.model.hidden
    waiting = count_stage_buffers(layout.pp, layout.vpp)
    if not layout.sequence_parallel:
        return waiting * [whole]
    return waiting * [whole // layout.tp] + [whole]


def _batch_tensors(run: RecordedRun) -> list[int]:
    """Return mask, labels and loss weights; on a single stage also tokens and positions."""
    if run.layout.tp > 1 or not run.has("kept_batches"):
        return []
    samples = run.layout.micro_batch * run.sequence
    batch = [samples * run.sequence, 8 * samples, 4 * samples]
    return run.micro_batches * (batch + 2 * [8 * samples] * (run.layout.pp == 1))


def _rotary_tables(run: RecordedRun) -> list[int]:
    """Return rotary tables: one per model, or one set per layer of latent attention (YaRN)."""
    attention, position = run.model.attention, run.model.position
    if attention.latent is not None:
        width = attention.latent.qk_rope_dim
        table = [4 * run.sequence * width, *2 * [2 * TRAINED_POSITIONS * width], *3 * [2 * width]]
        table += [4 * TRAINED_POSITIONS * width] * run.has("early_experts")
        return (run.load.layers + run.load.mtp_layers) * table
    if position.kind == "rope":
        return [4 * position.max_positions * attention.head_dim, 2 * attention.head_dim]
    return []


def _routing_tensors(run: RecordedRun) -> list[int]:
    """Return the routing tensors of the last micro-batch: weights, choices and row numbers per
    layer."""
    experts = run.model.experts
    if experts is None:
        return []
    tokens = run.tokens // (run.layout.tp if run.layout.sequence_parallel else 1)
    kept = [4 * tokens * experts.count, tokens * experts.count]
    kept += [4 * tokens * (2 * experts.count + 1), *ROUTED_SCALARS * [BLOCK_BYTES]]
    layers = sum(n for kind, n in run.load.layers_by_kind(run.model).items() if kind.routed)
    return layers * kept + TRACKERS * [BLOCK_BYTES]
