"""Rank maps of PyTorch's frameworks equal the groups of torch's DeviceMesh, up to 65,536 ranks."""

from __future__ import annotations

import hashlib
import json
from random import Random

import pytest

from parc.backends.shared.torch import mesh as torch_mesh
from parc.compiler.ir import NO_OFFLOAD, NO_RECOMPUTE, NO_ZERO_PLUS, Layout, PipelineSplit
from tests.conformance.tool_checkers import mesh_verdicts

pytestmark = pytest.mark.conformance
AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
"""Axes in torch's order, the slowest first."""


def layout_of(sizes: dict[str, int]) -> Layout:
    """Return a layout with these parallel sizes and any other settings."""
    return Layout(
        **sizes,
        vpp=1,
        ep=1,
        etp=1,
        micro_batch=1,
        schedule="1f1b",
        sequence_parallel=True,
        zero_stage=3,
        recompute=NO_RECOMPUTE,
        split=PipelineSplit("even", False, False, "", ()),
        order=torch_mesh.ORDER,
        cp_comm="p2p",
        cp_a2a=1,
        offload=NO_OFFLOAD,
        zero_plus=NO_ZERO_PLUS,
        cuda_graphs=False,
    )


def digest(groups: list[list[int]]) -> str:
    """Return the digest that mesh_checker.py computes."""
    text = json.dumps(sorted(groups), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def sizes_of(seed: int, world: int) -> dict[str, int]:
    """Return random parallel sizes whose product is ``world``."""
    dice, left, sizes = Random(f"mesh {seed} {world}"), world, {}
    for axis in AXES[:-1]:
        sizes[axis] = dice.choice([n for n in (1, 2, 4, 8, 16, 32) if left % n == 0])
        left //= sizes[axis]
    return sizes | {"tp": left}


def test_every_group_of_every_axis_equals_that_of_device_mesh() -> None:
    worlds = [64, 96, 512, 4096, 16384, 65536, 65536]
    meshes = [sizes_of(seed, world) for seed, world in enumerate(worlds)]
    cases = [
        {"name": str(k), "mesh": [[axis, sizes[axis]] for axis in AXES], "digests": True}
        for k, sizes in enumerate(meshes)
    ]
    for sizes, verdict in zip(meshes, mesh_verdicts(cases), strict=True):
        assert verdict["accepted"], verdict
        dense, _ = torch_mesh.dense_and_expert_mesh(layout_of(sizes))
        own = {axis: digest(dense.groups_along(axis)) for axis in AXES}
        assert {axis: verdict["digests"][axis] for axis in AXES} == own
