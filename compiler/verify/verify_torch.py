"""The second routes through the files of torch's frameworks: fsdp, torchtitan and accelerate."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify import torch_sizes as sizes
from parc.compiler.verify.derived_groups import SecondRoute, Told
from parc.compiler.verify.read_emitted import TABLE
from parc.compiler.verify.regenerate_mesh import regenerate_mesh


def _route(file: str, read: Callable[[str], sizes.TorchSizes]) -> SecondRoute:
    def told(artifacts: Mapping[str, str], world: int, sink: Sink) -> Told | None:
        found = read(artifacts[file])
        if found.world != world:
            message = f"the rank map has {world} ranks, {file} asks for {found.world}"
            sink.report("A05", message, span=Span(TABLE, 1, 1))
            return None
        inner = found.dp_shard * found.cp * found.tp
        if inner % found.ep:
            label = f"{inner} ranks of dp_shard x cp x tp, ep {found.ep}"
            finding = Finding(f"experts of {file} do not tile a stage", label)
            sink.report("A05", finding, span=Span(file, 1, 1))
            return None
        mesh = regenerate_mesh(found)
        return Told(file, found.framework, mesh.order, mesh.sizes, mesh.families, mesh.columns)

    def contents(artifacts: Mapping[str, str], sink: Sink) -> None:
        del sink
        read(artifacts[file])

    return SecondRoute(file, (), contents, told)


FSDP = _route(sizes.FSDP, sizes.fsdp_sizes)
TORCHTITAN = _route(sizes.TITAN, sizes.titan_sizes)
ACCELERATE = _route(sizes.ACCELERATE, sizes.accelerate_sizes)
