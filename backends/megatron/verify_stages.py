"""Layers of each pipeline stage and model chunk, from Megatron's arguments.

Sources: ``get_num_layers_to_build`` and ``get_transformer_layer_offset`` (transformer_block.py),
``PipelineParallelLayerLayout``, and ``parse_hybrid_pattern``.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from parc.backends.megatron.verify_flags import ParsedFlags
from parc.backends.megatron.verify_layers import expand_layout_string

SIZES = (
    "num-layers",
    "pipeline-model-parallel-size",
    "mtp-num-layers",
    "num-virtual-stages-per-pipeline-rank",
    "decoder-first-pipeline-num-layers",
    "decoder-last-pipeline-num-layers",
)
"""Flags that must be numbers, so that stages can be derived."""
MOST_STAGES = 100_000


def derive_split(settings: ParsedFlags) -> dict[str, Any] | None:
    """Return the plan fields of the stage split that the flags define; None for invalid flags.

    Invalid flags are reported by ``verify_layers``, or by the comparison of other plan fields.
    """
    numbers = {flag: settings[flag] for flag in SIZES}
    if not all(isinstance(number, int | None) for number in numbers.values()):
        return None
    layers, pp = numbers["num-layers"] or 0, numbers["pipeline-model-parallel-size"] or 0
    if not 0 < pp <= MOST_STAGES or not 0 < layers <= MOST_STAGES:
        return None
    stages = _model_chunks(settings, layers, pp)
    if not stages or len(stages) % pp:
        return None
    vpp = len(stages) // pp
    found = {
        "vpp": vpp,
        "schedule": "interleaved" if vpp > 1 else "1f1b",
        # Virtual stage k is chunk k // pp of pipeline rank k % pp.
        "split.chunks": [stages[rank::pp] for rank in range(pp)],
    }
    if settings["hybrid-layer-pattern"] is None:
        found |= _split_notation(settings)
    return found


def _model_chunks(settings: ParsedFlags, layers: int, pp: int) -> list[dict[str, Any]] | None:
    pattern = settings["hybrid-layer-pattern"]
    layout = settings["pipeline-model-parallel-layout"]
    if isinstance(pattern, str):
        return _chunks_with_layers(
            [len(part) for part in pattern.split("|")], settings["mtp-num-layers"] or 0
        )
    if isinstance(layout, str):
        flat = expand_layout_string(layout)
        return None if flat is None else _chunks_of_layout_string(flat.split("|"))
    counts = _evenly_split_layers(settings, layers, pp)
    return None if counts is None else _chunks_with_layers(counts, settings["mtp-num-layers"] or 0)


def _chunks_with_layers(counts: list[int], mtp_layers: int) -> list[dict[str, Any]]:
    """Return one model chunk for each number of layers in ``counts``.

    The first chunk has the embedding. The last chunk has the loss and the MTP layers.
    """
    last = len(counts) - 1
    starts = accumulate(counts, initial=0)
    return [
        {
            "embedding": stage == 0,
            "first_layer": start,
            "layers": count,
            "loss": stage == last,
            "mtp_layers": mtp_layers if stage == last else 0,
        }
        for stage, (start, count) in enumerate(zip(starts, counts, strict=False))
    ]


def _chunks_of_layout_string(parts: list[str]) -> list[dict[str, Any]]:
    starts = accumulate((part.count("t") for part in parts), initial=0)
    return [
        {
            "embedding": "E" in part,
            "first_layer": start,
            "layers": part.count("t"),
            "loss": "L" in part,
            "mtp_layers": part.count("m"),
        }
        for start, part in zip(starts, parts, strict=False)
    ]


def _evenly_split_layers(settings: ParsedFlags, layers: int, pp: int) -> list[int] | None:
    """Return the number of layers of each virtual stage, for flags that do not list the stages.

    None if the layers cannot be divided evenly.
    """
    vpp = settings["num-virtual-stages-per-pipeline-rank"] or 1
    first = settings["decoder-first-pipeline-num-layers"]
    last = settings["decoder-last-pipeline-num-layers"]
    with_embedding = settings["account-for-embedding-in-pipeline-split"] is True
    with_loss = settings["account-for-loss-in-pipeline-split"] is True
    middle = pp - (first is not None) - (last is not None)
    rest = layers - (first or 0) - (last or 0) + with_embedding + with_loss
    if pp * vpp > MOST_STAGES or (rest % middle if middle else rest):
        return None
    ranks = [rest // middle if middle else 0] * pp
    if first is not None:
        ranks[0] = first
    if last is not None:
        ranks[-1] = last
    if any(count % vpp for count in ranks):
        return None
    counts = [count // vpp for count in ranks] * vpp
    counts[0] -= with_embedding
    counts[-1] -= with_loss
    return counts


def _split_notation(settings: ParsedFlags) -> dict[str, Any]:
    """Return the plan fields that show in which form the flags define the split."""
    text = settings["pipeline-model-parallel-layout"]
    with_embedding = settings["account-for-embedding-in-pipeline-split"]
    with_loss = settings["account-for-loss-in-pipeline-split"]
    ends = ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers")
    form = "even"
    if text is not None:
        form = "string"
    elif any(settings[flag] is not None for flag in ends):
        form = "first-last"
    elif with_embedding or with_loss:
        form = "counted"
    return {
        "split.form": form,
        "split.text": text or "",
        "split.count_embedding": with_embedding,
        "split.count_loss": with_loss,
    }
