"""The second route through ``megatron/args.sh``."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.derived_groups import SecondRoute, Told
from parc.compiler.verify.read_emitted import ARGUMENTS, TABLE, Arguments, read_arguments
from parc.compiler.verify.regenerate_groups import COLUMNS, HIERARCHY, Degrees, regenerate
from parc.compiler.verify.verify_model import verify_batch, verify_layers


def _contents(artifacts: Mapping[str, str], sink: Sink) -> None:
    verify_layers(read_arguments(artifacts[ARGUMENTS]), sink)


def _told(artifacts: Mapping[str, str], world: int, sink: Sink) -> Told | None:
    arguments = read_arguments(artifacts[ARGUMENTS])
    degrees = _degrees_of(arguments, world, sink)
    if degrees is None:
        return None
    verify_batch(arguments, degrees.dense["dp"], sink)
    return Told(
        file=ARGUMENTS,
        builder="Megatron",
        order=degrees.order,
        sizes=degrees.sizes(),
        families=regenerate(degrees),
        columns=COLUMNS,
    )


def _degrees_of(arguments: Arguments, world: int, sink: Sink) -> Degrees | None:
    """Sizes that the arguments ask for on ``world`` ranks; None (and A05) where they do not fit."""
    tp = arguments.number("tensor-model-parallel-size", 1)
    pp = arguments.number("pipeline-model-parallel-size", 1)
    cp = arguments.number("context-parallel-size", 1)
    ep = arguments.number("expert-model-parallel-size", 1)
    etp = arguments.number("expert-tensor-parallel-size", tp)
    for name, product in (("tp x cp x pp", tp * cp * pp), ("etp x ep x pp", etp * ep * pp)):
        if world % product:
            message = f"the rank map has {world} ranks, but {name} = {product} of {ARGUMENTS}"
            label = f"{world} % {product} = {world % product}, must be 0"
            finding = Finding(f"{message} does not divide it", label)
            sink.report("A05", finding, span=Span(TABLE, 1, 1))
            return None
    levels = arguments.numbers("hierarchical-context-parallel-sizes")
    if levels and (len(levels) != len(HIERARCHY) or prod(levels) != cp):
        said = " ".join(map(str, levels))
        message = f"{ARGUMENTS} has --hierarchical-context-parallel-sizes {said} for cp {cp}"
        finding = Finding(message, f"{len(HIERARCHY)} sizes whose product is {cp} are needed")
        sink.report("A05", finding, span=Span(TABLE, 1, 1))
        return None
    swapped = arguments.has("use-tp-pp-dp-mapping")
    return Degrees(
        order="tp-cp-ep-pp-dp" if swapped else "tp-cp-ep-dp-pp",
        dense={"tp": tp, "cp": cp, "ep": 1, "dp": world // (tp * cp * pp), "pp": pp},
        expert={"tp": etp, "cp": 1, "ep": ep, "dp": world // (etp * ep * pp), "pp": pp},
        levels=levels,
    )


MEGATRON = SecondRoute(ARGUMENTS, (), _contents, _told)
