"""Groups that torch's DeviceMesh builds on a CPU, for worlds of any size.

    python mesh_checker.py < cases.jsonl > verdicts.jsonl

A case: {"name", "mesh": [["pp", 8], ["dp", 64], ["tp", 8]], "ranks": [0], "together":
[["dp", "cp"]], "digests": false}; the mesh lists its axes from the slowest to the fastest.
A verdict adds "groups": {"0": {"pp": [...], "dp": [...], "dp-tp": [...], ...}}, for every axis
and every entry of "together" (default: every pair of axes longer than 1). The groups are those of
init_device_mesh and its flattening on torch's fake backend. On request it adds "digests":
{"pp": sha256 of all groups of the axis, sorted, as compact JSON}.

Runs under the Python that has torch; imports neither PARC nor pytest.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import sys
from typing import Any

from case_lines import Case, Verdict, answer_cases, import_before_forks


def check(case: Case, verdict: Verdict) -> None:
    """Build the mesh from the point of view of each requested rank."""
    names = [name for name, _ in case["mesh"]]
    long = [name for name, size in case["mesh"] if size > 1]
    together = case.get("together", list(itertools.combinations(long, 2)))
    verdict["groups"] = {}
    for rank in case.get("ranks", [0]):
        verdict["stage"] = f"mesh of rank {rank}"
        mesh = mesh_of(case["mesh"], rank)
        groups = {name: ranks_of(mesh.get_group(name)) for name in names}
        for axes in together:
            flat = mesh[tuple(axes)]._flatten("-".join(axes))
            groups["-".join(axes)] = ranks_of(flat.get_group())
        verdict["groups"][str(rank)] = groups
    if case.get("digests"):
        verdict["digests"] = {name: digest(mesh.mesh, k) for k, name in enumerate(names)}


def mesh_of(axes: list[tuple[str, int]], rank: int) -> Any:
    """Return the mesh over the whole world, built by ``rank``."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    names, sizes = zip(*axes, strict=True)
    join(rank, math.prod(sizes))
    return init_device_mesh("cpu", sizes, mesh_dim_names=names) if dist.is_initialized() else None


def join(rank: int, world: int) -> None:
    """Join a process group that sends nothing, so that one process can be any rank of any world."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())


def ranks_of(group: Any) -> list[int]:
    """Return the ranks of a process group, in its order."""
    import torch.distributed as dist

    return list(dist.get_process_group_ranks(group))


def digest(grid: Any, axis: int) -> str:
    """Return the sha256 of all groups along one axis of the tensor of ranks, sorted."""
    groups = sorted(grid.movedim(axis, -1).reshape(-1, grid.shape[axis]).tolist())
    return hashlib.sha256(json.dumps(groups, separators=(",", ":")).encode()).hexdigest()


def main() -> int:
    import_before_forks(
        "torch", "torch.distributed.device_mesh", "torch.testing._internal.distributed.fake_pg"
    )
    return answer_cases(check)


if __name__ == "__main__":
    sys.exit(main())
