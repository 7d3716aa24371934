"""Stages of consecutive layers, for frameworks that are told how many each chunk has."""

from __future__ import annotations

from collections.abc import Sequence

from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Chunk, Model, Split


def even_counts(layers: int, chunks: int) -> tuple[int, ...]:
    """Layers of each chunk in model order; the first have one more where it does not divide."""
    whole, rest = divmod(layers, chunks)
    return tuple(whole + (place < rest) for place in range(chunks))


def looped_split(model: Model, counts: Sequence[int], pp: int) -> Split:
    """Chunk ``c`` of ``counts`` goes to pipeline rank ``c % pp``: one stage, or interleaved ones.

    The embedding is with the first chunk, prediction layers and the loss with the last.
    """
    return _split(model, counts, [chunk % pp for chunk in range(len(counts))], pp)


def v_split(model: Model, counts: Sequence[int], pp: int) -> Split:
    """Two chunks a rank, there and back: rank 0 has the first and the last (ZB-V, DualPipeV)."""
    return _split(model, counts, [*range(pp), *reversed(range(pp))], pp)


def _split(model: Model, counts: Sequence[int], ranks: Sequence[int], pp: int) -> Split:
    stages: list[list[Chunk]] = [[] for _ in range(pp)]
    first = 0
    for place, (count, rank) in enumerate(zip(counts, ranks, strict=True)):
        last = place == len(counts) - 1
        mtp = model.mtp_layers if last else 0
        stages[rank].append(Chunk(first, count, place == 0, mtp, last))
        first += count
    even = len(set(counts)) == 1
    chunks = tuple(tuple(stage) for stage in stages)
    return Split("even" if even else "counted", False, False, "", chunks)


def one_stage(model: Model, pp: int, vpp: int) -> Split | None:
    """All layers on the one rank of a pipeline that is none."""
    return looped_split(model, (model.layers,), 1) if pp == vpp == 1 else None


def why_not_one_stage(framework: str, pp: int, vpp: int) -> tuple[str, str, Finding]:
    """Code, spec path and finding where a framework without pipelines is asked for stages."""
    at = "layout.pp" if pp > 1 else "layout.vpp"
    finding = Finding(
        message=f"{framework} has no pipeline stages",
        label=f"pp {pp} x vpp {vpp}, must be 1",
        help="frameworks with pipelines: megatron, deepspeed, torchtitan",
        fix=f"{at}: 1",
        targets=(framework,),
    )
    return "E11", at, finding
