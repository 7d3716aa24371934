"""Nothing is lost in what the framework was told: layers over stages, samples over replicas."""

from __future__ import annotations

import re

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.read_emitted import Arguments

FILE = "megatron/args.sh"
LONGEST = 100_000
"""Letters of a pipeline layout once its repeats are written out."""


def verify_layers(arguments: Arguments, sink: Sink) -> None:
    """A08 where the stages of ``megatron/args.sh`` do not hold the layers exactly once."""
    layers = arguments.number("num-layers", 0)
    if not layers:
        _report("A08", "--num-layers is missing", "", sink)
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
    counted = arguments.has("account-for-embedding-in-pipeline-split")
    counted_loss = arguments.has("account-for-loss-in-pipeline-split")
    stages = (pp - bool(first) - bool(last)) * _chunks(arguments, layers, pp)
    rest = layers - first - last + counted + counted_loss
    if rest < 0 or (stages and rest % stages) or (not stages and rest):
        label = f"{rest} layers left for {stages} chunks" + ("" if stages else ", must be 0")
        _report("A08", f"{layers} layers do not fill {pp} stages evenly", label, sink)


def verify_batch(arguments: Arguments, dp: int, sink: Sink) -> None:
    """A09 where the global batch is not a whole number of micro-batches a replica."""
    batch = arguments.number("global-batch-size", 0)
    micro = arguments.number("micro-batch-size", 0)
    if not batch or not micro:
        _report("A09", "--global-batch-size or --micro-batch-size is missing", "", sink)
    elif batch % (micro * dp):
        message = f"a global batch of {batch} is no multiple of micro-batch {micro} x dp {dp}"
        _report("A09", message, f"{batch} % {micro * dp} = {batch % (micro * dp)}, must be 0", sink)


def _chunks(arguments: Arguments, layers: int, pp: int) -> int:
    """Virtual stages of every pipeline rank."""
    each = arguments.number("num-layers-per-virtual-pipeline-stage", 0)
    if each:
        return max(1, layers // (pp * each))
    return arguments.number("num-virtual-stages-per-pipeline-rank", 1)


def _verify_layout(layout: str, pp: int, arguments: Arguments, sink: Sink) -> None:
    """E once at the start, L once at the end, every t and m, and whole rounds of stages."""
    flat = _written_out(layout)
    mtp = arguments.number("mtp-num-layers", 0) if arguments.has("mtp-num-layers") else 0
    wanted = {"E": 1, "t": arguments.number("num-layers", 0), "m": mtp, "L": 1}
    for letter, count in wanted.items():
        if flat is None or flat.count(letter) != count:
            found = "unreadable" if flat is None else f"{flat.count(letter)} of {letter}"
            message = f"the pipeline layout does not hold the model: {found}"
            _report("A08", message, f"must be {count} of {letter}", sink)
            return
    stages = (flat or "").count("|") + 1
    if stages % pp:
        message = f"the pipeline layout has {stages} stages for {pp} pipeline ranks"
        _report("A08", message, f"{stages} % {pp} = {stages % pp}, must be 0", sink)


def _verify_pattern(pattern: str, pp: int, layers: int, sink: Sink) -> None:
    """A letter for every layer, and whole rounds of stages."""
    letters = re.findall(r"[M*E-]", pattern)
    if len(letters) != layers or len(letters) + pattern.count("|") != len(pattern):
        message = f"the pattern of layers does not hold the model: {len(letters)} letters"
        _report("A08", message, f"must be {layers} of M * E -, and | between stages", sink)
    stages = pattern.count("|") + 1
    if stages % pp:
        message = f"the pattern of layers has {stages} stages for {pp} pipeline ranks"
        _report("A08", message, f"{stages} % {pp} = {stages % pp}, must be 0", sink)


def _written_out(layout: str) -> str | None:
    """All repeats replaced by what they repeat; None for text that is no layout.

    A group goes first, with the repeats inside it, as in Megatron's ``parse_str_to_list``.
    """
    text = layout.replace(",", "").replace(" ", "")
    for pattern in (r"\(([Etm|L*\d]+)\)\*(\d{1,6})", r"([Etm|L])\*(\d{1,6})"):
        size = sum(len(body) * int(times) for body, times in re.findall(pattern, text))
        if size > LONGEST:
            return None
        text = re.sub(pattern, lambda found: found[1] * int(found[2]), text)
    return text if re.fullmatch(r"[Etm|L]+", text) else None


def _report(code: str, message: str, label: str, sink: Sink) -> None:
    sink.report(code, Finding(message, label), span=Span(FILE, 1, 1))
