"""Layers of each pipeline stage and model chunk, and the batch, from Megatron's arguments.

Every layer must be on one stage, and the batch must divide evenly. Sources:
``get_num_layers_to_build`` and ``get_transformer_layer_offset`` (transformer_block.py),
``PipelineParallelLayerLayout``, and ``parse_hybrid_pattern``.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any

from parc.backends.megatron.verify_arguments import ARGUMENTS, WrittenFlags
from parc.backends.megatron.verify_flags import ParsedFlags
from parc.compiler.diagnostics import Finding, Sink, Span

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
"""Maximum number of layers, and of virtual stages; damaged flags with more define no split."""
LONGEST = 100_000
"""Maximum number of letters in an expanded pipeline layout. It bounds the memory that a damaged
repeat count can use."""


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


def verify_layers(arguments: WrittenFlags, sink: Sink) -> None:
    """Report layers that are in no pipeline stage, or in more than one (A08)."""
    layers = arguments.number("num-layers", 0)
    if not layers:
        _report_at_arguments("A08", "--num-layers is missing", "", sink)
        return
    pp = arguments.number("pipeline-model-parallel-size", 1)
    pattern = arguments.text("hybrid-layer-pattern")
    if pattern is not None:
        _verify_pattern(pattern, pp, layers, sink)
        return
    layout = arguments.text("pipeline-model-parallel-layout")
    if layout is not None:
        _verify_layout(layout, pp, arguments, sink)
        return
    first = arguments.number("decoder-first-pipeline-num-layers", 0)
    last = arguments.number("decoder-last-pipeline-num-layers", 0)
    with_embedding = arguments.has("account-for-embedding-in-pipeline-split")
    with_loss = arguments.has("account-for-loss-in-pipeline-split")
    # Ranks with a fixed number of layers are not part of the even division
    # (get_num_layers_to_build).
    chunks = (pp - bool(first) - bool(last)) * _virtual_stages(arguments, layers, pp)
    rest = layers - first - last + with_embedding + with_loss
    if rest < 0 or (chunks and rest % chunks) or (not chunks and rest):
        label = f"{rest} layers left for {chunks} chunks" + ("" if chunks else ", must be 0")
        _report_at_arguments("A08", f"{layers} layers do not fill {pp} stages evenly", label, sink)


def verify_batch(arguments: WrittenFlags, dp: int, sink: Sink) -> None:
    """Report a global batch that is not a whole number of micro-batches per replica (A09)."""
    batch = arguments.number("global-batch-size", 0)
    micro = arguments.number("micro-batch-size", 0)
    if not batch or not micro:
        _report_at_arguments(
            "A09", "--global-batch-size or --micro-batch-size is missing", "", sink
        )
    elif batch % (micro * dp):
        message = f"the global batch {batch} is not divisible by micro-batch {micro} x dp {dp}"
        _report_at_arguments(
            "A09", message, f"{batch} % {micro * dp} = {batch % (micro * dp)}, must be 0", sink
        )


def _virtual_stages(arguments: WrittenFlags, layers: int, pp: int) -> int:
    """Return the number of virtual stages (model chunks) per pipeline rank."""
    per_stage = arguments.number("num-layers-per-virtual-pipeline-stage", 0)
    if per_stage:
        # This flag gives the layers per chunk, the flag below the chunks per rank.
        return max(1, layers // (pp * per_stage))
    return arguments.number("num-virtual-stages-per-pipeline-rank", 1)


def _verify_layout(layout: str, pp: int, arguments: WrittenFlags, sink: Sink) -> None:
    """Report a pipeline layout string that does not match the model or pp (A08).

    The string must contain one E (embedding), one L (loss), one t per decoder layer and one m per
    MTP layer, and pp must divide the number of stages.
    """
    flat = expand_layout_string(layout)
    mtp = arguments.number("mtp-num-layers", 0) if arguments.has("mtp-num-layers") else 0
    wanted = {"E": 1, "t": arguments.number("num-layers", 0), "m": mtp, "L": 1}
    for letter, count in wanted.items():
        if flat is None or flat.count(letter) != count:
            found = "not a valid layout" if flat is None else f"{flat.count(letter)} of {letter}"
            message = f"the pipeline layout does not match the model: {found}"
            _report_at_arguments(
                "A08", message, f"must contain {count} of the letter {letter}", sink
            )
            return
    stages = (flat or "").count("|") + 1
    if stages % pp:
        message = f"the pipeline layout has {stages} stages for {pp} pipeline ranks"
        _report_at_arguments("A08", message, f"{stages} % {pp} = {stages % pp}, must be 0", sink)


def _verify_pattern(pattern: str, pp: int, layers: int, sink: Sink) -> None:
    """Report a layer pattern that does not match the model or pp (A08).

    The pattern must contain one letter per layer, and pp must divide the number of stages.
    """
    letters = re.findall(r"[M*E-]", pattern)
    wrong_count = len(letters) != layers
    if wrong_count or len(letters) + pattern.count("|") != len(pattern):
        message = (
            f"the layer pattern has {len(letters)} layers, but the model has {layers}"
            if wrong_count
            else "the layer pattern contains an invalid character"
        )
        _report_at_arguments(
            "A08", message, f"must be {layers} of M * E -, and | between stages", sink
        )
    stages = pattern.count("|") + 1
    if stages % pp:
        message = f"the layer pattern has {stages} stages for {pp} pipeline ranks"
        _report_at_arguments("A08", message, f"{stages} % {pp} = {stages % pp}, must be 0", sink)


def expand_layout_string(layout: str) -> str | None:
    """Return the pipeline layout with all repeats written out.

    None if ``layout`` is not valid or would be too long. Groups are expanded before the repeats
    inside them, as in Megatron's ``parse_str_to_list``.
    """
    text = layout.replace(",", "").replace(" ", "")
    for pattern in (r"\(([Etm|L*\d]+)\)\*(\d{1,6})", r"([Etm|L])\*(\d{1,6})"):
        size = sum(len(body) * int(times) for body, times in re.findall(pattern, text))
        if size > LONGEST:
            return None
        text = re.sub(pattern, lambda found: found[1] * int(found[2]), text)
    return text if re.fullmatch(r"[Etm|L]+", text) else None


def _report_at_arguments(code: str, message: str, label: str, sink: Sink) -> None:
    """Report a finding at the start of the file of arguments."""
    sink.report(code, Finding(message, label), span=Span(ARGUMENTS, 1, 1))
