"""Pipeline splits for frameworks that receive the number of consecutive layers per chunk."""

from __future__ import annotations

from collections.abc import Sequence

from parc.compiler.diagnostics import CodedFinding, Finding
from parc.compiler.ir import Model, ModelChunk, PipelineSplit, Problem


def even_layer_counts(layers: int, chunks: int) -> tuple[int, ...]:
    """Return the number of layers of each chunk, as equal as possible.

    If ``chunks`` does not divide ``layers``, the first chunks have one more layer than the others.
    """
    whole, rest = divmod(layers, chunks)
    return tuple(whole + (place < rest) for place in range(chunks))


def looped_split(model: Model, counts: Sequence[int], pp: int) -> PipelineSplit:
    """Return the pipeline split in which pipeline rank ``c % pp`` runs model chunk ``c``.

    ``counts`` contains the number of layers of each chunk. The first chunk also contains the
    embedding; the last chunk also contains the multi-token prediction layers and the loss.
    """
    return _assemble_split(model, counts, [chunk % pp for chunk in range(len(counts))], pp)


def split_with_counts(
    problem: Problem, split: PipelineSplit, counts: Sequence[int]
) -> PipelineSplit | None:
    """Return ``split`` with ``counts[c]`` layers in chunk c, for frameworks that list the layers.

    The result is None if a chunk would be empty, if the spec sets the layers of a stage, or if the
    schedule is V-shaped.
    """
    pins = problem.pins
    if pins.first_stage_layers or pins.last_stage_layers or min(counts) < 1:
        return None
    looped = looped_split(problem.model, counts, len(split.chunks))
    # In a V-shaped schedule, the first rank also runs the loss.
    return looped if looped.chunks[-1][-1].loss == split.chunks[-1][-1].loss else None


def v_schedule_split(model: Model, counts: Sequence[int], pp: int) -> PipelineSplit:
    """Return the pipeline split of the V-shaped schedules ZB-V and DualPipeV.

    Pipeline rank ``r`` runs the model chunks ``r`` and ``2 pp - 1 - r``. ``counts`` contains the
    number of layers of each chunk.
    """
    return _assemble_split(model, counts, [*range(pp), *reversed(range(pp))], pp)


def _assemble_split(
    model: Model, counts: Sequence[int], ranks: Sequence[int], pp: int
) -> PipelineSplit:
    """Return the pipeline split in which pipeline rank ``ranks[i]`` runs model chunk ``i``.

    ``counts[i]`` is the number of layers of chunk ``i``.
    """
    stages: list[list[ModelChunk]] = [[] for _ in range(pp)]
    first = 0
    for place, (count, rank) in enumerate(zip(counts, ranks, strict=True)):
        last = place == len(counts) - 1
        mtp = model.mtp_layers if last else 0
        stages[rank].append(ModelChunk(first, count, place == 0, mtp, last))
        first += count
    even = len(set(counts)) == 1
    # The form is only a label here: these frameworks receive layer counts, not Megatron's flags.
    chunks = tuple(tuple(stage) for stage in stages)
    return PipelineSplit("even" if even else "counted", False, False, "", chunks)


def single_stage_split(model: Model, pp: int, vpp: int) -> PipelineSplit | None:
    """Return the split into one stage with all layers; None if ``pp`` or ``vpp`` is above 1."""
    return looped_split(model, (model.layers,), 1) if pp == vpp == 1 else None


def explain_no_pipeline(framework: str, pp: int, vpp: int) -> CodedFinding:
    """Return the reason of a framework without pipeline parallelism: pp and vpp must be 1."""
    at = "layout.pp" if pp > 1 else "layout.vpp"
    finding = Finding(
        message=f"{framework} has no pipeline stages",
        label=f"pp {pp}, vpp {vpp}, both must be 1",
        help="valid: pp 1, vpp 1",
        fix=f"{at}: 1",
        targets=(framework,),
    )
    return CodedFinding("E11", at, finding)
