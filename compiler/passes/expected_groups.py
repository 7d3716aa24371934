"""What a framework's own files say about ranks and groups, derived without the placement pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.passes.read_emitted import ARGUMENTS, Arguments
from parc.compiler.passes.regenerate_groups import COLUMNS, Degrees, Groups, regenerate
from parc.compiler.passes.regenerate_mesh import regenerate_mesh
from parc.compiler.passes.torch_sizes import torch_sizes


@dataclass(frozen=True, slots=True)
class Expected:
    """Sizes, order and groups that a rank map must have."""

    builder: str
    """The framework."""
    file: str
    """The emitted file that they follow from."""
    order: str
    sizes: dict[str, int]
    families: dict[str, Groups]
    columns: tuple[str, ...]
    """Families whose place is a column of the rank map."""


def expected_groups(
    artifacts: Mapping[str, str], arguments: Arguments | None, world: int, sink: Sink
) -> Expected | None:
    """What the framework of ``artifacts`` builds on ``world`` ranks.

    None where no framework was emitted, or (with A05) where its sizes do not fit.

    Raises:
        Malformed: the framework's file cannot be read.
    """
    if arguments is not None:
        degrees = degrees_of(arguments, world, sink)
        if degrees is None:
            return None
        families = regenerate(degrees)
        return Expected("Megatron", ARGUMENTS, degrees.order, degrees.sizes(), families, COLUMNS)
    found = torch_sizes(artifacts)
    if found is None:
        return None
    if found.world != world:
        message = f"the rank map has {world} ranks, {found.file} asks for {found.world}"
        sink.report("A05", message)
        return None
    mesh = regenerate_mesh(found)
    return Expected(
        found.framework, found.file, mesh.order, mesh.sizes, mesh.families, mesh.columns
    )


def degrees_of(arguments: Arguments, world: int, sink: Sink) -> Degrees | None:
    """Sizes that the arguments ask for on ``world`` ranks; None (and A05) where they do not fit."""
    tp = arguments.number("tensor-model-parallel-size", 1)
    pp = arguments.number("pipeline-model-parallel-size", 1)
    cp = arguments.number("context-parallel-size", 1)
    ep = arguments.number("expert-model-parallel-size", 1)
    etp = arguments.number("expert-tensor-parallel-size", tp)
    for name, product in (("tp x cp x pp", tp * cp * pp), ("etp x ep x pp", etp * ep * pp)):
        if world % product:
            message = f"the rank map has {world} ranks, but {name} = {product} of megatron/args.sh"
            label = f"{world} % {product} = {world % product}, must be 0"
            sink.report(
                "A05",
                Finding(f"{message} does not divide it", label),
                span=Span("rankmap.csv", 1, 1),
            )
            return None
    swapped = arguments.has("use-tp-pp-dp-mapping")
    return Degrees(
        order="tp-cp-ep-pp-dp" if swapped else "tp-cp-ep-dp-pp",
        dense={"tp": tp, "cp": cp, "ep": 1, "dp": world // (tp * cp * pp), "pp": pp},
        expert={"tp": etp, "cp": 1, "ep": ep, "dp": world // (etp * ep * pp), "pp": pp},
    )
