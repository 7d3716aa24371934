"""Re-derive the groups of a PyTorch device mesh from its sizes.

``init_device_mesh`` numbers ranks row-major: the coordinate along an axis is the rank divided by
the product of all faster sizes, modulo the axis size. A group contains the ranks that share all
other coordinates. This module shares no code with the meshes that PARC places, so a mistake in
those meshes is detected here. Frameworks that build such a mesh use ``DeviceMeshVerifier``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from math import prod
from typing import Any

from parc.backends.verifier import (
    NO_FILES,
    DerivedGroups,
    FamilyGroups,
    FileDependencies,
    FrameworkVerifier,
    LauncherNumber,
)
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.read_emitted import LARGEST, TABLE, MalformedFileError

Axes = tuple[tuple[str, int], ...]
"""Axes of a mesh: one pair (axis, size) per axis, the slowest-varying axis first."""
ORDER = "tp-cp-ep-dp-pp"
"""Rank order of the mesh, as in the rank map."""
DENSE = {
    "pp": ("pp",),
    "dp-replicate": ("dp_replicate",),
    "dp-shard": ("dp_shard",),
    "cp": ("cp",),
    "tp": ("tp",),
    "dp": ("dp_replicate", "dp_shard"),
    "dp-shard-cp": ("dp_shard", "cp"),
    "dp-cp": ("dp_replicate", "dp_shard", "cp"),
}
"""Name of a kind of group in the rank map -> axes of these groups in the mesh of dense layers."""
SPARSE = {"ep": ("ep",), "efsdp": ("efsdp",)}
"""Name of a kind of group in the rank map -> axes of these groups in the mesh of experts."""


@frozen
class MeshSizes:
    """Sizes of a device mesh as a framework's file configures them."""

    pp: int
    dp_replicate: int
    dp_shard: int
    cp: int
    tp: int
    ep: int = 1

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.pp * self.dp_replicate * self.ranks_per_stage

    @property
    def ranks_per_stage(self) -> int:
        """Number of ranks in one pipeline stage of one replica; expert groups split these ranks."""
        return self.dp_shard * self.cp * self.tp


def derive_mesh_groups(sizes: MeshSizes, families: tuple[str, ...]) -> dict[str, FamilyGroups]:
    """Return name -> process groups, for each kind of group in ``families``.

    A kind in DENSE is derived from the mesh of dense layers, a kind in SPARSE from the mesh of
    experts.
    """
    outer = (("pp", sizes.pp), ("dp_replicate", sizes.dp_replicate))
    dense: Axes = (*outer, ("dp_shard", sizes.dp_shard), ("cp", sizes.cp), ("tp", sizes.tp))
    sparse: Axes = (*outer, ("efsdp", sizes.ranks_per_stage // sizes.ep), ("ep", sizes.ep))
    return {
        name: groups_along(dense, DENSE[name])
        if name in DENSE
        else groups_along(sparse, SPARSE[name])
        for name in families
    }


def groups_along(mesh: Axes, axes: tuple[str, ...]) -> FamilyGroups:
    """Return the groups of ranks whose coordinates differ only along ``axes``.

    The result contains the ranks in the group of rank 0 and the first rank of every group. Both
    lists are in ascending order.
    """
    # Stride of an axis: the product of the sizes of all faster axes, as in init_device_mesh.
    steps = {
        axis: prod(size for _, size in mesh[place + 1 :]) for place, (axis, _) in enumerate(mesh)
    }

    def rank_offsets(inside: bool) -> list[int]:
        chosen = [(size, steps[axis]) for axis, size in mesh if (axis in axes) is inside]
        # The last axis varies fastest in product(), so the sums are in ascending order.
        walks = product(*(range(0, size * step, step) for size, step in chosen))
        return [sum(walk) for walk in walks]

    return FamilyGroups(rank_offsets(True), rank_offsets(False))


def positive_sizes(file: str, sizes: Mapping[str, Any]) -> dict[str, int]:
    """Return a copy of ``sizes``, which must all be positive integers.

    Raises:
        MalformedFileError: a size is not a positive integer, or exceeds LARGEST.
    """
    for name, size in sizes.items():
        # type() instead of isinstance(), because a boolean is an instance of int.
        if type(size) is not int or not 0 < size <= LARGEST:
            raise MalformedFileError(file, 1, f"{name} is {size!r:.60}, must be an integer > 0")
    return dict(sizes)


@frozen(slots=False)
class DeviceMeshVerifier(FrameworkVerifier):
    """Verifier of a framework that builds a device mesh from the sizes in one file."""

    file: str
    builder: str
    """Name of the framework in findings."""
    read_sizes: Callable[[str], MeshSizes]
    """Function that returns the sizes that the text of ``file`` configures. Raises
    MalformedFileError for
    any other text."""
    columns: tuple[str, ...]
    """Kinds of process groups that are columns of the framework's rank map."""
    other_families: tuple[str, ...]
    """Further kinds of process groups that the framework builds."""
    files: FileDependencies = NO_FILES
    launcher: tuple[LauncherNumber, ...] = ()

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Raise MalformedFileError if the mesh sizes cannot be read from ``file``.

        The sizes are not compared with the rank map here, but in ``derive_groups``.
        """
        self.read_sizes(artifacts[self.file])

    def derive_groups(
        self, artifacts: Mapping[str, str], world: int, sink: Sink
    ) -> DerivedGroups | None:
        """Return the mesh sizes in ``file`` and the process groups that they imply.

        Return None after reporting (A05) that the sizes do not give ``world`` ranks, or that ep
        does not divide the ranks of a stage.
        """
        found = self.read_sizes(artifacts[self.file])
        if found.world != world:
            message = f"the rank map has {world} ranks, but {self.file} configures {found.world}"
            sink.report("A05", message, span=Span(TABLE, 1, 1))
            return None
        # torchtitan and FSDP2 split the ranks of one stage of a replica into efsdp x ep.
        if found.ranks_per_stage % found.ep:
            label = (
                f"dp_shard x cp x tp = {found.ranks_per_stage} ranks "
                f"are not divisible by ep {found.ep}"
            )
            message = f"the expert groups in {self.file} do not divide the ranks of a replica"
            finding = Finding(message, label)
            sink.report("A05", finding, span=Span(self.file, 1, 1))
            return None
        sizes = {name: getattr(found, name) for name in ("pp", "dp_replicate", "dp_shard")}
        sizes |= {"cp": found.cp, "tp": found.tp, "ep": found.ep}
        families = derive_mesh_groups(found, (*self.columns, *self.other_families))
        return DerivedGroups(self.file, self.builder, ORDER, sizes, families, self.columns)
