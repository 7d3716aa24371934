"""Check that Megatron's arguments assign every layer to one stage and divide the batch evenly."""

from __future__ import annotations

import re

from parc.backends.megatron.verify_arguments import ARGUMENTS, WrittenFlags
from parc.compiler.diagnostics import Finding, Sink, Span

LONGEST = 100_000
"""Maximum number of letters in an expanded pipeline layout. It bounds the memory that a damaged
repeat count can use."""


def verify_layers(arguments: WrittenFlags, sink: Sink) -> None:
    """Report layers that are in no pipeline stage, or in more than one (A08)."""
    layers = arguments.number("num-layers", 0)
    if not layers:
        _report_wrong_layers("A08", "--num-layers is missing", "", sink)
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
        _report_wrong_layers("A08", f"{layers} layers do not fill {pp} stages evenly", label, sink)


def verify_batch(arguments: WrittenFlags, dp: int, sink: Sink) -> None:
    """Report a global batch that is not a whole number of micro-batches per replica (A09)."""
    batch = arguments.number("global-batch-size", 0)
    micro = arguments.number("micro-batch-size", 0)
    if not batch or not micro:
        _report_wrong_layers(
            "A09", "--global-batch-size or --micro-batch-size is missing", "", sink
        )
    elif batch % (micro * dp):
        message = f"the global batch {batch} is not divisible by micro-batch {micro} x dp {dp}"
        _report_wrong_layers(
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
            _report_wrong_layers(
                "A08", message, f"must contain {count} of the letter {letter}", sink
            )
            return
    stages = (flat or "").count("|") + 1
    if stages % pp:
        message = f"the pipeline layout has {stages} stages for {pp} pipeline ranks"
        _report_wrong_layers("A08", message, f"{stages} % {pp} = {stages % pp}, must be 0", sink)


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
        _report_wrong_layers(
            "A08", message, f"must be {layers} of M * E -, and | between stages", sink
        )
    stages = pattern.count("|") + 1
    if stages % pp:
        message = f"the layer pattern has {stages} stages for {pp} pipeline ranks"
        _report_wrong_layers("A08", message, f"{stages} % {pp} = {stages % pp}, must be 0", sink)


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


def _report_wrong_layers(code: str, message: str, label: str, sink: Sink) -> None:
    sink.report(code, Finding(message, label), span=Span(ARGUMENTS, 1, 1))
